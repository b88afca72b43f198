"""A load that is planned for, and objectives on the times of its requests. Draws arrivals; reads no file."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from seamark.model.scenario import Slo
from seamark.patterns.patterns import Poisson
from seamark.stats.quantiles import rank, samples_needed
from seamark_simulate.simulation.schedule import Floats

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
FEWEST = 20
"""Requests of a trial that a mean or maximum needs."""
ROOM = 1.2
"""How many more requests than a percentile needs a load has on average: Poisson counts vary."""


@dataclass(frozen=True, kw_only=True)
class PlannedLoad:
    """Poisson arrivals of a mean rate. Requests due in the first `warmup_s` count in no figure; `duration_s` more are
    measured. Language models get prompts and replies of these lengths."""

    rate_rps: float
    duration_s: float
    warmup_s: float
    prompt_tokens: int = 0
    reply_tokens: int = 0

    @property
    def until_s(self) -> float:
        """When the load ends, in seconds from its start."""
        return self.warmup_s + self.duration_s

    def arrivals(self, seed: int) -> Floats:
        """Return the arrivals of a seed in seconds, shape (requests,). Loads of one seed differ only by their rate:
        all gaps are longer or shorter alike."""
        blocks = []
        for block in Poisson(rate_rps=self.rate_rps).blocks(np.random.default_rng([seed, 0])):
            blocks.append(block[block < self.until_s])
            if len(blocks[-1]) < len(block):
                break
        return np.concatenate(blocks)


@dataclass(frozen=True, kw_only=True)
class Objective:
    """An upper limit in seconds on a statistic of a time of requests: its mean or maximum, or a quantile of
    `probability`."""

    name: str
    of: str
    statistic: Literal["mean", "max", "quantile"]
    probability: float = 0.0
    limit_s: float

    def value_s(self, times_s: Floats) -> float:
        """Return the statistic of times in seconds, infinite without any. Quantiles are by nearest rank, as of
        measured trials."""
        if not len(times_s):
            return float("inf")
        if self.statistic == "mean":
            return float(times_s.mean())
        if self.statistic == "max":
            return float(times_s.max())
        at = rank(self.probability, len(times_s))
        return float(np.partition(times_s, at)[at])

    @property
    def requests_needed(self) -> int:
        """Return how many measured requests a trial needs for this statistic."""
        return samples_needed(self.probability) if self.statistic == "quantile" else FEWEST


def objective_of(slo: Slo, times: tuple[str, ...]) -> Objective:
    """Return an objective on one of these times. An objective on every request (`latency_s`) is one on its p99.

    Raises ValueError for other metrics.
    """
    name, _, statistic = slo.metric.removesuffix("_s").rpartition("_")
    if slo.metric.removesuffix("_s") in times:
        name, statistic = slo.metric.removesuffix("_s"), "p99"
    if name not in times or slo.op != "<=" or statistic not in (*QUANTILES, "mean", "max"):
        allowed = ", ".join(f"{time}_p99_s" for time in times)
        raise ValueError(
            f"'{slo.metric} {slo.op} {slo.limit:g}' cannot be planned for: allowed are upper limits on"
            f" {allowed}, and the same with p50, p90, p95, p999, mean or max"
        )
    written = f"{slo.metric} <= {slo.limit:g}"
    if statistic not in QUANTILES:
        return Objective(name=written, of=name, statistic="mean" if statistic == "mean" else "max", limit_s=slo.limit)
    return Objective(name=written, of=name, statistic="quantile", probability=QUANTILES[statistic], limit_s=slo.limit)


def duration_for(objectives: tuple[Objective, ...], rate_rps: float, least_s: float) -> float:
    """Return how long a load of a rate must last for the percentiles of all objectives, at least `least_s`; in whole
    seconds."""
    needed = max(objective.requests_needed for objective in objectives)
    return float(max(least_s, np.ceil(ROOM * needed / rate_rps)))
