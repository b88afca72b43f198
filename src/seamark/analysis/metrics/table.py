"""The table of metrics: path in metrics.json -> unit, direction, meaning, and function.

The document, its JSON Schema, metrics.csv and the reference are derived from METRICS. A new metric is a row.
"""

from collections.abc import Callable, Mapping

from seamark.analysis.metrics.distribution import STATISTICS, TimeDistribution
from seamark.analysis.metrics.metric import Better, Metric, MetricInputs
from seamark.analysis.metrics.resources import ENERGY, RESOURCES
from seamark.model.sample import CONFLICTS, Failure

VERSION = 3
"""Increases when the meaning of a metric changes: metrics of an older version are derived again from their samples.

1: MSER-5 decided the start of the window; time-outs were in no percentile; objectives on TTFT counted from the
intended send. 2: the window begins at the end of the warm-up; time-outs are lower bounds; `ttft_s` counts from the
actual send; TPOT leaves out the tokens of the first chunk. 3: what was not seen makes ranges.
"""


BOUNDED = {
    "latency_ms": "response",
    "service_time_ms": "service",
    "ttft_ms": "ttft",
    "ttft_response_ms": "ttft_response",
    "ttfo_ms": "ttfo",
}
"""Groups of times of which unanswered requests have a lower bound alone: `censored` of them."""
TIMES = {**BOUNDED, "tpot_ms": "tpot", "inter_chunk_ms": "inter_chunk", "normalised_latency_ms": "normalised"}
"""All groups of times, and the names of their distributions in WindowCounts: what of them is known between two ends
alone is in `ranges` of the group."""


def _rate(count: float, inputs: MetricInputs) -> float | None:
    return count / inputs.window.length_s if inputs.window.length_s > 0 else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def saturated(inputs: MetricInputs) -> bool:
    """Whether more was offered than served: waiting requests grew over the window by more than 5 % of those offered
    and by more than chance would explain (the number in a queue of mean L varies by about sqrt(2 L))."""
    counts, has_rate = inputs.counts, inputs.window.offered_until_ns is not None
    if not (inputs.open_loop or has_rate) or not counts.due:
        return False
    growth = counts.due - (counts.served_as_offered if has_rate else counts.served)
    waiting = max(0.0, counts.waiting_at_start + growth / 2)
    return bool(growth > max(0.05 * counts.due, 3 * (2 * waiting) ** 0.5, 1))


def offered_rps(inputs: MetricInputs) -> float | None:
    """Requests due a second: in the window, or between the first and the last arrival where it goes on after that."""
    window, due = inputs.window, inputs.counts.due
    if window.offered_until_ns is None:
        return _rate(due, inputs)
    return (due - 1) * 1e9 / (window.offered_until_ns - window.start_ns) if due > 1 else None


def goodput_ranges(inputs: MetricInputs) -> dict[str, tuple[float, float | None]]:
    """Return the ends of the goodput where requests were cut off, or never sent, before they missed an objective."""
    counts = inputs.counts
    if not inputs.has_objectives or not counts.perhaps_good or inputs.window.length_s <= 0:
        return {}
    most = counts.good + counts.perhaps_good
    due, length_s = counts.due + inputs.lost_in_window, inputs.window.length_s
    return {"per_s": (counts.good / length_s, most / length_s), "ratio": (counts.good / due, most / due)}


def error_rate(inputs: MetricInputs) -> float | None:
    """Failed requests of those sent in the window; those of it that a lost worker never sent count as both."""
    counts, lost = inputs.counts, inputs.lost_in_window
    return _ratio(counts.failed + lost, counts.sent + lost)


def error_ranges(*, failed: int, due: int, unseen: int) -> dict[str, tuple[float, float | None]]:
    """Return the ends of the error rate where `unseen` of the requests due were never sent or had no answer yet when
    the load ended: all of them good, all failed. Lost ones count as failed."""
    return {"rate": (failed / due, (failed + unseen) / due)} if unseen else {}


def _mb_per_s(inputs: MetricInputs, unit_bytes: float) -> float | None:
    total = inputs.counts.bytes_sent + inputs.counts.bytes_received
    return _rate(total / unit_bytes, inputs) if total else None


