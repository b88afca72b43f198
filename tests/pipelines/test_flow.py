"""The flow of queries through graphs: what goes where, in which order, and when a query has ended."""

import errno
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from seamark.load.driver import TaskFailure
from seamark.model.sample import EventKind
from seamark_pipelines.flow.flow import Flow, setup_failure
from seamark_pipelines.flow.stage import Stage
from seamark_pipelines.model.graph import FIRST_SUBMITTED, MERGE, LoadGen, PipelineModel, StageModel
from seamark_pipelines.model.query import Query, Ticket
from seamark_pipelines.stages.scripted import BinaryRouter, Scripted

Run = Callable[[Stage, Query], Mapping[int, Query] | None]


class Made(Stage):
    """A stage whose `run` is a function of the test; without one it hands on."""

    work: Run | None = None

    def run(self, query: Query) -> dict[int, Query]:
        outputs = None if self.work is None else self.work(self, query)
        return super().run(query) if outputs is None else dict(outputs)


class Tracks:
    """Keeps events as tuples: query, stage, kind, begin, end, visit."""

    def __init__(self) -> None:
        self.events: list[tuple[int, int, EventKind, int, int, int]] = []

    def track(self) -> "Tracks":
        return self

    def add(self, query: int, stage: int, what: EventKind, begin_ns: int, end_ns: int, visit: int = 0) -> None:
        self.events.append((query, stage, what, begin_ns, end_ns, visit))


def model_of(
    *stages: Mapping[str, Any], inputs: tuple[int, ...] = (0,), outputs: tuple[int, ...], **more: Any
) -> Any:
    specs = tuple(
        StageModel(
            id=number,
            name=f"s{number}",
            slug=f"s{number}",
            component="",
            **{key: value for key, value in stage.items() if key not in ("work", "of")},
        )
        for number, stage in enumerate(stages)
    )
    loadgen = LoadGen(max_queries=more.pop("max_queries", 1000))
    return PipelineModel(
        name="p", slug="p", inputs=inputs, outputs=outputs, dataset_stage_id=0, loadgen=loadgen, stages=specs, **more
    )


def flow_of(
    *stages: Mapping[str, Any], timeout_s: float = 5.0, tracks: Tracks | None = None, clock: Any = None, **more: Any
) -> Flow:
    model = model_of(*stages, **more)
    made: dict[int, Stage] = {}
    for spec, stage in zip(model.stages, stages, strict=True):
        made[spec.id] = stage.get("of", Made)(spec, model)
        if "work" in stage:
            made[spec.id].work = stage["work"]  # type: ignore[attr-defined]
    flow = Flow(model, made, tracks, timeout_s=timeout_s, clock=clock)
    flow.start()
    return flow


def sent(
    flow: Flow, count: int, at_once: int = 8, data: Callable[[int], Any] = lambda number: number
) -> list[Ticket]:
    """Send queries from some users and return their tickets by number."""

    def send(number: int) -> Ticket:
        query = Query(
            split="train", batch=0, query_submitted_timestamp=time.time(), query_id=number, data=data(number)
        )
        return flow.call(query, number)

    with ThreadPoolExecutor(at_once) as users:
        return list(users.map(send, range(count)))


def doubled(stage: Stage, query: Query) -> None:
    time.sleep(random.random() / 500)
    query.data = 2 * query.data


def squared(stage: Stage, query: Query) -> None:
    time.sleep(random.random() / 500)
    query.data = query.data**2


@pytest.mark.covers("A5")
def test_branches_merge_to_the_right_pairs_in_whatever_order_they_come() -> None:
    flow = flow_of(
        {"outputs": (1, 2)},
        {"outputs": (3,), "work": squared, "max_in_flight": 4},
        {"outputs": (3,), "work": doubled, "max_in_flight": 4},
        {"polling_policy": MERGE},
        outputs=(3,),
    )
    tickets = sent(flow, 200)
    flow.stop()
    assert [ticket.query.data for ticket in tickets] == [{1: number**2, 2: 2 * number} for number in range(200)]


