"""Graphs whose visits and times are known: Self-RAG under scripted verdicts, chains and forks of sleepers."""

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seamark.model.sample import EventKind
from seamark_pipelines.config.read import read_pipelines
from seamark_pipelines.flow.flow import Flow
from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.flow.virtual_clock import VirtualClock
from seamark_pipelines.model.graph import FIRST_SUBMITTED, MERGE, LoadGen, PipelineModel, StageModel
from seamark_pipelines.model.query import Query
from seamark_pipelines.stages.routers import BinaryRouter, IndexRouter

GRAPH = Path(__file__).parents[2] / "pipeline_configs" / "self_rag.yml"
VERDICTS = {7: "retrieval", 12: "hallucination", 15: "answer"}
BUDGET = 2


class Answered(Stage):
    """A model whose answers are a table: by query, and by how often the query came here."""

    table: dict[tuple[int, int], list[str]]

    def run(self, query: Query) -> dict[int, Query]:
        time.sleep(random.random() / 1000)
        assert query.ticket is not None
        said = self.table[int(query.query_id), self.id]
        query.data = [said[query.ticket.visits[self.number] - 1]]
        return super().run(query)


def walked(verdicts: dict[tuple[int, int], list[str]], number: int) -> tuple[Counter[int], bool]:
    """Return how often a query is in each stage, by the rules of Self-RAG alone, and whether a budget was spent."""
    seen: Counter[int] = Counter()

    def at(*stages: int) -> None:
        seen.update(stages)

    def said(stage: int) -> str:
        return verdicts[number, stage][seen[stage] - 1]

    left = dict.fromkeys(("retrieval", "hallucination", "answer"), BUDGET)

    def spend(name: str) -> bool:
        left[name] -= 1
        return left[name] >= 0

    at(0, 1, 2)
    if said(1) != "sqlite":
        at(20, 21, 17)
        return seen, False
    while True:
        at(3, 4, 5, 6, 7, 8)
        if said(7) == "no":
            if not spend("retrieval"):
                at(17)
                return seen, True
            at(18, 19)
            continue
        at(9, 10, 11, 12, 13)
        while said(12) == "yes":
            if not spend("hallucination"):
                at(17)
                return seen, True
            at(9, 10, 11, 12, 13)
        at(14, 15, 16)
        if said(15) == "yes":
            at(17)
            return seen, False
        if not spend("answer"):
            at(17)
            return seen, True
        at(18, 19)


@pytest.mark.covers("A5", "A9", "A10")
def test_self_rag_visits_each_stage_as_its_verdicts_say_with_ten_queries_in_flight() -> None:
    [model] = read_pipelines(GRAPH).pipelines
    draw = random.Random(5)
    count, most = 200, 3 * (BUDGET + 1) ** 2
    table = {
        (number, stage): [draw.choice(("yes", "no")) for _ in range(most)]
        for number in range(count)
        for stage in VERDICTS
    }
    table |= {(number, 1): [draw.choice(("sqlite", "sqlite", "llm"))] for number in range(count)}
    stages: dict[int, Any] = {}
    routers = {2: IndexRouter, 8: BinaryRouter, 13: BinaryRouter, 16: BinaryRouter}
    for number, spec in enumerate(model.stages):
        kind = routers.get(spec.id) or (Answered if spec.id in (1, *VERDICTS) else Stage)
        stages[spec.id] = kind(spec, model)
        if kind is Answered:
            stages[spec.id].table, stages[spec.id].number = table, number
    flow = Flow(model, stages, None, timeout_s=30)
    flow.start()

    def send(number: int) -> Any:
        return flow.call(Query(split="val", batch=0, query_submitted_timestamp=0.0, query_id=number), number)

    with ThreadPoolExecutor(10) as users:
        tickets = list(users.map(send, range(count)))
    flow.stop()
    for thread in flow.threads:
        thread.join(20)
    assert not [thread for thread in flow.threads if thread.is_alive()]
    spent = 0
    for number, ticket in enumerate(tickets):
        expected, exhausted = walked(table, number)
        assert ticket.error is None
        assert Counter({id: visits for id, visits in ticket.visits.items() if visits}) == expected, number
        assert (ticket.query.data is None) == exhausted
        spent += exhausted
    assert 20 < spent < count - 20


