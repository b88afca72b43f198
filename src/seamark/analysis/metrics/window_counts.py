"""Counts the samples of one measured window, batch by batch, in constant memory. Derives nothing."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from seamark.analysis.metrics.distribution import TimeDistribution
from seamark.analysis.metrics.samples import Batch, Mask, Samples, Times
from seamark.analysis.metrics.stream import FirstChunk, Stream
from seamark.analysis.metrics.waves import Waves
from seamark.analysis.metrics.window import Window
from seamark.model.objectives import REQUEST_OBJECTIVES
from seamark.model.sample import MISSING_NS, Failure
from seamark.model.scenario import Slo

FEW_UNCOUNTED = 0.01
"""With more good replies than this ratio without a unit count, no metric uses units."""

UNSERVED = (Failure.TIMEOUT, Failure.CANCELLED)
"""Ended by the client without a reply: only a lower bound of the server's time is known."""
ENDS = {
    "latency_s": ("due", "last"),
    "service_time_s": ("sent", "last"),
    "ttft_s": ("sent", "first"),
    "ttft_response_s": ("due", "first"),
    "ttfo_s": ("sent", "answer"),
}
"""Objective on a single request -> the beginning and the end of its time; that per token is a quotient."""
KNOWN = frozenset(int(kind) for kind in Failure)


@dataclass(kw_only=True)
class KindCounts:
    """What was counted of one kind of request: those that were due in the window, as in WindowCounts."""

    due: int = 0
    ok: int = 0
    failed: int = 0
    units: int = 0
    response: TimeDistribution = field(default_factory=TimeDistribution)
    service: TimeDistribution = field(default_factory=TimeDistribution)
    ttft: TimeDistribution = field(default_factory=TimeDistribution)
    tpot: TimeDistribution = field(default_factory=TimeDistribution)


@dataclass(kw_only=True)
class WindowCounts:
    """What was counted. Requests belong to the window in which they were due; replies, units and bytes to that in
    which they arrived.

    Of `whole_good` good replies, warm-up and all, the service did not say of `uncounted` how many units they have:
    `units` then counts their chunks. `counted_units` are those of all others.

    `good` requests meet every objective on a single one; `perhaps_good` were cut off or never sent before they
    missed any.

    `retried` were tried again, `retries` times together; None where the load tries once.

    `waves` is how the starts of a closed loop recur; None of other loads, and where that is not known.

    For Little's law, of all requests that were sent, good or not: `ended` inside the window, and `stays` that were
    sent inside it, which took `stay_ns` together.
    """

    window: Window
    rows: int = 0
    warmup: int = 0
    due: int = 0
    unsent: int = 0
    sent: int = 0
    ok: int = 0
    cancelled: int = 0
    failures: dict[Failure, int] = field(default_factory=dict)
    retried: int | None = None
    retries: int | None = None
    served: int = 0
    served_as_offered: int = 0
    waiting_at_start: int = 0
    replies: int = 0
    units: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    whole_units: int = 0
    whole_end_ns: int = 0
    in_flight_ns: int = 0
    ended: int = 0
    stays: int = 0
    stay_ns: int = 0
    good: int = 0
    perhaps_good: int = 0
    disordered: int = 0
    response: TimeDistribution = field(default_factory=TimeDistribution)
    service: TimeDistribution = field(default_factory=TimeDistribution)
    ttft: TimeDistribution = field(default_factory=TimeDistribution)
    ttft_response: TimeDistribution = field(default_factory=TimeDistribution)
    ttfo: TimeDistribution = field(default_factory=TimeDistribution)
    tpot: TimeDistribution = field(default_factory=TimeDistribution)
    normalised: TimeDistribution = field(default_factory=TimeDistribution)
    inter_chunk: TimeDistribution = field(default_factory=TimeDistribution)
    whole_good: int = 0
    uncounted: int = 0
    counted_units: int = 0
    streamed_units: float | None = None
    first_chunk: FirstChunk | None = None
    reads: int = 0
    chunks: int = 0
    lag: TimeDistribution = field(default_factory=TimeDistribution)
    by_kind: dict[int, KindCounts] = field(default_factory=dict)
    waves: Waves | None = None
    turns: int = 1
    sessions_begun: int = 0
    sessions_whole: int = 0
    sessions_broken: int = 0

    @property
    def failed(self) -> int:
        return sum(self.failures.values())

    @property
    def arrived_units(self) -> float:
        """Units of good replies that arrived in the window: of streams by their chunks, else by the replies' ends."""
        return self.units if self.streamed_units is None else self.streamed_units

    @property
    def counts_units(self) -> bool:
        """Whether `units` are the driver's count, except for a few replies at most; else they are chunks."""
        return self.uncounted <= FEW_UNCOUNTED * self.whole_good

    @property
    def timeouts(self) -> int:
        return self.failures.get(Failure.TIMEOUT, 0)


