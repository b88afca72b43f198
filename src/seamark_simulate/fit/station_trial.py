"""One measured trial as a station sees it, and the service times that its requests must have had."""

from dataclasses import dataclass
from heapq import heapreplace

import numpy as np

from seamark_simulate.model.fitted_model import FitSource
from seamark_simulate.simulation.schedule import Bools, Floats

FEWEST_FOR_P99 = 1_000


@dataclass(frozen=True, kw_only=True)
class StationTrial:
    """An open load on one server. `arrival_s` is when requests were due, sorted, and `end_s` when their replies were
    complete, both shape (requests,) in seconds from the start of the load. Requests due before `warmup_s` fill the
    queue but count in nothing else; the measured window lasts until `until_s`."""

    source: FitSource
    treatment: str
    arrival_s: Floats
    end_s: Floats
    warmup_s: float = 0.0
    until_s: float

    @property
    def id(self) -> str:
        """Its name in its scenario."""
        return self.source.trial

    @property
    def counted(self) -> Bools:
        """Which requests were due after the warm-up, shape (requests,)."""
        return np.asarray(self.arrival_s >= self.warmup_s)

    @property
    def rate_rps(self) -> float:
        """Requests due in a second of the measured window."""
        return int(self.counted.sum()) / (self.until_s - self.warmup_s)

    @property
    def figures(self) -> dict[str, float]:
        """Good replies in a second of the measured window, and response times of the requests that were due after the
        warm-up; p99 only of FEWEST_FOR_P99 requests or more."""
        times_s = (self.end_s - self.arrival_s)[self.counted]
        if not len(times_s):
            return {}
        p50_s, p99_s = np.quantile(times_s, (0.5, 0.99)).tolist()
        ended = int(((self.end_s >= self.warmup_s) & (self.end_s < self.until_s)).sum())
        rate = ended / float(self.until_s - self.warmup_s)
        figures = {"throughput_rps": rate, "mean_s": float(times_s.mean()), "p50_s": p50_s}
        return figures | ({"p99_s": p99_s} if len(times_s) >= FEWEST_FOR_P99 else {})


def service_times(trial: StationTrial, servers: int, overhead_s: float) -> Floats:
    """Return the service time in seconds of every request that was due after the warm-up, shape (counted requests,).

    With `servers` equal servers and one queue, first come first served, a request starts when it arrives or when the
    first of the servers is free, whichever is later; so its end tells how long it was served. `overhead_s` of each
    response is no service: the way there and back. Times that are not positive contradict that order.
    """
    return _every_service_time(trial, servers, overhead_s)[trial.counted]


def _every_service_time(trial: StationTrial, servers: int, overhead_s: float) -> Floats:
    if servers >= len(trial.arrival_s):
        return np.asarray(trial.end_s - trial.arrival_s - overhead_s)
    if servers == 1:
        ended_s = trial.end_s - overhead_s
        before_s = np.concatenate([[float("-inf")], np.maximum.accumulate(ended_s)[:-1]])
        return np.asarray(ended_s - np.maximum(trial.arrival_s, before_s))
    free_s = [float("-inf")] * servers
    times_s = []
    for arrival_s, end_s in zip(trial.arrival_s.tolist(), (trial.end_s - overhead_s).tolist(), strict=True):
        start_s = max(arrival_s, free_s[0])
        times_s.append(end_s - start_s)
        heapreplace(free_s, max(end_s, free_s[0]))
    return np.asarray(times_s)
