"""Figures of stages: visits, times, use and shares of hand-made events; the same in one pass and in many."""

from typing import Any

import numpy as np
import pytest
from samples import a_load, a_trial, metrics_of, samples_of, write_samples

from seamark.analysis.metrics import stages
from seamark.load.workers.events import EventFile
from seamark.load.workers.segments import gather_events
from seamark.model.sample import UNTIMED, WITHOUT_EVENTS, EventKind, Failure

MS = 1_000_000
NAMES = ("fetch", "left", "right", "join")
FETCH, LEFT, RIGHT, JOIN = range(4)


def write_events(
    folder, events: list[tuple[int, int, EventKind, float, float]], threads: int = 1, names: tuple[str, ...] = NAMES
) -> None:
    """Write events of (query, stage, what, begin, end in ms), of one worker."""
    path = folder.events.with_suffix(".events")
    with EventFile(path, worker=0) as file:
        file.started(lambda: 0)()
        tracks = [file.track() for _ in range(threads)]
        for place, (query, stage, what, begin_ms, end_ms) in enumerate(events):
            tracks[place % threads].add(query, stage, what, round(begin_ms * MS), round(end_ms * MS))
        file.flush()
    gather_events([path], folder.events, names)


def forked(query: int, at_ms: float) -> list[tuple[int, int, EventKind, float, float]]:
    """A request of 10 ms that fetches, works on both sides at once, and joins them; a millisecond is in no stage."""
    return [
        (query, FETCH, EventKind.WAIT, at_ms, at_ms + 1),
        (query, FETCH, EventKind.RUN, at_ms + 1, at_ms + 3),
        (query, LEFT, EventKind.RUN, at_ms + 3, at_ms + 5),
        (query, RIGHT, EventKind.RUN, at_ms + 3, at_ms + 8),
        (query, RIGHT, EventKind.STEP, at_ms + 3, at_ms + 4),
        (query, RIGHT, EventKind.FIRST_UNIT, at_ms + 4, at_ms + 4),
        (query, JOIN, EventKind.RUN, at_ms + 8, at_ms + 9),
    ]


def measured(folder, count: int = 200, *, failure: Any = 0, warmup_s: float = 0.0) -> dict[str, Any]:
    due_s = np.arange(count) * 0.01
    write_samples(folder.samples, samples_of(due_s, None, due_s + 0.01, failure=failure))
    settings = {"warmup_s": warmup_s, "duration_s": count * 0.01 - warmup_s, "concurrency": 1}
    document: dict[str, Any] = metrics_of(a_trial(settings), a_load(), folder, scenario="s")
    return document


def test_each_stage_has_its_visits_times_use_and_shares(folder) -> None:
    write_events(folder, [event for query in range(200) for event in forked(query, 10.0 * query)])
    found = measured(folder)["stages"]
    assert (found["events"], found["requests"]) == (1400, 200)
    by_stage = found["by_stage"]
    assert list(by_stage) == list(NAMES)
    assert {name: each["visits"] for name, each in by_stage.items()} == dict.fromkeys(NAMES, 200)
    assert by_stage["right"]["run_ms"].pop("ranges") == {}
    assert by_stage["right"]["run_ms"] == pytest.approx({"p50": 5, "p95": 5, "p99": None, "mean": 5})
    assert by_stage["fetch"]["wait_ms"]["p50"] == pytest.approx(1)
    assert by_stage["right"]["wait_ms"] is None
    expected = {"fetch": (0.2, 0.3, 0.3), "left": (0.2, 0.2, 0), "right": (0.5, 0.5, 0.5), "join": (0.1, 0.1, 0.1)}
    for name, (busy, latency, critical) in expected.items():
        each = by_stage[name]
        assert [each["busy_ratio"], each["latency_ratio"], each["critical_ratio"]] == pytest.approx(
            [busy, latency, critical]
        )
    assert found["outside_ratio"] == pytest.approx(0.1)
    assert found["hidden_ratio"] is None
    assert by_stage["right"]["first_ms"]["p50"] == pytest.approx(4), "from the time at which it was due"
    assert (by_stage["left"]["first_ms"], by_stage["left"]["blocked_ms"]) == (None, None)


