"""What test_triton.py asks in the environment of Triton. Every answer is JSON."""

import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from seamark.drivers.triton import inference
from seamark.drivers.triton.models import expected
from seamark.drivers.triton.requests import InferenceRequests
from seamark.load.driver import Body, Target


def target(where: dict[str, Any]) -> Target:
    return Target(settings=where["settings"], data=Path(where["data"]), ports=where["ports"])


def staged(where: dict[str, Any]) -> Any:
    return dict(inference.stage(target(where), 0))


def judged(where: dict[str, Any]) -> Any:
    return dict(inference.quality(target(where), 3))


def infer_over_http(where: dict[str, Any], count: int, cut_bytes: int) -> Any:
    """Send requests over one connection, handing the decoder `cut_bytes` at a time; give what it saw."""
    driver = inference.driver(target(where))
    requests = [driver.encode(body) for body in driver.bodies(count, 1)]
    decoder = driver.decoder()
    seen = []
    with socket.create_connection(driver.address(), timeout=10) as connection:
        for request in requests:
            decoder.reset()
            connection.sendall(request)
            whole = False
            while not whole:
                data = connection.recv(65536)
                assert data, "the server hung up"
                for at in range(0, len(data), cut_bytes):
                    whole = decoder.feed(data[at : at + cut_bytes])
            seen.append([decoder.status, decoder.units, decoder.failure.name])
    return seen


def infer_over_grpc(where: dict[str, Any], count: int, threads: int) -> Any:
    """Call in threads that each have a session; give what each reply was worth, or its failure."""
    driver = inference.driver(target(where))
    bodies = driver.bodies(count, 1)
    seen: list[Any] = []

    def user(number: int) -> None:
        session = driver.session()
        for body in bodies[number::threads]:
            try:
                reply = session.call(body)
            except Exception as error:
                seen.append([0, driver.failure(error).name])
            else:
                assert reply.bytes_sent == len(body.content)
                assert reply.bytes_received > 0
                seen.append([reply.units, reply.failure.name])
        session.close()

    users = [threading.Thread(target=user, args=(number,)) for number in range(threads)]
    for one in users:
        one.start()
    for one in users:
        one.join()
    return seen


def judged_while_it_hangs(where: dict[str, Any]) -> Any:
    """Stop the server's process, ask what its answers are worth, and let it go on."""
    inference.CHECK_S = 1.0
    os.kill(where["process"], signal.SIGSTOP)
    try:
        return dict(inference.quality(target(where), 0))
    except Exception as error:
        return type(error).__name__
    finally:
        os.kill(where["process"], signal.SIGCONT)


def lost_failure(where: dict[str, Any]) -> Any:
    """Kill the server under an open session; give the category of the next call."""
    driver = inference.driver(target(where))
    (body,) = driver.bodies(1, 0)
    session = driver.session()
    assert session.call(body).units == 1
    os.kill(where["process"], signal.SIGKILL)
    try:
        session.call(body)
    except Exception as error:
        return driver.failure(error).name
    return None


def connect_failure(where: dict[str, Any]) -> Any:
    """Give the category of a connection that nobody accepts."""
    driver = inference.driver(target(where))
    try:
        driver.session()
    except Exception as error:
        return driver.failure(error).name
    return None


def sent_over_both(where: dict[str, Any], count: int, seed: int) -> Any:
    """Give the bytes of tensors that both protocols send for the same seed."""
    from tritonclient.grpc import service_pb2

    sides = []
    for protocol in ("http", "grpc"):
        there = target({**where, "settings": {**where["settings"], "protocol": protocol}})
        driver = inference.driver(there)
        bodies: list[Body] = list(driver.bodies(count, seed))
        if protocol == "http":
            sides.append([b"".join(array.tobytes() for array in body.content.values()).hex() for body in bodies])
        else:
            messages = [service_pb2.ModelInferRequest.FromString(body.content) for body in bodies]
            sides.append([b"".join(message.raw_input_contents).hex() for message in messages])
    return sides


def onnx_agrees_with_numpy(where: dict[str, Any]) -> Any:
    """Run the staged ONNX file itself; give the largest difference from what is expected of the server."""
    path = Path(where["data"]) / "models" / "mlp" / "1" / "model.onnx"
    onnx.checker.check_model(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    worst = 0.0
    for arrays in InferenceRequests.of(where["settings"]).arrays(5, 0):
        got = session.run(["y"], dict(arrays))[0]
        worst = max(worst, float(abs(got - expected("mlp", arrays)["y"]).max()))
    return worst
