"""Critical path of requests: hand-made cases, and a literal transcription of the definition on random ones."""

from collections.abc import Sequence

import numpy as np
import pytest

from seamark.analysis.metrics import stages
from seamark.analysis.metrics.stages import critical_ns

Event = tuple[int, int, int]
"""Request, beginning, end."""


def path(events: Sequence[Event], due: Sequence[int], last: Sequence[int]) -> list[int]:
    request, begin, end = (np.array(column, dtype=np.int64) for column in zip(*events, strict=True))
    return critical_ns(request, begin, end, np.array(due, dtype=np.int64), np.array(last, dtype=np.int64)).tolist()


def literal(events: Sequence[Event], due: Sequence[int], last: Sequence[int]) -> list[int]:
    """Walk back from the end of each request: the event that ended last, of several the one that began last."""
    times = [0] * len(events)
    for request in range(len(due)):
        at = last[request]
        own = {number: event for number, event in enumerate(events) if event[0] == request and event[2] > event[1]}
        while at > due[request] and (before := [n for n in own if own[n][2] <= at and own[n][2] > due[request]]):
            number = max(before, key=lambda n: (own[n][2], own[n][1]))
            _, begin, end = own.pop(number)
            times[number] = end - max(begin, due[request])
            at = begin
    return times


def test_stages_in_a_row_are_all_on_the_path_and_gaps_are_in_none() -> None:
    assert path([(0, 10, 20), (0, 25, 40)], [5], [45]) == [10, 15]


def test_of_parallel_stages_only_the_one_that_ended_last_is_on_the_path() -> None:
    fork = [(0, 0, 10), (0, 10, 30), (0, 10, 50), (0, 50, 60)]
    assert path(fork, [0], [60]) == [10, 0, 40, 10]


def test_what_ends_after_the_reply_or_takes_no_time_is_not_on_the_path() -> None:
    assert path([(0, 0, 70), (0, 20, 20), (0, 0, 50)], [0], [60]) == [0, 0, 50]


def test_what_began_before_the_request_was_due_counts_from_then() -> None:
    assert path([(0, 0, 30), (0, 0, 5)], [10], [30]) == [20, 0]


def test_requests_do_not_share_their_events() -> None:
    assert path([(1, 0, 5), (0, 0, 9), (1, 5, 9)], [0, 0], [9, 9]) == [5, 9, 4]
    assert path([(0, 0, 9)], [0, 0], [9, 9]) == [9]


@pytest.mark.parametrize("few", [0, 3, 1000])
def test_it_is_the_literal_walk_for_random_requests(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "FEW", few)
    rng = np.random.default_rng(few)
    for _ in range(60):
        count = int(rng.integers(1, 12))
        due = rng.integers(0, 20, count)
        last = due + rng.integers(0, 60, count)
        size = int(rng.integers(1, 120))
        begin = rng.integers(0, 80, size)
        events = list(
            zip(
                rng.integers(0, count, size).tolist(),
                begin.tolist(),
                (begin + rng.integers(0, 15, size)).tolist(),
                strict=True,
            )
        )
        due_ns, last_ns = due.tolist(), last.tolist()
        # of events with equal times either may be the one that is taken: their sum is the same
        found, wanted = path(events, due_ns, last_ns), literal(events, due_ns, last_ns)
        by_event = [dict.fromkeys(events, 0) for _ in range(2)]
        for place, times in enumerate((found, wanted)):
            for event, time_ns in zip(events, times, strict=True):
                by_event[place][event] += time_ns
        assert by_event[0] == by_event[1]
