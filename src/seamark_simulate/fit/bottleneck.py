"""The part of a service that breaks first: the limit without which a missed objective would have been met best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seamark_simulate.fit.planned_load import Objective, PlannedLoad
from seamark_simulate.fit.service_model import ServiceModel, Source

TRIALS = 5
FIXED: frozenset[Source] = frozenset(("parameters", "repeats"))
NOTICED = 0.9
"""A part counts if without it the missed value is this part of itself or less."""
SERVICE = "service time"
"""What remains where no limit explains a miss."""


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """What breaks first at a load on some `replicas`: the objective that is missed, by a value in seconds, and that
    value without `part`; of the service time, without a queue."""

    part: str
    replicas: int
    rate_rps: float
    objective: str
    value_s: float
    without_s: float


def bottleneck(
    service: ServiceModel, load: PlannedLoad, replicas: int, objectives: Sequence[Objective], seed: int
) -> Bottleneck | None:
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
    return Bottleneck(
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