@pytest.mark.covers("A5", "A9")
def test_a_thousand_queries_over_every_policy_and_a_cycle_are_each_there_once() -> None:
    visits: Counter[tuple[int, int]] = Counter()

    def noted(stage: Stage, query: Query) -> None:
        visits[query.query_id, stage.id] += 1

    def again(stage: Stage, query: Query) -> Mapping[int, Query]:
        noted(stage, query)
        return {1: query} if visits[query.query_id, stage.id] <= query.query_id % 3 else {5: query}

    flow = flow_of(
        {"outputs": (1,), "work": noted},
        {"outputs": (2, 3), "work": noted, "polling_policy": FIRST_SUBMITTED},
        {"outputs": (4,), "work": noted, "max_in_flight": 3},
        {"outputs": (4,), "work": noted},
        {"outputs": (1, 5), "work": again, "polling_policy": MERGE},
        {"work": noted},
        outputs=(5,),
    )
    tickets = sent(flow, 1000, at_once=10)
    flow.stop()
    assert not any(thread.is_alive() for thread in flow.threads)
    assert [ticket.error for ticket in tickets] == [None] * 1000
    assert [ticket.answers for ticket in tickets] == [1] * 1000
    assert len({ticket.query.query_id for ticket in tickets}) == 1000
    for number in range(1000):
        times = 1 + number % 3
        assert [visits[number, stage] for stage in range(6)] == [1, times, times, times, times, 1]


@pytest.mark.covers("A5")
def test_a_merge_goes_on_without_a_copy_that_can_no_longer_come() -> None:
    flow = flow_of(
        {"outputs": (1, 2)},
        {"outputs": (3,)},
        {"outputs": (3,), "work": lambda stage, query: {} if query.query_id % 2 else None},
        {"polling_policy": MERGE},
        outputs=(3,),
    )
    tickets = sent(flow, 20)
    flow.stop()
    assert [set(ticket.query.data) for ticket in tickets] == [{1, 2}, {1}] * 10


@pytest.mark.covers("A5")
def test_what_a_branch_assigns_is_not_seen_by_another_and_contents_go_by_reference() -> None:
    payload, seen = bytearray(8), []

    def assigned(stage: Stage, query: Query) -> None:
        seen.append(query.data is payload)
        query.data, query.context = stage.id, {"by": stage.id}

    flow = flow_of(
        {"outputs": (1, 2)},
        {"outputs": (3,), "work": assigned},
        {"outputs": (3,), "work": assigned, "copy": True},
        {"polling_policy": MERGE},
        outputs=(3,),
    )
    [ticket] = sent(flow, 1, data=lambda number: payload)
    flow.stop()
    assert ticket.query.data == {1: 1, 2: 2}
    assert sorted(seen) == [False, True]


@pytest.mark.covers("A5")
def test_a_retry_budget_is_per_query_and_router_and_a_spent_one_answers_none() -> None:
    config = {"yes_stage_id": 3, "no_stage_id": 1, "end_stage_id": 3, "max_retries": 2, "retry_is_yes": False}
    answers = [["no", "no", "no"], ["no", "yes"], ["yes"], ["no", "no", "yes"]]
    flow = flow_of(
        {"outputs": (1,)},
        {"outputs": (2,), "of": Scripted, "config": {"answers": answers}, "polling_policy": FIRST_SUBMITTED},
        {"outputs": (3, 1), "of": BinaryRouter, "config": config},
        {},
        outputs=(3,),
        max_queries=40,
    )
    tickets = sent(flow, 40, at_once=10)
    flow.stop()
    assert [ticket.query.data for ticket in tickets] == [None, "yes", "yes", "yes"] * 10
    assert [ticket.visits[1] for ticket in tickets] == [3, 2, 1, 3] * 10
    assert [ticket.error for ticket in tickets] == [None] * 40


@pytest.mark.covers("A8")
def test_each_run_of_a_stage_is_an_event_with_its_wait_and_its_visit() -> None:
    tracks = Tracks()
    flow = flow_of(
        {"outputs": (1,)},
        {"outputs": (2,), "work": lambda stage, query: time.sleep(0.01)},
        {"disable_logs": True},
        outputs=(2,),
        tracks=tracks,
    )
    sent(flow, 4, at_once=4)
    flow.stop()
    kinds = Counter((stage, what) for _, stage, what, *_ in tracks.events)
    assert kinds == {(stage, what): 4 for stage in (0, 1) for what in (EventKind.WAIT, EventKind.RUN)}
    for _, stage, what, begin_ns, end_ns, visit in tracks.events:
        assert (end_ns >= begin_ns, visit) == (True, 0)
        if (stage, what) == (1, EventKind.RUN):
            assert end_ns - begin_ns >= 10_000_000
    waits = sorted(end - begin for _, stage, what, begin, end, _ in tracks.events if (stage, what) == (1, 0))
    assert waits[-1] > 20_000_000  # the last of four waits for three runs


