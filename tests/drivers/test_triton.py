"""Triton: a real tritonserver, started as its recipe says, answers right over both protocols or is found out."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from contextlib import contextmanager, suppress

import pytest
import yaml
from service_environment import ROOT, ask, environment
from service_loads import deployed, loaded

from seamark.drivers.triton.models import MODELS, write_repository
from seamark.drivers.triton.requests import HttpReplyCheck, InferenceRequests
from seamark.services.supervisor.launch_spec import CommandTemplate, printed

RECIPE = yaml.safe_load((ROOT / "config/services/triton.yaml").read_text(encoding="utf-8"))
DEFAULTS = {name: setting["default"] for name, setting in RECIPE["settings"].items()}


@pytest.fixture(scope="module")
def triton():
    return environment("triton")


def free_ports(names):
    sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in names}
    ports = {name: one.getsockname()[1] for name, one in sockets.items()}
    for one in sockets.values():
        one.close()
    return ports


@contextmanager
def serving(root, data, spoil=lambda models: None, **changes):
    """Stage, start the server by the recipe's templates, give what a client is told, and stop it."""
    server = RECIPE["server"]
    where = {"settings": DEFAULTS | changes, "data": str(data), "ports": free_ports(server["ports"])}
    ask(root, "inside_triton", "staged", where=where)
    spoil(data / "models")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    template = CommandTemplate(
        "triton",
        {
            "ports": where["ports"],
            "host": "127.0.0.1",
            "data": data,
            "env": root,
            "site_packages": root / "lib" / f"python{version}" / "site-packages",
            "libdir": sysconfig.get_config_var("LIBDIR"),
            "settings": printed(where["settings"]),
        },
    )
    variables = {name: template.fill(value) for name, value in server["environment"].items()}
    log = data / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            template.fill_all(tuple(server["command"])),
            env={**os.environ, **variables},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{where['ports'][server['health']['port']]}{server['health']['path']}"
        limit = time.monotonic() + 60
        while not answers(url):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.05)
        yield {**where, "process": process.pid}
    finally:
        if process.poll() is None:
            process.send_signal(signal.Signals[server["stop_signal"]])
        process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a stub of the Python backend outlives a server that was killed


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False


