"""The chain of the ITU collocation benchmark, by its own classes: `source.py CHECKOUT`, then questions of child.py.

What its main.py does for a pipeline, without a run of MLflow, with its tracing off and its log of events on. Times
are those of that log.
"""

import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from child import answer

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(sys.argv[1]).resolve()))

import mlflow  # noqa: E402
from loadgen import run_loadgen  # noqa: E402
from utils.logger import PERF_FORMAT, install_perf_clock  # noqa: E402
from utils.schemas import PipelineModel  # noqa: E402


def measure(depth: int, queries: int) -> float:
    """Return the time of one stage in us, from the end of the first query to that of the last."""
    log = Path("log.csv")
    handler = logging.FileHandler(log, mode="w")
    handler.setFormatter(logging.Formatter(PERF_FORMAT))
    logger = logging.getLogger("benchmark")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    run_loadgen(PipelineModel.model_validate(chain(depth, queries + 1)))
    logger.removeHandler(handler)
    handler.close()
    ends = [line for line in log.read_text().splitlines() if ", pipeline - train, run, end, " in line]
    assert len(ends) == queries + 1, f"{len(ends)} of {queries + 1} queries have ended"
    first_ns, last_ns = (int(line.rpartition(",")[2]) for line in (ends[0], ends[-1]))
    return (last_ns - first_ns) / queries / depth / 1e3


def chain(depth: int, queries: int) -> dict[str, Any]:
    """Return the configuration of its own study of overhead."""
    kind, load = "stages.stage.Stage", "loadgen.OfflineLoadScheduler"
    stages = [{"name": f"Ref Stage {id}", "id": id, "component": kind, "outputs": [id + 1]} for id in range(depth)]
    stages[-1]["outputs"] = []
    loadgen = {"component": load, "max_queries": queries, "timeout": 60000, "queue_depth": 100}
    ends = {"inputs": [0], "outputs": [depth - 1], "dataset_stage_id": 0}
    return {"name": f"NoOp Chain Depth {depth}", "loadgen": loadgen, "stages": stages, **ends}


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    install_perf_clock()
    mlflow.tracing.disable()
    answer(measure)
