"""Acceptance of the original benchmark's requirements without a run: log, families, load and depth of a pipeline."""

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import yaml

from seamark.load.driver import Target
from seamark.model.digest import seed_for
from seamark.model.sample import EventKind
from seamark.model.trial import Trial
from seamark.patterns.table import pattern_of, schedule
from seamark.planning.study import Study
from seamark_pipelines.config.read import read_pipelines
from seamark_pipelines.drivers.pipeline import Pipeline
from seamark_pipelines.flow.classes import methods_of

QUERIES = 50


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    before, finders = set(sys.modules), list(sys.meta_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("stages", "loadgen", "utils"):
            del sys.modules[name]
    sys.meta_path[:] = finders


def graph(stages: list[dict[str, Any]], **loadgen: Any) -> None:
    """Write own.yml: a chain of stages that hand on, and its load."""
    last = len(stages) - 1
    chain = [
        {"name": f"s{id}", "id": id, "component": "stages.Stage", "outputs": [] if id == last else [id + 1], **more}
        for id, more in enumerate(stages)
    ]
    pipeline = {"name": "one", "inputs": [0], "outputs": [last], "dataset_stage_id": 0, "stages": chain}
    load = {"component": "loadgen.OfflineLoadScheduler", **loadgen}
    Path("own.yml").write_text(yaml.safe_dump({"pipelines": [pipeline | {"loadgen": load}]}))


class Tracks:
    """Keeps the stage and the kind of each event of a query."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int, EventKind]] = []

    def track(self) -> "Tracks":
        return self

    def add(self, query: int, stage: int, what: EventKind, begin_ns: int, end_ns: int, visit: int = 0) -> None:
        self.events.append((query, stage, what))


@pytest.mark.covers("A8")
def test_the_log_has_each_step_in_order_and_a_query_is_acknowledged_after_its_last_stage(folder: Path) -> None:
    graph([{}, {}])
    tracks: Any = Tracks()
    driver = Pipeline(Target(settings={"graph": "own.yml"}, data=Path(), files=Path("files"), events=tracks))
    try:
        for number in range(3):
            driver.send(driver.bodies(1, 0)[0], number)
            runs = [event for event in tracks.events if event[2] == EventKind.RUN]
            assert runs[2 * number :] == [(number, stage, EventKind.RUN) for stage in (0, 1)]
    finally:
        driver.ended()
    lines = [json.loads(line) for line in Path("files/log.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == [
        *("load generator built", "logging built", "pipeline built", "stage built", "stage built"),
        *(2 * ("stage preparing", "stage prepared")),
        *("prepared", "test started", "test ended"),
    ]
    assert [line["stage"] for line in lines if line["event"] == "stage built"] == ["s0", "s1"]
    assert sorted(line["at"] for line in lines) == [line["at"] for line in lines]


@pytest.mark.covers("A10")
@pytest.mark.parametrize(
    "component",
    [
        *(f"stages.llm_huggingface.{name}" for name in ("HuggingFaceDataLoader", "Finetune", "Inference")),
        *(f"stages.llm_torchtune.{name}" for name in ("TorchTuneDataLoader", "Finetune", "Inference")),
        *(f"stages.self_rag.{name}" for name in ("BinaryRouter", "ChromaRetriever")),
        *(f"stages.torchvision_classification.TorchVision{name}" for name in ("DataLoader", "Classification")),
    ],
)
def test_each_family_has_its_stages_under_their_names(folder: Path, component: str) -> None:
    assert {"run", "prepare"} <= methods_of(component, folder)


def planned(**loadgen: Any) -> Trial:
    graph([{}], **loadgen)
    document = {"scenario": "b", "repetitions": 1, "workload": {"service": "pipeline", "graph": "own.yml"}}
    Path("b.yaml").write_text(yaml.safe_dump(document))
    [trial] = Study.at(Path(), scenario="b.yaml").plan.trials
    return trial


@pytest.mark.covers("A4")
def test_a_closed_loop_has_one_query_in_flight_whatever_its_rate_and_a_poisson_load_has_its_gaps(
    folder: Path,
) -> None:
    slow, fast = (planned(max_queries=5, config={"rate": rate}).load for rate in (3, 300))
    assert (slow.pattern, slow.concurrency, slow.requests) == ("closed", 1, 5)
    assert slow == fast

    def due_s(seed: int) -> Any:
        pattern = pattern_of(poisson.load)
        assert pattern is not None
        blocks = schedule(pattern, seed=seed_for(seed, "arrivals"), until_s=1e6, requests=poisson.load.requests)
        return np.concatenate(list(blocks)) / 1e9

    poisson = planned(component="loadgen.PoissonLoadScheduler", max_queries=2000, config={"rate": 50})
    gaps_s = np.diff(due_s(poisson.seed))
    assert len(gaps_s) == 1999
    assert gaps_s.mean() == pytest.approx(0.02, rel=0.1)
    assert gaps_s.std() == pytest.approx(0.02, rel=0.15), "exponential"
    assert np.array_equal(due_s(poisson.seed), due_s(poisson.seed))
    assert not np.array_equal(due_s(poisson.seed), due_s(poisson.seed + 1))


def lines_a_run(depth: int) -> Iterator[float]:
    """Yield how many lines of Python each stage between others runs for a query, in a chain of `depth` stages."""
    counted: Counter[int] = Counter()

    def trace(frame: FrameType, event: str, value: object) -> Any:
        counted[threading.get_ident()] += event == "line"
        return trace

    graph([{"repeat": depth}])
    before = threading.gettrace()
    threading.settrace(trace)
    try:
        driver = Pipeline(Target(settings={"graph": "own.yml"}, data=Path(), files=Path("files")))
    finally:
        threading.settrace(before)  # type: ignore[arg-type]
    try:
        body = driver.bodies(1, 0)[0]
        driver.send(body, 0)
        first = dict(counted)
        for number in range(1, QUERIES + 1):
            driver.send(body, number)
        for thread in driver._flow.threads[1:-1]:
            assert thread.ident is not None
            yield (counted[thread.ident] - first[thread.ident]) / QUERIES
    finally:
        driver.ended()


@pytest.mark.covers("A7")
def test_a_stage_runs_as_many_lines_at_every_depth(folder: Path) -> None:
    """What a stage costs must not grow with the number of stages; benchmarks/pipelines measures the time."""
    lines = [many for depth in (3, 8, 32) for many in lines_a_run(depth)]
    assert len(lines) == 1 + 6 + 30
    assert min(lines) > 5, "the threads are traced"
    assert max(lines) - min(lines) < 1


@pytest.mark.covers("A9")
def test_several_inputs_and_outputs_are_read_as_they_are_written(folder: Path) -> None:
    stages = [{"name": f"s{id}", "id": id, "component": "stages.Stage"} for id in range(4)]
    stages[0]["outputs"], stages[1]["outputs"] = [2, 3], [3]
    stages[3]["polling_policy"] = "FirstSubmittedPolicy"
    pipeline = {"name": "one", "inputs": [0, 1], "outputs": [2, 3], "dataset_stage_id": 1, "stages": stages}
    load = {"component": "loadgen.OfflineLoadScheduler"}
    Path("own.yml").write_text(yaml.safe_dump({"pipelines": [pipeline | {"loadgen": load}]}))
    [model] = read_pipelines(Path("own.yml")).pipelines
    assert (list(model.inputs), list(model.outputs), model.dataset_stage_id) == ([0, 1], [2, 3], 1)
    assert [list(stage.outputs) for stage in model.stages] == [[2, 3], [3], [], []]
    assert (model.loadgen.queue_depth, model.loadgen.max_queries) == (10, 100)