class Sleeper(Stage):
    """Works for a known time without a processor; `spread` are factors by query, `again` how often it goes back."""

    def run(self, query: Query) -> dict[int, Query]:
        time.sleep(self.extra_config["s"] * self.extra_config.get("spread", {}).get(query.query_id, 1))
        if again := self.extra_config.get("again"):
            assert query.ticket is not None
            return {-1: query} if query.ticket.visits[2] > again else {1: query}
        return super().run(query)


class Events:
    """Keeps the time in which each stage ran and waited, in s."""

    def __init__(self) -> None:
        self.spent: Counter[tuple[int, EventKind]] = Counter()

    def track(self) -> "Events":
        return self

    def add(self, query: int, stage: int, what: EventKind, begin_ns: int, end_ns: int, visit: int = 0) -> None:
        self.spent[stage, what] += end_ns - begin_ns  # type: ignore[assignment]


SERVICE_S = 0.02


def slept(shape: str) -> PipelineModel:
    """Return a chain of three sleepers, one whose last goes back twice to the second, or a fork of two that are
    merged: the second sleeps twice as long."""
    outputs = {"chain": ((1,), (2,), ()), "cycle": ((1,), (2,), (1,)), "fork": ((1, 2), (3,), (3,), ())}[shape]
    stages = tuple(
        StageModel(id=number, name=f"s{number}", slug=f"s{number}", component="", outputs=to, config={"s": SERVICE_S})
        for number, to in enumerate(outputs)
    )
    if shape == "fork":
        stages = (
            replace(stages[0], config={"s": 0}),
            stages[1],
            replace(stages[2], config={"s": 2 * SERVICE_S}),
            replace(stages[3], config={"s": 0}, polling_policy=MERGE),
        )
    if shape == "cycle":
        stages = (
            stages[0],
            replace(stages[1], polling_policy=FIRST_SUBMITTED),
            replace(stages[2], config={"s": 2 * SERVICE_S, "again": 2}),
        )
    ends = (len(stages) - 1,)
    return PipelineModel(
        name="p", slug="p", inputs=(0,), outputs=ends, dataset_stage_id=0, loadgen=LoadGen(), stages=stages
    )


def loaded(
    model: PipelineModel, users: int, count: int, gap_s: float = 0.0, clock: VirtualClock | None = None
) -> tuple[float, float, Events]:
    """Return throughput and mean response time of a closed load, or of an open one with a constant gap."""
    events = Events()
    stages = {spec.id: Sleeper(spec, model) for spec in model.stages}
    flow = Flow(model, stages, events, timeout_s=30, clock=clock)
    flow.start()
    time_s = time.monotonic if clock is None else lambda: clock.now_ns() / 1e9
    began_s = time_s()

    def send(number: int) -> float:
        due_s = began_s + number * gap_s if gap_s else time_s()
        if clock is not None:
            clock.wait_until(int(1e9 * due_s))
        time.sleep(max(0.0, due_s - time_s()))
        flow.call(Query(split="t", batch=0, query_submitted_timestamp=0.0, query_id=number), number)
        return time_s() - due_s

    with ThreadPoolExecutor(users) as pool:
        times = list(pool.map(send, range(count)))
    took_s = time_s() - began_s
    flow.stop()
    return count / took_s, sum(times) / count, events


@pytest.mark.sweep
@pytest.mark.serial
@pytest.mark.covers("A5", "A7")
@pytest.mark.parametrize("users", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("shape", "slowest_s", "path_s"), [("chain", SERVICE_S, 3 * SERVICE_S), ("fork", 0.04, 0.04)]
)
def test_a_closed_load_has_the_throughput_and_times_of_theory(
    shape: str, slowest_s: float, path_s: float, users: int
) -> None:
    """Throughput is the smaller of users / path and 1 / slowest stage; Little's law gives the time."""
    rate, response_s, events = loaded(slept(shape), users, 150)
    expected = min(users / path_s, 1 / slowest_s)
    assert rate == pytest.approx(expected, rel=0.08)
    assert response_s == pytest.approx(users / rate, rel=0.08)
    runs = {stage: ns / 1e9 for (stage, what), ns in events.spent.items() if what == EventKind.RUN}
    busiest = max(runs.values()) * rate / 150
    assert busiest == pytest.approx(expected * slowest_s, rel=0.08)