def counted(where, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{where['ports']['metrics']}/metrics", timeout=5) as reply:
        text = reply.read().decode()
    return sum(float(value) for value in re.findall(rf"^{name}\{{[^}}]*\}} (\S+)$", text, re.M))


@pytest.fixture(scope="module")
def mlp(triton, tmp_path_factory):
    with serving(triton, tmp_path_factory.mktemp("mlp"), model="mlp", instances=2) as where:
        yield where


@pytest.fixture(scope="module")
def addsub(triton, tmp_path_factory):
    with serving(triton, tmp_path_factory.mktemp("addsub"), model="addsub", max_queue_delay_us=5000) as where:
        yield where


def at(where, **changes):
    return where | {"settings": where["settings"] | changes}


def reply_body(outputs, tensors):
    header = {"model_name": "addsub", "model_version": "1", "outputs": outputs}
    return json.dumps(header, separators=(",", ":")).encode() + tensors


def output(name, shape, size=None, datatype="FP32"):
    size = 4 * shape[0] * shape[1] if size is None else size
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


def check_of(**changes):
    return HttpReplyCheck(InferenceRequests.of(DEFAULTS | {"model": "addsub", "batch": 2, "dimensions": 3} | changes))


def test_a_right_reply_is_worth_its_batch_however_often_it_comes():
    check = check_of()
    body = reply_body([output("SUM", [2, 3]), output("DIFFERENCE", [2, 3])], bytes(48))
    assert [check(200, body) for _ in range(3)] == [2, 2, 2]


def test_replies_of_any_size_between_the_smallest_and_the_largest_are_right():
    check = check_of(dimensions_max=5)
    for size in (3, 4, 5):
        outputs = [output("SUM", [2, size]), output("DIFFERENCE", [2, size])]
        assert check(200, reply_body(outputs, bytes(16 * size))) == 2
    with pytest.raises(ValueError):
        check(200, reply_body([output("SUM", [2, 6]), output("DIFFERENCE", [2, 6])], bytes(96)))


@pytest.mark.parametrize(
    "body",
    [
        reply_body([output("SUM", [2, 3])], bytes(24)),
        reply_body([output("SUM", [2, 3]), output("SUM", [2, 3])], bytes(48)),
        reply_body([output("SUM", [2, 3]), output("OTHER", [2, 3])], bytes(48)),
        reply_body([output("SUM", [1, 3]), output("DIFFERENCE", [1, 3])], bytes(24)),
        reply_body([output("SUM", [2, 3]), output("DIFFERENCE", [2, 4])], bytes(56)),
        reply_body([output("SUM", [2, 3]), output("DIFFERENCE", [2, 3], datatype="FP64")], bytes(48)),
        reply_body([output("SUM", [2, 3]), output("DIFFERENCE", [2, 3], size=20)], bytes(44)),
        reply_body([output("SUM", [2, 3]), output("DIFFERENCE", [2, 3])], bytes(47)),
        reply_body([output("SUM", [2, 3]), output("DIFFERENCE", [2, 3])], bytes(49)),
        reply_body([output("SUM", [2, 3]), output("DIFFERENCE", [2, 3])], b""),
        b'{"model_name":"addsub","outputs":[{"name":"SUM","datatype":"FP32","shape":[2,3],"data":[1,2,3,4,5,6]}]}',
        b'{"error":"out of memory"}',
        b"<html>",
        b"",
    ],
)
def test_a_reply_that_lacks_an_output_or_has_one_of_another_shape_or_length_is_wrong(body):
    check = check_of()
    assert check(200, reply_body([output("SUM", [2, 3]), output("DIFFERENCE", [2, 3])], bytes(48))) == 2
    for _ in range(2):
        with pytest.raises(ValueError):
            check(200, body)


def test_requests_are_the_same_for_a_seed_and_cover_all_sizes():
    requests = InferenceRequests.of(DEFAULTS | {"model": "addsub", "dimensions": 2, "dimensions_max": 6})
    once, again, other = (
        [(arrays["X"].shape, arrays["Y"].tobytes()) for arrays in requests.arrays(200, seed)] for seed in (1, 1, 2)
    )
    assert once == again
    assert once != other
    assert {shape[1] for shape, _ in once} == {2, 3, 4, 5, 6}


def test_requests_kept_at_once_stay_within_64_mib():
    small = InferenceRequests.of(DEFAULTS | {"model": "addsub"})
    large = InferenceRequests.of(DEFAULTS | {"model": "mlp", "batch": 64, "dimensions": 1000})
    assert small.body_count == 1024
    assert large.body_count == 16
    assert InferenceRequests.of(DEFAULTS | {"batch": 64, "dimensions": 100}).body_count == (64 << 20) // (
        64 * 100 * 64 * 4
    )


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"max_batch_size": 7}, "max_batch_size: 7"),
        ({"instances": 3}, "instance_group [ { kind: KIND_CPU count: 3 } ]"),
        ({"max_queue_delay_us": 40}, "dynamic_batching { max_queue_delay_microseconds: 40 }"),
        ({"backend": "onnxruntime"}, 'backend: "onnxruntime"'),
    ],
)
def test_a_deployment_setting_reaches_the_configuration_of_the_model(tmp_path, changes, line):
    write_repository(tmp_path, DEFAULTS | {"model": "addsub"} | changes)
    config = (tmp_path / "addsub" / "config.pbtxt").read_text()
    assert line in config.splitlines()


def test_without_dynamic_batching_the_configuration_has_none(tmp_path):
    write_repository(tmp_path, DEFAULTS | {"model": "addsub", "dynamic_batching": False})
    assert "dynamic_batching" not in (tmp_path / "addsub" / "config.pbtxt").read_text()


def test_the_recipe_offers_exactly_the_models_there_are():
    assert set(RECIPE["settings"]["model"]["allowed"]) == set(MODELS)


