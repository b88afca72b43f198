"""Probability that a service meets objectives, by counting simulated trials, the fewest replicas that do, and the
part of it that breaks first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from seamark_simulate.fit.planned_load import Objective, PlannedLoad
from seamark_simulate.fit.service_model import ServiceModel, Source
from seamark_simulate.model.capacity_plan import BreaksFirst
from seamark_simulate.simulation.schedule import Floats

INTERVAL = 0.95
"""Confidence of the interval of a probability: what more simulated trials could change."""
LOOK, HOPELESS = 20, 0.999
"""After this many trials a case is given up whose probability is surely, at this confidence, too low."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """How many of some simulated trials of a number of replicas met all objectives, and the values in seconds of each
    objective by trial."""

    replicas: int
    met: int
    trials: int
    values_s: Mapping[str, Floats]

    @property
    def probability(self) -> float:
        """The share that met them."""
        return self.met / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """The limits of the probability."""
        return interval_of(self.met, self.trials, INTERVAL)


def interval_of(met: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the limits of a probability (Clopper and Pearson 1934)."""
    tail, missed = (1 - confidence) / 2, trials - met
    low = float(stats.beta.ppf(tail, met, missed + 1)) if met else 0.0
    high = float(stats.beta.ppf(1 - tail, met + 1, missed)) if missed else 1.0
    return low, high


def judge(
    service: ServiceModel,
    load: PlannedLoad,
    replicas: int,
    objectives: Sequence[Objective],
    *,
    trials: int,
    seed: int,
    needed: float = 0.0,
    fixed: frozenset[Source] = frozenset(),
) -> Judged:
    """Simulate trials of a load, each with parameters and a seed of its own, and count those that meet all
    objectives. Fewer trials where the probability is surely below `needed`."""
    values: dict[str, list[float]] = {objective.name: [] for objective in objectives}
    met = 0
    for number in range(trials):
        times_s = service.trial(load, replicas, number, seed, fixed).times_s
        found = {objective.name: objective.value_s(times_s[objective.of]) for objective in objectives}
        met += all(found[objective.name] <= objective.limit_s for objective in objectives)
        for name, value in found.items():
            values[name].append(value)
        if number + 1 == LOOK and interval_of(met, LOOK, HOPELESS)[1] < needed:
            break
    values_s = {name: np.array(row) for name, row in values.items()}
    return Judged(replicas=replicas, met=met, trials=number + 1, values_s=values_s)


def fewest_replicas(
    allowed: Sequence[int], judged: Callable[[int], Judged], confidence: float
) -> tuple[Judged | None, tuple[Judged, ...]]:
    """Return the fewest of the allowed numbers, in rising order, whose probability is at least `confidence`, None if
    none has; and all that were judged, in rising order.

    Numbers are doubled until one has it and halved between, as more replicas of a service serve no request later.
    """
    found: dict[int, Judged] = {}

    def has(at: int) -> bool:
        if at not in found:
            found[at] = judged(allowed[at])
        return found[at].probability >= confidence

    low, high, step = -1, 0, 1
    while not has(high):
        low = high
        if high == len(allowed) - 1:
            break
        high, step = min(high + step, len(allowed) - 1), 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if has(middle) else (middle, high)
    every = tuple(found[at] for at in sorted(found))
    return (found[high] if has(high) else None), every


def largest_uncertainty(judged: Callable[[frozenset[Source]], Judged]) -> Source:
    """Return the source without which the verdict on the objectives is surest: whose absence brings the probability
    nearest to 0 or 1."""
    sources: tuple[Source, ...] = ("repeats", "parameters", "seeds")

    def doubt(source: Source) -> float:
        share = judged(frozenset((source,))).probability
        return share * (1 - share)

    return min(sources, key=doubt)


TRIALS = 5
FIXED: frozenset[Source] = frozenset(("parameters", "repeats"))
NOTICED = 0.9
"""A part counts if without it the missed value is this part of itself or less."""
SERVICE = "service time"
"""What remains where no limit explains a miss."""


def bottleneck(
    service: ServiceModel, load: PlannedLoad, replicas: int, objectives: Sequence[Objective], seed: int
) -> BreaksFirst | None:
    """Return what breaks first at a load with the estimated parameters, None if it meets all objectives.

    The objective is that which is missed by the largest factor. A limit of the service without which it would be met
    breaks first; without such a limit it is the part of the work without which the value is smallest.
    """
    values = {objective.name: _value_s(service, load, replicas, objective, seed) for objective in objectives}
    missed = [objective for objective in objectives if values[objective.name] > objective.limit_s]
    if not missed:
        return None
    worst = max(missed, key=lambda objective: values[objective.name] / objective.limit_s)
    value_s = values[worst.name]

    def least(others: Mapping[str, ServiceModel]) -> tuple[float, str]:
        found = [(_value_s(other, load, replicas, worst, seed), name) for name, other in others.items()]
        return min(found, default=(value_s, SERVICE))

    without_s, part = least(service.without_limits(load))
    unqueued_s = without_s if part == "queue" else value_s
    if without_s > worst.limit_s:
        without_s, part = least(service.without_costs())
    if without_s > NOTICED * value_s:
        without_s, part = unqueued_s, SERVICE
    return BreaksFirst(
        part=part,
        replicas=replicas,
        rate_rps=load.rate_rps,
        objective=worst.name,
        value_s=value_s,
        without_s=without_s,
    )


def _value_s(service: ServiceModel, load: PlannedLoad, replicas: int, objective: Objective, seed: int) -> float:
    """Return the median of a statistic over some trials."""
    trials = (service.trial(load, replicas, number, seed, FIXED) for number in range(TRIALS))
    return float(np.median([objective.value_s(trial.times_s[objective.of]) for trial in trials]))