@pytest.mark.sweep
@pytest.mark.serial
@pytest.mark.covers("A5", "A7")
@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
def test_an_open_load_at_constant_gaps_waits_nowhere(load: float) -> None:
    gap_s = SERVICE_S / load
    rate, response_s, events = loaded(slept("chain"), 64, 150, gap_s)
    assert rate == pytest.approx(1 / gap_s, rel=0.08)
    assert response_s == pytest.approx(3 * SERVICE_S, rel=0.08)
    waits_s = sum(ns for (_, what), ns in events.spent.items() if what == EventKind.WAIT) / 1e9 / 150
    assert waits_s < 0.1 * SERVICE_S


@pytest.mark.sweep
@pytest.mark.serial
@pytest.mark.covers("A5", "A7")
@pytest.mark.parametrize(
    ("shape", "stage", "faster", "users", "slowest_s", "path_s"),
    [
        ("chain", 1, 0.5, 1, 0.02, 0.05),
        ("chain", 1, 0.5, 4, 0.02, 0.05),  # the others are as slow as it was
        ("fork", 1, 0.5, 1, 0.04, 0.04),  # the shorter branch
        ("fork", 2, 0.3, 1, 0.028, 0.028),
        ("fork", 2, 0.3, 3, 0.028, 0.028),
        ("fork", 2, 0.9, 3, 0.02, 0.02),  # now the other branch is the longer one
        ("cycle", 2, 0.75, 1, 0.06, 0.02 + 3 * (0.02 + 0.01)),
    ],
)
def test_a_stage_that_is_faster_by_the_clock_gives_what_theory_says_of_a_faster_stage(
    shape: str, stage: int, faster: float, users: int, slowest_s: float, path_s: float
) -> None:
    clock = VirtualClock({stage}, faster)
    rate, response_s, events = loaded(slept(shape), users, 60, clock=clock)
    assert response_s == pytest.approx(users / rate, rel=0.12)
    assert rate == pytest.approx(min(users / path_s, 1 / slowest_s), rel=0.12)
    runs_s = 60 * {"chain": 0.02, "fork": 0.02 * stage, "cycle": 3 * 0.04}[shape]
    assert events.spent[stage, EventKind.RUN] / 1e9 == pytest.approx(runs_s * (1 - faster), rel=0.1)
    assert (clock.pauses["late_pause_ratio"] == 0) == (users == 1 and shape != "fork")


@pytest.mark.sweep
@pytest.mark.serial
@pytest.mark.covers("A5", "A7")
@pytest.mark.parametrize("faster", [0.2, 0.6])
def test_queries_arrive_on_time_by_the_clock_while_a_stage_is_faster(faster: float) -> None:
    gap_s = SERVICE_S / 0.7
    rate, response_s, events = loaded(slept("chain"), 64, 100, gap_s, VirtualClock({1}, faster))
    assert rate == pytest.approx(1 / gap_s, rel=0.12)
    assert response_s == pytest.approx((3 - faster) * SERVICE_S, rel=0.12)
    assert sum(ns for (_, what), ns in events.spent.items() if what == EventKind.WAIT) / 1e11 < 0.1 * SERVICE_S


@pytest.mark.sweep
@pytest.mark.serial
@pytest.mark.covers("A5", "A7")
@pytest.mark.parametrize(("shape", "stage", "threads"), [("chain", 1, 1), ("chain", 1, 2), ("fork", 2, 1)])
@pytest.mark.parametrize("depth", [None, 1])
def test_a_stage_that_is_faster_by_the_clock_gives_what_a_shorter_one_gives(
    shape: str, stage: int, threads: int, depth: int | None
) -> None:
    """Times are drawn, queues may be full, a stage has several threads: no formula, but the same draws."""
    draw, model = random.Random(3), slept(shape)

    def made(factor: float) -> PipelineModel:
        stages = []
        for spec in model.stages:
            of_it = spec.id == stage
            config = {
                "s": 2.5 * spec.config["s"] * (factor if of_it else 1) * threads**of_it,
                "spread": spread[spec.id],
            }
            more = {"max_in_flight": threads} if of_it else {}
            stages.append(replace(spec, config=config, max_input_queue_depth=depth, **more))
        return replace(model, stages=tuple(stages))

    spread = {spec.id: {number: draw.expovariate(1) for number in range(60)} for spec in model.stages}
    shorter = loaded(made(0.5), 4, 60)
    faster = loaded(made(1), 4, 60, clock=VirtualClock({stage}, 0.5))
    for theirs, ours in zip(shorter[:2], faster[:2], strict=True):
        assert ours == pytest.approx(theirs, rel=0.05)