@pytest.mark.services
@pytest.mark.covers("E-FR19", "E-FR21")
@pytest.mark.parametrize(
    ("protocol", "model", "batch", "smallest", "largest"),
    [
        ("http", "addsub", 8, 1, 40),
        ("grpc", "addsub", 1, 16, None),
        ("http", "mlp", 1, 16, None),
        ("grpc", "mlp", 8, 1, 40),
        pytest.param("http", "addsub", 1, 16, None, marks=pytest.mark.sweep),
        pytest.param("grpc", "addsub", 8, 1, 40, marks=pytest.mark.sweep),
        pytest.param("http", "mlp", 8, 1, 40, marks=pytest.mark.sweep),
        pytest.param("grpc", "mlp", 1, 16, None, marks=pytest.mark.sweep),
    ],
)
def test_every_output_is_what_numpy_computes(request, model, protocol, batch, smallest, largest):
    where = at(
        request.getfixturevalue(model), protocol=protocol, batch=batch, dimensions=smallest, dimensions_max=largest
    )
    assert ask(environment("triton"), "inside_triton", "judged", where=where) == {"right_ratio": 1.0}
    if protocol == "http":
        seen = ask(environment("triton"), "inside_triton", "infer_over_http", where=where, count=40, cut_bytes=7)
        assert seen == [[200, batch, "NONE"]] * 40
    else:
        seen = ask(environment("triton"), "inside_triton", "infer_over_grpc", where=where, count=40, threads=4)
        assert seen == [[batch, "NONE"]] * 40


@pytest.mark.services
@pytest.mark.covers("E-FR19")
def test_the_onnx_model_itself_agrees_with_numpy_and_is_the_same_every_time(triton, mlp, tmp_path):
    where = at(mlp, batch=3, dimensions=1, dimensions_max=9)
    assert ask(triton, "inside_triton", "onnx_agrees_with_numpy", where=where) < 1e-4
    ask(triton, "inside_triton", "staged", where=where | {"data": str(tmp_path)})
    first, again = (
        (folder / "models/mlp/1/model.onnx").read_bytes() for folder in (type(tmp_path)(mlp["data"]), tmp_path)
    )
    assert first == again


@pytest.mark.services
def test_both_protocols_send_the_same_tensors(triton, addsub):
    over_http, over_grpc = ask(
        triton, "inside_triton", "sent_over_both", where=at(addsub, batch=2, dimensions_max=30), count=10, seed=4
    )
    assert over_http == over_grpc
    assert len(set(over_http)) == 10


@pytest.mark.services
@pytest.mark.covers("E-FR19", "E-MON01")
def test_requests_at_once_are_joined_into_fewer_executions(triton, addsub):
    before = {name: counted(addsub, name) for name in ("nv_inference_count", "nv_inference_exec_count")}
    where = at(addsub, protocol="grpc", batch=2)
    seen = ask(triton, "inside_triton", "infer_over_grpc", where=where, count=160, threads=8)
    assert seen == [[2, "NONE"]] * 160
    assert counted(addsub, "nv_inference_count") - before["nv_inference_count"] == 320
    assert counted(addsub, "nv_inference_exec_count") - before["nv_inference_exec_count"] < 100


@pytest.mark.services
@pytest.mark.covers("E-FR19")
def test_without_dynamic_batching_every_request_is_an_execution(triton, tmp_path):
    with serving(triton, tmp_path, model="addsub", dynamic_batching=False) as where:
        where = at(where, protocol="grpc")
        assert ask(triton, "inside_triton", "infer_over_grpc", where=where, count=80, threads=8) == [[1, "NONE"]] * 80
        assert counted(where, "nv_inference_exec_count") == 80


@pytest.mark.services
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_request_that_the_server_refuses_is_the_clients_error(triton, addsub, protocol):
    where = at(addsub, protocol=protocol, batch=65)
    if protocol == "http":
        seen = ask(triton, "inside_triton", "infer_over_http", where=where, count=2, cut_bytes=50)
        assert seen == [[400, 0, "CLIENT_ERROR"]] * 2
    else:
        seen = ask(triton, "inside_triton", "infer_over_grpc", where=where, count=2, threads=1)
        assert seen == [[0, "CLIENT_ERROR"]] * 2