def count_window(
    samples: Samples,
    window: Window,
    *,
    slos: tuple[Slo, ...] = (),
    kinds: int = 1,
    stream: Stream | None = None,
    turns: int = 1,
    retries: bool = False,
) -> WindowCounts:
    """Count all samples; SLOs on single requests decide which replies are good enough.

    Several kinds of request are also counted separately; `stream` has the chunks of streams; sessions of more than
    one turn are counted too, and `retries` where a load has them.
    """
    counted = WindowCounts(window=window, turns=turns)
    for batch in samples.batches():
        unanswered = Unanswered(batch, samples.latest_ns)
        due = window.holds(batch.due)
        _whole(counted, batch)
        _arrivals(counted, batch)
        _requests(counted, batch, due, slos, unanswered)
        if kinds > 1:
            _kinds(counted, batch, due, unanswered)
        if turns > 1:
            _sessions(counted, batch, due)
        if retries:
            again = batch.retries[due]
            counted.retried = (counted.retried or 0) + int((again > 0).sum())
            counted.retries = (counted.retries or 0) + int(again.sum())
    _without_streams(counted)
    if not counted.counts_units:
        _without_units(counted)
    if stream is not None:
        counted.streamed_units = None if window.own else stream.units
        counted.first_chunk = stream.first_chunk
        counted.reads, counted.chunks = stream.reads, stream.chunks
        counted.inter_chunk.add(stream.gaps_ns)
    return counted


class Unanswered:
    """The requests of a batch that timed out, or were cut off or never sent when the load ended.

    `until` is the time up to which each had no reply: the end of the request, or of the load (its last reply).
    """

    def __init__(self, batch: Batch, latest_ns: int | None) -> None:
        self._batch = batch
        self.rows = np.isin(batch.failure, UNSERVED) | ((batch.failure == Failure.NONE) & ~batch.has_ended)
        self.until = np.where(batch.has_ended, batch.last, MISSING_NS if latest_ns is None else latest_ns)

    def since(self, times: Times, rows: Mask) -> Times:
        """Return how long those of `rows` had waited, counted from `times`."""
        chosen = self.rows & rows
        return np.asarray(np.maximum(self.until[chosen], times[chosen]) - times[chosen])

    def may_meet(self, slos: tuple[Slo, ...]) -> Mask:
        """Return which requests had waited no longer than every objective allows; one that timed out has missed."""
        batch = self._batch
        may: Mask = self.rows & (batch.failure != Failure.TIMEOUT)
        for slo in slos:
            if slo.op == "<=" and slo.metric in ENDS:
                begin, end = (getattr(batch, name) for name in ENDS[slo.metric])
                end = np.where(end == MISSING_NS, self.until, end)
                may &= (begin == MISSING_NS) | ((end - begin) / 1e9 <= slo.limit)
        return may


def _without_streams(counted: WindowCounts) -> None:
    """Requests that timed out have no bound on a time to first token if no reply has such a time."""
    several: list[tuple[WindowCounts | KindCounts, str]] = [(kind, "ttft") for kind in counted.by_kind.values()]
    several += [(counted, name) for name in ("ttft", "ttft_response", "ttfo")]
    for counts, name in several:
        if not getattr(counts, name).histogram.count:
            setattr(counts, name, TimeDistribution())