@pytest.mark.covers("A7")
def test_untimed_stages_have_their_share_of_the_critical_path_and_a_blocked_stage_its_time(folder) -> None:
    events = [event for query in range(200) for event in forked(query, 10.0 * query)]
    events += [(query, JOIN, EventKind.BLOCKED, 10.0 * query + 9, 10.0 * query + 9.5) for query in range(200)]
    write_events(folder, events, names=(f"fetch{UNTIMED}", f"left{UNTIMED}", "right", "join"))
    found = measured(folder)["stages"]
    assert found["hidden_ratio"] == pytest.approx(0.3), "what is left of the path is not hidden"
    assert found["by_stage"]["join"]["blocked_ms"]["p50"] == pytest.approx(0.5)


@pytest.mark.covers("A9")
def test_a_stage_without_events_is_named_and_has_no_figures(folder) -> None:
    events = [event for query in range(200) for event in forked(query, 10.0 * query) if event[1] != JOIN]
    write_events(folder, events, names=("fetch", "left", "right", f"join{WITHOUT_EVENTS}"))
    found = measured(folder)["stages"]
    assert (list(found["by_stage"]), found["without_events"]) == (["fetch", "left", "right"], ["join"])


def test_use_is_of_the_threads_that_run_a_stage(folder) -> None:
    events = [(query, FETCH, EventKind.RUN, 10.0 * query, 10.0 * query + 5) for query in range(200)]
    write_events(folder, events, threads=2)
    fetch = measured(folder)["stages"]["by_stage"]["fetch"]
    assert (fetch["threads"], fetch["busy_ratio"]) == (2, pytest.approx(0.25))


def test_only_good_requests_of_the_measured_window_count(folder) -> None:
    write_events(folder, [event for query in range(200) for event in forked(query, 10.0 * query)])
    failure = np.where(np.arange(200) % 4 == 1, int(Failure.SERVER_ERROR), 0)
    found = measured(folder, failure=failure, warmup_s=1.0)["stages"]
    assert (found["events"], found["requests"], found["by_stage"]["join"]["visits"]) == (1400, 75, 75)
    assert found["by_stage"]["right"]["busy_ratio"] == pytest.approx(0.5), "threads also work for requests that fail"


def test_a_request_without_events_is_not_counted_and_an_unknown_stage_has_its_number(folder) -> None:
    write_events(
        folder, [*forked(7, 70.0), (8, 9, EventKind.RUN, 81.0, 82.0), (4711, FETCH, EventKind.RUN, 0.0, 1.0)]
    )
    found = measured(folder)["stages"]
    assert found["requests"] == 2
    assert found["by_stage"]["stage 9"]["visits"] == 1
    assert found["by_stage"]["fetch"]["visits"] == 1


def test_examples_are_the_requests_nearest_to_the_quantiles_with_their_events(folder) -> None:
    write_events(folder, [event for query in range(2000) for event in forked(query, 10.0 * query)])
    due_s = np.arange(2000) * 0.01
    took_s = np.full(2000, 0.01)
    took_s[:30] = 0.019
    took_s[1234] = 0.0101
    write_samples(folder.samples, samples_of(due_s, None, due_s + took_s))
    trial = a_trial({"warmup_s": 0.0, "duration_s": 20.0, "concurrency": 1})
    examples = {
        each["quantile"]: each for each in metrics_of(trial, a_load(), folder, scenario="s")["stages"]["examples"]
    }
    assert examples["p99"]["query"] < 30
    assert examples["p99"]["response_ms"] == pytest.approx(19)
    assert examples["p50"]["response_ms"] == pytest.approx(10)
    assert (examples["p50"]["events"], len(examples["p50"]["bars"])) == (7, 7)
    assert examples["p50"]["bars"][0] == {"stage": "fetch", "what": "wait", "begin_ms": 0, "end_ms": 1}


def test_figures_are_the_same_in_one_pass_and_in_many(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    write_events(folder, [event for query in range(200) for event in forked(query, 10.0 * query)])
    whole = measured(folder)["stages"]
    monkeypatch.setattr(stages, "EVENTS_OF_A_PASS", 100)
    parts = measured(folder)["stages"]
    assert parts.pop("examples")[0]["response_ms"] == whole.pop("examples")[0]["response_ms"]
    assert parts == whole


def test_damaged_events_fail_the_trial_with_the_reason(folder) -> None:
    write_events(folder, forked(0, 0.0))
    folder.events.write_bytes(folder.events.read_bytes()[:-40])
    document = measured(folder)
    assert document["status"] == "failed"
    assert "events.parquet is damaged" in document["reason"]


def test_a_trial_without_events_has_no_stages(folder) -> None:
    assert measured(folder).get("stages") is None