def test_a_full_queue_blocks_the_stage_before_it_and_the_event_says_so() -> None:
    tracks = Tracks()
    flow = flow_of(
        {"outputs": (1,)},
        {"max_input_queue_depth": 1, "work": lambda stage, query: time.sleep(0.02)},
        outputs=(1,),
        tracks=tracks,
    )
    sent(flow, 5, at_once=5)
    flow.stop()
    blocked = [end - begin for _, stage, what, begin, end, _ in tracks.events if what == EventKind.BLOCKED]
    assert blocked
    assert max(blocked) > 10_000_000


def test_serialised_queries_are_in_the_graph_one_at_a_time() -> None:
    inside, most = Counter[str](), []

    def entered(stage: Stage, query: Query) -> None:
        inside["now"] += 1
        most.append(inside["now"])

    def left(stage: Stage, query: Query) -> None:
        time.sleep(0.002)
        inside["now"] -= 1

    for more, limit in ({"serialize_queries": True}, 1), ({"max_in_flight": 3}, 3):
        most.clear()
        flow = flow_of({"outputs": (1,), "work": entered}, {"work": left}, outputs=(1,), **more)
        sent(flow, 20, at_once=8)
        flow.stop()
        assert max(most) == limit


@pytest.mark.covers("A5")
def test_a_failed_query_names_stage_and_error_and_three_in_a_row_end_the_pipeline() -> None:
    def fails(stage: Stage, query: Query) -> None:
        if query.data:
            raise ValueError("no such thing")

    flow = flow_of({"outputs": (1,)}, {"work": fails}, outputs=(1,))
    tickets = sent(flow, 6, at_once=1, data=lambda number: number in (1, 2, 4))
    assert [ticket.error is None for ticket in tickets] == [True, False, False, True, False, True]
    assert tickets[1].error == "stage_failed: the stage 's1': ValueError: no such thing"
    with pytest.raises(TaskFailure, match=r"'s1': ValueError: no such thing \(3 times in a row\)") as failure:
        sent(flow, 3, at_once=1, data=lambda number: True)
    assert failure.value.category == "stage_failed"
    with pytest.raises(TaskFailure):
        sent(flow, 1)
    flow.stop()


def test_all_of_fewer_queries_that_fail_end_the_pipeline_too() -> None:
    flow = flow_of({"work": lambda stage, query: 1 / 0}, outputs=(0,), max_queries=1)  # type: ignore[dict-item]
    with pytest.raises(TaskFailure, match="ZeroDivisionError"):
        sent(flow, 1)
    flow.stop()


class OutOfMemoryError(RuntimeError):
    """As torch has one for GPUs."""

    __module__ = "torch"


class AcceleratorError(RuntimeError):
    """As torch has one for other errors of a GPU, with CUDA's code."""

    __module__ = "torch"
    error_code = 2


@pytest.mark.covers("A5", "B12")
@pytest.mark.parametrize(
    ("error", "category"),
    [
        (MemoryError(), "out_of_memory"),
        (OSError(errno.ENOMEM, "no memory"), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out_of_memory"),
        (OutOfMemoryError("CUDA out of memory"), "gpu_out_of_memory"),
        (AcceleratorError("CUDA error: out of memory"), "gpu_out_of_memory"),
        (RuntimeError("CUDA error: something else"), "stage_failed"),
    ],
)
def test_memory_that_runs_out_has_a_category_of_its_own(error: Exception, category: str) -> None:
    def fails(stage: Stage, query: Query) -> None:
        raise error

    flow = flow_of({"work": fails}, outputs=(0,), max_queries=1)
    with pytest.raises(TaskFailure) as failure:
        sent(flow, 1)
    flow.stop()
    assert failure.value.category == category
    assert str(error) in str(failure.value)
    expected = category.replace("stage_failed", "setup_failed")
    assert setup_failure("s", error).category == expected


def test_an_output_that_is_no_query_or_goes_nowhere_fails_the_query() -> None:
    for outputs, why in ({7: 1}, "return a dict of queries by the ids of outputs"), ({-1: 3}, "a int where a query"):
        flow = flow_of({"work": lambda stage, query, outputs=outputs: outputs}, outputs=(0,))
        [ticket] = sent(flow, 1)
        flow.stop()
        assert why in (ticket.error or "")


def test_a_query_ends_at_its_time_out_and_a_stage_that_never_returns_ends_the_pipeline() -> None:
    flow = flow_of({"work": lambda stage, query: time.sleep(60)}, outputs=(0,), timeout_s=0.2)

    def ask() -> None:
        for _ in range(4):  # on a busy machine the first may be told of the stage already
            [ticket] = sent(flow, 1)
            assert ticket.error == "timeout"

    with pytest.raises(TaskFailure, match=r"'s0' has not returned 0\.2 s after its query timed out") as failure:
        ask()
    assert failure.value.category == "timeout"
    flow.stop()