def _times(prefix: str, meaning: str) -> tuple[Metric, ...]:
    def times_of(inputs: MetricInputs) -> TimeDistribution:
        distribution: TimeDistribution = getattr(inputs.counts, TIMES[prefix])
        return distribution

    def figure(name: str) -> Callable[[MetricInputs], float | None]:
        return lambda inputs: times_of(inputs).statistic_ms(name)

    statistics = tuple(
        Metric(path=f"{prefix}.{name}", unit="ms", better="lower", meaning=f"{name} of {meaning}", value=figure(name))
        for name in STATISTICS
    )
    if prefix not in BOUNDED:
        return statistics
    censored = Metric(
        path=f"{prefix}.censored",
        unit="requests",
        better="lower",
        meaning="requests that timed out or were cut off at the end of the load: they make ranges of percentiles, "
        "and are not in the mean",
        value=lambda inputs: distribution.bounds.count if (distribution := times_of(inputs)).count else None,
    )
    return (*statistics, censored)


def _lag(statistic: str) -> Callable[[MetricInputs], float | None]:
    return lambda e: e.counts.lag.statistic_ms(statistic) if e.open_loop else None


SELDOM = frozenset(kind.name.lower() for kind in CONFLICTS)
"""Categories of failures that a document names only where they occurred."""
LAGS = {
    "p50": "median schedule lag, actual send - intended send",
    "p99": "p99 of the schedule lag",
    "max": "largest schedule lag",
}
COUNTS: Mapping[str, tuple[Better, str, Callable[[MetricInputs], int | None]]] = {
    "requests": ("neither", "requests that were due inside the window", lambda e: e.counts.due),
    "sent": ("neither", "requests of the window that were sent", lambda e: e.counts.sent),
    "ok": ("neither", "requests of the window with a good reply", lambda e: e.counts.ok),
    "failed": ("neither", "requests of the window that were sent and failed", lambda e: e.counts.failed),
    "timeouts": ("neither", "requests of the window that failed by time-out", lambda e: e.counts.timeouts),
    "unfinished": (
        "neither",
        "requests of the window still under way, or still waiting to be sent, when the load ended",
        lambda e: e.counts.cancelled + e.counts.unsent,
    ),
    "warmup": (
        "neither",
        "requests of the warm-up, which are in no figure but the whole-run throughput",
        lambda e: e.counts.warmup,
    ),
    "lost": ("neither", "requests of the whole schedule that workers which died never sent", lambda e: e.lost),
    "lost_in_window": ("neither", "those of them that were due inside the window", lambda e: e.lost_in_window),
    "retried": (
        "neither",
        "requests of the window that were tried again, whatever came of it",
        lambda e: e.counts.retried,
    ),
    "retries": ("lower", "tries of these after the first, together", lambda e: e.counts.retries),
}
"""Name -> direction, meaning, function."""
METRICS: tuple[Metric, ...] = (
    Metric(
        path="throughput.value",
        unit="units/s",
        better="higher",
        meaning="units of good replies that arrived inside the window, a second; of a stream by its chunks",
        value=lambda e: _rate(e.counts.arrived_units, e),
    ),
    Metric(
        path="throughput.whole_run_value",
        unit="units/s",
        better="higher",
        meaning="units of all good replies, warm-up and drain too, over the time to the last reply",
        value=lambda e: _ratio(e.counts.whole_units * 1e9, e.counts.whole_end_ns),
    ),
    Metric(
        path="requests_per_s",
        unit="requests/s",
        better="higher",
        meaning="good replies that arrived inside the window, a second",
        value=lambda e: _rate(e.counts.replies, e),
    ),
    Metric(
        path="sessions.per_s",
        unit="sessions/s",
        better="higher",
        meaning="sessions whose last turn got its good reply inside the window, a second; with turns only",
        value=lambda e: _rate(e.counts.sessions_whole, e) if e.counts.turns > 1 else None,
    ),
    Metric(
        path="sessions.begun_per_s",
        unit="sessions/s",
        better="neither",
        meaning="sessions whose first turn was due inside the window, a second",
        value=lambda e: _rate(e.counts.sessions_begun, e) if e.counts.turns > 1 else None,
    ),
    Metric(
        path="sessions.broken",
        unit="sessions",
        better="lower",
        meaning="sessions that a failed turn of the window ended; the turns after it are not due",
        value=lambda e: e.counts.sessions_broken if e.counts.turns > 1 else None,
    ),
    Metric(
        path="bandwidth.mb_per_s",
        unit="MB/s",
        better="higher",
        meaning="bytes of good replies and of their requests a second; 1 MB is 10^6 bytes",
        value=lambda e: _mb_per_s(e, 1e6),
    ),
    Metric(
        path="bandwidth.mib_per_s",
        unit="MiB/s",
        better="higher",
        meaning="the same; 1 MiB is 2^20 bytes",
        value=lambda e: _mb_per_s(e, 2**20),
    ),
    *_times("latency_ms", "response time: from the intended send to the end of the reply"),
    *_times("service_time_ms", "service time: from the actual send to the end of the reply"),
    *_times("ttft_ms", "time to first token: from the actual send to the first content"),
    *_times("ttft_response_ms", "time to first token: from the intended send to the first content"),
    *_times("ttfo_ms", "time to first output: from the actual send to the first content that is no reasoning"),
    *_times(
        "tpot_ms",
        "time per output token: (last - first content) / (tokens - those of the first chunk, 1 where not known); "
        "none where that leaves less than 1",
    ),
    *_times("inter_chunk_ms", "time between two chunks with content of one reply"),
    *_times("normalised_latency_ms", "service time of a streamed reply over its tokens"),
    *(
        Metric(
            path=f"schedule_lag_ms.{name}",
            unit="ms",
            better="lower",
            meaning=f"{lag}; open loop only",
            value=_lag(name),
        )
        for name, lag in LAGS.items()
    ),
    *(
        Metric(path=f"counts.{name}", unit="requests", better=better, meaning=meaning, value=value)
        for name, (better, meaning, value) in COUNTS.items()
    ),
    Metric(
        path="errors.rate",
        unit="ratio",
        better="lower",
        meaning="failed requests of those sent in the window; those of it lost with a worker count as both",
        value=error_rate,
    ),
    Metric(
        path="errors.timeouts",
        unit="requests",
        better="lower",
        meaning="requests that timed out inside the window",
        value=lambda e: e.counts.timeouts,
    ),
    *(
        Metric(
            path=f"errors.by_category.{kind.name.lower()}",
            unit="requests",
            better="lower",
            meaning=f"requests of the window that failed as {kind.name.lower()}",
            value=lambda e, kind=kind: e.counts.failures.get(kind, None if kind in CONFLICTS else 0),  # type: ignore[misc]
        )
        for kind in Failure
        if kind not in (Failure.NONE, Failure.CANCELLED)
    ),
    *RESOURCES,
    Metric(
        path="offered_rps",
        unit="requests/s",
        better="neither",
        meaning="requests that were due inside the window, a second",
        value=offered_rps,
    ),
    Metric(
        path="achieved_rps",
        unit="requests/s",
        better="higher",
        meaning="requests answered inside the window, well or badly but in time, a second",
        value=lambda e: _rate(e.counts.served, e),
    ),
    Metric(
        path="saturated",
        unit="yes or no",
        better="neither",
        meaning="more was offered than was served, so waiting requests piled up; open loop only",
        value=saturated,
    ),
    Metric(
        path="concurrency_mean",
        unit="requests",
        better="neither",
        meaning="requests in flight, from actual send to end of reply, time-weighted over the window",
        value=lambda e: _rate(e.counts.in_flight_ns / 1e9, e),
    ),
    Metric(
        path="goodput.per_s",
        unit="requests/s",
        better="higher",
        meaning="requests due inside the window that meet every objective on a single request, a second",
        value=lambda e: _rate(e.counts.good, e) if e.has_objectives else None,
    ),
    Metric(
        path="goodput.ratio",
        unit="ratio",
        better="higher",
        meaning="requests that meet every objective, as a share of all due: failed and unfinished ones do not meet",
        value=lambda e: _ratio(e.counts.good, e.counts.due + e.lost_in_window) if e.has_objectives else None,
    ),
    *ENERGY,
)
