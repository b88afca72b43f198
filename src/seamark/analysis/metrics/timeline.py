"""The series of a load by seconds, as in series.csv."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamark.analysis.metrics.samples import Batch, Samples, Times
from seamark.model.load_profile import LoadProfile
from seamark.stats import histogram
from seamark.stats.quantiles import rank

SECOND_NS = 1_000_000_000
SERIES_ERROR = 0.01
CHUNK_SECONDS = 1000
Counts = NDArray[np.int32]
MOST_VIRTUAL_S = 1_000_000.0
"""Rows of a simulation, at most: twelve days."""


class Timeline:
    """`size` seconds from the start of load. Replies count at their arrival."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.replies, self.units, self.failures = (np.zeros(size) for _ in range(3))
        self._before = 0
        self._begun, self._ended, self._begun_rest_ns, self._ended_rest_ns = (np.zeros(size) for _ in range(4))

    def add(self, batch: Batch) -> None:
        """Count the samples of one batch."""
        good, complete = batch.good, batch.has_ended & batch.was_sent
        self._sum(self.replies, batch.last[good])
        self._sum(self.units, batch.last[good], batch.units[good])
        failed = (batch.failure != 0) & batch.was_sent
        self._sum(self.failures, np.where(complete, batch.last, batch.due)[failed])
        sent, last = batch.sent[batch.was_sent], batch.last[complete]
        self._before += int((sent < 0).sum()) - int((last < 0).sum())
        for times, counts, rests in (
            (sent, self._begun, self._begun_rest_ns),
            (last, self._ended, self._ended_rest_ns),
        ):
            self._sum(counts, times)
            self._sum(rests, times, SECOND_NS - times % SECOND_NS)

    def in_flight(self) -> NDArray[np.float64]:
        """Return the time-weighted mean number of requests in [sent, last) in each second."""
        change = self._begun - self._ended
        at_start = self._before + np.concatenate([[0.0], np.cumsum(change)[:-1]])
        return np.asarray(at_start + (self._begun_rest_ns - self._ended_rest_ns) / SECOND_NS)

    def _sum(self, into: NDArray[np.float64], times: Times, weights: Times | None = None) -> None:
        index = times // SECOND_NS
        index[times == self.size * SECOND_NS] = self.size - 1
        inside = (index >= 0) & (index < self.size)
        into += np.bincount(index[inside], weights=None if weights is None else weights[inside], minlength=self.size)


@dataclass(frozen=True, kw_only=True)
class Second:
    """One row of series.csv. Percentiles and histogram are of response time, within 1 %.

    `latency_histogram` has the replies of the second by their time, `0.0123:4 0.0126:1`: histograms of several
    seconds add up where the times are equal.
    """

    second: int
    requests: int
    units: int
    failures: int
    throughput: float
    latency_p50_s: float | None
    latency_p90_s: float | None
    latency_p99_s: float | None
    in_flight: float
    latency_histogram: str


def series_of(samples: Samples, profile: LoadProfile, *, simulated: bool = False) -> Iterator[Second]:
    """Yield the rows of series.csv, with percentiles read again in pieces of 1,000 s. The time limit of a simulation
    is none of its virtual time."""
    latest_s = MOST_VIRTUAL_S if simulated else profile.length_s + profile.late_s + profile.timeout_s + 1
    planned_s = 0.0 if profile.finite else profile.length_s
    known_s = planned_s if samples.latest_ns is None else samples.latest_ns / 1e9
    timeline = Timeline(max(1, -int(-min(max(planned_s, known_s), latest_s) // 1)))
    for batch in samples.batches():
        timeline.add(batch)
    in_flight = timeline.in_flight()
    for start in range(0, timeline.size, CHUNK_SECONDS):
        end = min(start + CHUNK_SECONDS, timeline.size)
        table = _histograms(samples, start, end, end == timeline.size)
        p50, p90, p99 = _percentiles(table)
        for second in range(start, end):
            known = timeline.replies[second] > 0
            yield Second(
                second=second,
                requests=int(timeline.replies[second]),
                units=int(timeline.units[second]),
                failures=int(timeline.failures[second]),
                throughput=float(timeline.units[second]),
                latency_p50_s=float(p50[second - start]) / 1e9 if known else None,
                latency_p90_s=float(p90[second - start]) / 1e9 if known else None,
                latency_p99_s=float(p99[second - start]) / 1e9 if known else None,
                in_flight=max(0.0, round(float(in_flight[second]), 6)),
                latency_histogram=_histogram_text(table[second - start]),
            )


def _histograms(samples: Samples, start: int, end: int, last: bool) -> Counts:
    """Return the number of replies in each bucket of response time: a row for each second from `start` to `end`."""
    most = int(histogram.bucket_indexes(np.array([2**62]), SERIES_ERROR)[0]) + 1
    size = end - start
    table = np.zeros((size, most), dtype=np.int32)
    for batch in samples.batches((start * SECOND_NS, end * SECOND_NS + 1)):
        second = batch.last // SECOND_NS - start
        if last:
            second[batch.last == end * SECOND_NS] = size - 1
        chosen = batch.good & (second >= 0) & (second < size)
        response = np.maximum(batch.last - batch.due, 1)[chosen]
        flat = second[chosen] * most + histogram.bucket_indexes(response, SERIES_ERROR)
        cells, number = np.unique(flat, return_counts=True)
        table.reshape(-1)[cells] += number.astype(np.int32)
    return table


def _percentiles(table: Counts) -> Iterator[NDArray[np.float64]]:
    below = np.cumsum(table, axis=1, dtype=np.int32)
    for probability in (0.5, 0.9, 0.99):
        wanted = np.array([rank(probability, int(n)) + 1 for n in below[:, -1]])
        index = (below >= wanted[:, None]).argmax(axis=1)
        yield histogram.bucket_value(index, SERIES_ERROR)


def _histogram_text(counts: Counts) -> str:
    filled = np.flatnonzero(counts)
    values = histogram.bucket_value(filled, SERIES_ERROR) / 1e9
    return " ".join(f"{value:.4g}:{count}" for value, count in zip(values, counts[filled], strict=True))
