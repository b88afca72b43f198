"""The part of a service that breaks first: the limit without which a missed objective would have been met best."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seamark.fit.planned_load import Objective, PlannedLoad
from seamark.fit.service_model import ServiceModel, Source

TRIALS = 5
FIXED: frozenset[Source] = frozenset(("parameters", "repeats"))
NOTICED = 0.9
"""A limit counts if without it the missed value is this part of itself or less."""
SERVICE = "service time"
"""What remains where no limit explains a miss."""


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """What breaks first at a load: the objective that is missed, by a value in seconds, and that value without the
    limit `part`."""

    part: str
    rate_rps: float
    objective: str
    value_s: float
    without_s: float


def bottleneck(
    service: ServiceModel, load: PlannedLoad, replicas: int, objectives: Sequence[Objective], seed: int
) -> Bottleneck | None:
    """Return what breaks first at a load with the estimated parameters, None if it meets all objectives.

    The objective is that which is missed by the largest factor; each limit of the service is then left out in turn.
    """
    values = {each.name: _value_s(service, load, replicas, each, seed) for each in objectives}
    missed = [each for each in objectives if values[each.name] > each.limit_s]
    if not missed:
        return None
    worst = max(missed, key=lambda each: values[each.name] / each.limit_s)
    value_s = values[worst.name]
    without = {
        name: _value_s(other, load, replicas, worst, seed) for name, other in service.without_limits(load).items()
    }
    part = min(without, key=without.__getitem__)
    is_limit = without[part] <= NOTICED * value_s and not (part == "queue" and without[part] > worst.limit_s)
    return Bottleneck(
        part=part if is_limit else SERVICE,
        rate_rps=load.rate_rps,
        objective=worst.name,
        value_s=value_s,
        without_s=without[part],
    )


def _value_s(service: ServiceModel, load: PlannedLoad, replicas: int, objective: Objective, seed: int) -> float:
    """Return the median of a statistic over some trials."""
    trials = (service.trial(load, replicas, number, seed, FIXED) for number in range(TRIALS))
    return float(np.median([objective.value_s(each.times_s[objective.of]) for each in trials]))