def _without_units(counted: WindowCounts) -> None:
    """Chunks are not tokens: no time is divided by them."""
    counted.normalised = TimeDistribution()
    several: list[WindowCounts | KindCounts] = [counted, *counted.by_kind.values()]
    for counts in several:
        counts.tpot = TimeDistribution()


def _whole(counted: WindowCounts, batch: Batch) -> None:
    counted.rows += len(batch.due)
    counted.warmup += int((batch.due < counted.window.start_ns).sum())
    good = batch.good
    counted.whole_units += int(batch.units[good].sum())
    counted.whole_good += int(good.sum())
    counted.uncounted += int((good & (batch.uncounted != 0)).sum())
    counted.counted_units += int(batch.units[good & (batch.uncounted == 0)].sum())
    if len(batch.last):
        counted.whole_end_ns = max(counted.whole_end_ns, int(batch.last.max()))
    sent, complete = batch.was_sent, batch.has_ended
    first = (batch.first != MISSING_NS) & good
    wrong = (sent & complete & (batch.last < batch.sent)) | (
        first & ((batch.first < batch.sent) | (batch.first > batch.last))
    )
    counted.disordered += int(wrong.sum())


def _arrivals(counted: WindowCounts, batch: Batch) -> None:
    start, end = counted.window.start_ns, counted.window.end_ns
    sent, complete = batch.was_sent, batch.has_ended
    inside = complete & (batch.last > start) & (batch.last <= end)
    if counted.window.own:
        inside &= batch.due >= start
    good = inside & batch.good
    counted.replies += int(good.sum())
    counted.units += int(batch.units[good].sum())
    counted.bytes_sent += int(batch.bytes_sent[good].sum())
    counted.bytes_received += int(batch.bytes_received[good].sum())
    unserved = np.isin(batch.failure, UNSERVED)
    counted.served += int((inside & ~unserved & sent).sum())
    if (until_ns := counted.window.offered_until_ns) is not None:
        counted.served_as_offered += int((inside & ~unserved & sent & (batch.last <= until_ns)).sum())
    finished_before = complete & ~unserved & (batch.last <= start)
    counted.waiting_at_start += int((batch.due < start).sum()) - int(finished_before.sum())
    until = np.minimum(np.where(complete, batch.last, end), end)
    counted.ended += int((inside & sent).sum())
    begun = complete & sent & (batch.sent >= start) & (batch.sent < end)
    counted.stays += int(begun.sum())
    counted.stay_ns += int((batch.last - batch.sent)[begun].sum())
    spent = np.where(sent, until - np.maximum(batch.sent, start), 0)
    counted.in_flight_ns += int(np.maximum(spent, 0).sum())


def _requests(counted: WindowCounts, batch: Batch, due: Mask, slos: tuple[Slo, ...], unanswered: Unanswered) -> None:
    sent, ok = batch.was_sent, due & batch.good
    counted.due += int(due.sum())
    counted.unsent += int((due & ~sent).sum())
    counted.sent += int((due & sent).sum())
    counted.ok += int(ok.sum())
    numbers, counts = np.unique(batch.failure[due & sent & ~batch.good], return_counts=True)
    for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        if number == Failure.CANCELLED or number == Failure.NONE:
            counted.cancelled += count
        else:
            kind = Failure(number) if number in KNOWN else Failure.DRIVER
            counted.failures[kind] = counted.failures.get(kind, 0) + count
    counted.lag.add((batch.sent - batch.due)[due & sent])
    begun, waits = _add_times(counted, batch, due, unanswered)
    # one that was never sent waits since it was due, and has no time since a send
    counted.ttft_response.add((batch.first - batch.due)[begun], unanswered.since(batch.due, waits | (due & ~sent)))
    answered = batch.answer != MISSING_NS
    known = due & sent & answered & (batch.good | unanswered.rows)
    counted.ttfo.add((batch.answer - batch.sent)[known], unanswered.since(batch.sent, due & sent & ~answered))
    streamed = begun & batch.good & (batch.uncounted == 0) & (batch.units > 0)
    counted.normalised.add(((batch.last - batch.sent)[streamed] / batch.units[streamed]).astype(np.int64))
    counted.good += int((ok & meets(batch, slos)).sum())
    counted.perhaps_good += int((due & unanswered.may_meet(slos)).sum())