@pytest.mark.services
@pytest.mark.parametrize(
    ("right", "wrong", "ratio", "failure"),
    [
        ("x + y", "x * y", 0.0, "NONE"),
        ("x - y)", "(x - y)[:, 1:])", 0.0, "WRONG_REPLY"),
        pytest.param("x - y)", "(x - y).astype('float64'))", None, "WRONG_REPLY", marks=pytest.mark.sweep),
        ("x + y", "1 / 0", None, "SERVER_ERROR"),
    ],
)
def test_a_model_that_answers_wrong_is_found_out_over_both_protocols(triton, tmp_path, right, wrong, ratio, failure):
    def spoil(models):
        path = models / "addsub/1/model.py"
        path.write_text(path.read_text().replace(right, wrong))

    with serving(triton, tmp_path, spoil, model="addsub") as where:
        http, grpc = at(where, protocol="http"), at(where, protocol="grpc")
        seen = ask(triton, "inside_triton", "infer_over_http", where=http, count=3, cut_bytes=1000)
        assert [name for _, _, name in seen] == [failure] * 3
        seen = ask(triton, "inside_triton", "infer_over_grpc", where=grpc, count=3, threads=1)
        assert [name for _, name in seen] == [failure] * 3
        if ratio is not None:
            for one in (http, grpc):
                assert ask(triton, "inside_triton", "judged", where=one) == {"right_ratio": ratio}


@pytest.mark.services
def test_a_port_that_nobody_listens_on_is_a_failure_to_connect(triton, tmp_path):
    where = {
        "settings": DEFAULTS | {"protocol": "grpc"},
        "data": str(tmp_path),
        "ports": free_ports(["http", "grpc", "metrics"]),
    }
    began_s = time.monotonic()
    assert ask(triton, "inside_triton", "connect_failure", where=where) == "CONNECT"
    assert time.monotonic() - began_s < 8  # gRPC itself would go on trying


@pytest.mark.services
def test_a_server_that_hangs_is_not_waited_for_when_its_answers_are_judged(triton, addsub):
    for protocol in ("http", "grpc"):
        began_s = time.monotonic()
        error = ask(triton, "inside_triton", "judged_while_it_hangs", where=at(addsub, protocol=protocol))
        assert isinstance(error, str)
        assert time.monotonic() - began_s < 20


@pytest.mark.services
def test_a_server_that_dies_under_a_session_is_a_lost_connection(triton, tmp_path):
    with serving(triton, tmp_path, model="addsub", protocol="grpc") as where:
        # gRPC connects again by itself: it depends on the moment whether the old connection or a new one fails
        assert ask(triton, "inside_triton", "lost_failure", where=where) in ("RESET", "CONNECT")


@pytest.mark.services
@pytest.mark.covers("E-FR19", "E-FR21")
def test_a_load_on_the_recipe_is_served_over_both_protocols_by_one_server(tmp_path):
    with deployed("triton", tmp_path) as endpoint:
        assert endpoint["phases"]["start_s"] > 0
        assert endpoint["metrics_url"].endswith(f":{endpoint['ports']['metrics']}/metrics")
        for protocol in ("http", "grpc"):
            outcome, samples = loaded(
                endpoint, tmp_path / protocol, protocol=protocol, batch=4, dimensions_max=32, requests=400
            )
            assert outcome.unit == "item"
            assert outcome.completed == len(samples) == 400
            assert not samples["failure"].any()
            assert (samples["units"] == 4).all()
            assert len(set(samples["bytes_sent"])) > 10
            assert (samples["last_ns"] > samples["sent_ns"]).all()
            assert outcome.quality == {"right_ratio": 1.0}
        assert counted(endpoint, "nv_inference_count") >= 2 * 400 * 4


@pytest.mark.services
@pytest.mark.covers("E-FR19")
def test_a_backend_that_the_embedded_server_lacks_is_named_where_the_server_fails(tmp_path):
    with deployed("triton", tmp_path, expected="failed", backend="onnxruntime") as endpoint:
        assert endpoint["category"] == "server_never_healthy"
        assert any(
            "unable to find backend library for backend 'onnxruntime'" in line for line in endpoint["log_tail"]
        )
