"""The largest simulated rate that meets objectives, found by the search that measured trials have."""

from collections.abc import Sequence
from dataclasses import replace

from seamark.model.scenario import Search
from seamark.trials.search.largest_load import Limit, MeasuredProbe, ProbeObservation, Values, largest_load
from seamark.trials.search.steps import Probe
from seamark_simulate.fit.planned_load import Objective, PlannedLoad
from seamark_simulate.fit.service_model import ServiceModel, Source
from seamark_simulate.model.capacity_plan import LargestLoad
from seamark_simulate.trials.capacity_judged import EXTRAPOLATED, nearest_inside

WITHIN, TIMES_MORE = 0.05, 4.0
UNBOUNDED_S = 1e12
FIXED: frozenset[Source] = frozenset(("parameters", "repeats"))
OF_LIMITS = ("latency", "service_time", "ttft", "ttft_response")
"""Times whose objectives a search decides by single requests; others by the figure of each probe."""


def largest_simulated(
    service: ServiceModel,
    load: PlannedLoad,
    replicas: int,
    objectives: Sequence[Objective],
    *,
    seed: int,
    extrapolate: bool,
) -> LargestLoad | None:
    """Search from the planned rate to four times as much, with the estimated parameters. Without `extrapolate` rates
    outside of the fit are not tried; None where there is no room above the planned one."""
    top_rps = TIMES_MORE * load.rate_rps
    if not extrapolate:
        top_rps = 0.0 if service.outside(load, replicas) else nearest_inside(service, load, replicas, top_rps)
    if top_rps < load.rate_rps * (1 + WITHIN):
        return None
    search = Search(
        setting="rate_rps",
        from_level=load.rate_rps,
        to_level=top_rps,
        within=WITHIN,
        budget_s=UNBOUNDED_S,
        confirm=0,
    )

    def measure(probe: Probe) -> MeasuredProbe:
        at = replace(load, rate_rps=float(probe.level), duration_s=load.duration_s * probe.times)
        trial = service.trial(at, replicas, probe.look, seed, FIXED)
        values: dict[Limit, Values] = {}
        against = []
        for objective in objectives:
            times_s = trial.times_s[objective.of]
            if objective.of in OF_LIMITS and objective.statistic != "max":
                values[_limit(objective)] = times_s
            elif objective.value_s(times_s) > objective.limit_s:
                against.append(f"{objective.name} is missed: {objective.value_s(times_s):.4g}")
        return MeasuredProbe(observation=ProbeObservation(against=tuple(against), values=values), took_s=0.0)

    result = largest_load(search, load.duration_s, measure, lambda probe, verdict, why: None)
    low, high = result.bracket
    ends = [rate for rate in (result.found, high) if rate is not None]
    outside = any(service.outside(replace(load, rate_rps=float(rate)), replicas) for rate in ends)
    return LargestLoad(
        outcome=result.outcome,
        found_rps=result.found,
        low_rps=low,
        high_rps=high,
        confidence=result.confidence,
        suspect=EXTRAPOLATED if outside else None,
    )


def _limit(objective: Objective) -> Limit:
    return Limit(
        name=objective.name,
        statistic="mean" if objective.statistic == "mean" else "quantile",
        limit=objective.limit_s,
        probability=objective.probability,
        of=objective.of,
    )