def _add_times(
    counted: WindowCounts | KindCounts, batch: Batch, rows: Mask, unanswered: Unanswered
) -> tuple[Mask, Mask]:
    """Add the times of some requests that were due; return which of those sent have a time to first token, even if
    they timed out later, and which have only a lower bound of it. Other failures are in neither."""
    ok, sent, first = rows & batch.good, rows & batch.was_sent, batch.first != MISSING_NS
    begun, waits = sent & first & (batch.good | unanswered.rows), sent & ~first
    later = _later_units(batch)
    several = begun & batch.good & (later >= 1)
    counted.response.add((batch.last - batch.due)[ok], unanswered.since(batch.due, rows))
    counted.service.add((batch.last - batch.sent)[ok], unanswered.since(batch.sent, sent))
    counted.ttft.add((batch.first - batch.sent)[begun], unanswered.since(batch.sent, waits))
    counted.tpot.add(((batch.last - batch.first)[several] / later[several]).astype(np.int64))
    return begun, waits


def _later_units(batch: Batch) -> Times:
    """Return the units of each reply after its first chunk, which counts as 1 if its units are unknown; below 1 where
    time per unit is undefined."""
    later = batch.units - np.maximum(batch.first_units, 1)
    return np.where(batch.uncounted == 0, later, 0)


def _sessions(counted: WindowCounts, batch: Batch, due: Mask) -> None:
    """Count sessions: begun when the first turn is due, whole with a good reply to the last, else broken."""
    start, end, turn = counted.window.start_ns, counted.window.end_ns, batch.index % counted.turns
    inside = batch.has_ended & (batch.last > start) & (batch.last <= end)
    counted.sessions_begun += int((due & (turn == 0)).sum())
    counted.sessions_whole += int((inside & batch.good & (turn == counted.turns - 1)).sum())
    failed = due & batch.was_sent & ~batch.good & (batch.failure != Failure.CANCELLED)
    counted.sessions_broken += int(failed.sum())


def _kinds(counted: WindowCounts, batch: Batch, due: Mask, unanswered: Unanswered) -> None:
    for number in np.unique(batch.kind[due]).tolist():
        of_kind = counted.by_kind.setdefault(number, KindCounts())
        mine = due & (batch.kind == number)
        ok, failed = mine & batch.good, mine & batch.was_sent & ~batch.good & (batch.failure != Failure.CANCELLED)
        of_kind.due += int(mine.sum())
        of_kind.ok += int(ok.sum())
        of_kind.failed += int(failed.sum())
        of_kind.units += int(batch.units[ok].sum())
        _add_times(of_kind, batch, mine, unanswered)


def meets(batch: Batch, slos: tuple[Slo, ...]) -> Mask:
    """Which requests meet every objective on their own times; a missing time does not meet one."""
    met = np.ones(len(batch.due), dtype=np.bool_)
    for slo in slos:
        if slo.metric not in REQUEST_OBJECTIVES:
            continue
        took_s, known = _took_s(batch, slo.metric)
        met &= known & ((took_s <= slo.limit) if slo.op == "<=" else (took_s >= slo.limit))
    return met


def _took_s(batch: Batch, objective: str) -> tuple[NDArray[np.float64], Mask]:
    """Return an objective's metric for each request, in seconds, and where that time exists."""
    if objective == "tpot_s":
        later = _later_units(batch)
        known = (batch.first != MISSING_NS) & (later >= 1)
        return (batch.last - batch.first) / 1e9 / np.maximum(later, 1), known
    begin, end = (getattr(batch, name) for name in ENDS[objective])
    return (end - begin) / 1e9, end != MISSING_NS
