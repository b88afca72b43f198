"""A layout judged by simulated trials: the fewest replicas that meet the objectives, and what is known of
them; the largest rate that meets them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from seamark.model.results.search_record import Probe
from seamark.model.scenario import Search
from seamark.trials.search.largest_load import Limit, ProbeObservation, Values, largest_load
from seamark_simulate.config.price_file import Prices
from seamark_simulate.fit.odds import FIXED, Judged, fewest_replicas, judge
from seamark_simulate.fit.planned_load import Objective, PlannedLoad
from seamark_simulate.fit.prediction import CONFIDENCE
from seamark_simulate.fit.service_model import ServiceModel
from seamark_simulate.model.capacity_plan import JudgedReplicas, LargestLoad
from seamark_simulate.model.fitted_model import codes_of
from seamark_simulate.trials.capacity_layouts import Choice
from seamark_simulate.trials.capacity_load import CapacityAsked

EXTRAPOLATED = "extrapolated"
EDGE = 1.001
"""Ratio of rates on both sides of the edge of a fit, at which its place is known well enough."""


def judged_layout(
    choice: Choice,
    asked: CapacityAsked,
    load: PlannedLoad,
    objectives: tuple[Objective, ...],
    prices: Prices | None,
) -> Choice:
    """Return a choice with the fewest replicas that meet the objectives, else with the best number of them."""
    service, layout = choice.service, choice.layout
    if service is None:
        return choice
    counts = range(1, asked.most_gpus // max(1, layout.gpus_per_replica) + 1)
    outside = _outside(service, load, counts, whole=asked.extrapolate)
    allowed = [count for count in outside if asked.extrapolate or not outside[count]]
    if not allowed:
        ends = "; ".join(f"with {count}, {', '.join(outside[count])}" for count in dict.fromkeys((1, counts[-1])))
        why = f"its load lies outside of the fit with any number up to {counts[-1]}: {ends}"
        return replace(choice, layout=replace(layout, status="outside_range", why=why))
    chosen, every = fewest_replicas(
        allowed,
        lambda count: judge(
            service, load, count, objectives, trials=asked.trials, seed=asked.seed, needed=asked.confidence
        ),
        asked.confidence,
    )
    best = chosen or max(every, key=lambda judged: (judged.probability, -judged.replicas))
    records = {judged.replicas: _record(judged, outside[judged.replicas]) for judged in every}
    gpus = best.replicas * layout.gpus_per_replica
    fewer = best.replicas - 1
    unknown = fewer in outside and fewer not in allowed and chosen is not None
    return replace(
        choice,
        layout=replace(
            layout,
            status="misses" if chosen is None else "meets",
            why=None if chosen is not None else _why_missed(best, objectives, counts[-1], allowed[-1]),
            replicas=best.replicas,
            gpus=gpus if layout.gpu is not None else None,
            rate_per_replica_rps=load.rate_rps / best.replicas,
            chosen=records[best.replicas],
            judged=tuple(records.values()),
            cost_per_hour=None if prices is None else prices.per_hour(layout.gpu, gpus or best.replicas),
            figures=_figures(best),
            suspect=records[best.replicas].suspect,
            sources_suspect=() if choice.model is None else codes_of(choice.model.sources),
            fewer_unknown=f"{fewer}: {'; '.join(outside[fewer])}" if unknown else None,
        ),
    )


def _outside(
    service: ServiceModel, load: PlannedLoad, counts: Sequence[int], *, whole: bool
) -> Mapping[int, tuple[str, ...]]:
    """Return what lies outside of the fit with each number of replicas; unless `whole`, up to the first number that
    lies outside again, beyond which each has even less of the load."""
    outside: dict[int, tuple[str, ...]] = {}
    for count in counts:
        outside[count] = service.outside(load, count)
        if not whole and outside[count] and count - 1 in outside and not outside[count - 1]:
            break
    return outside


def _record(judged: Judged, outside: tuple[str, ...]) -> JudgedReplicas:
    low, high = judged.interval
    return JudgedReplicas(
        replicas=judged.replicas,
        met=judged.met,
        trials=judged.trials,
        probability=judged.probability,
        probability_low=low,
        probability_high=high,
        suspect=EXTRAPOLATED if outside else None,
        outside=outside,
    )


def _why_missed(best: Judged, objectives: Sequence[Objective], most: int, last: int) -> str:
    values = {objective.name: float(np.median(best.values_s[objective.name])) for objective in objectives}
    worst = max(objectives, key=lambda objective: values[objective.name] / objective.limit_s)
    limit = f"up to {most}" if last == most else f"up to {last}, of which the fit knows"
    return f"no number {limit}: with {best.replicas}, {worst.name} has a median of {values[worst.name]:.3g} s"


def _figures(judged: Judged) -> Mapping[str, tuple[float, ...]]:
    tail = (1 - CONFIDENCE) / 2
    return {
        name: tuple(np.quantile(values, (0.5, tail, 1 - tail)).tolist()) for name, values in judged.values_s.items()
    }


def nearest_inside(service: ServiceModel, load: PlannedLoad, replicas: int, wanted_rps: float) -> float:
    """Return the rate nearest to the wanted one that lies inside the fit, between it and that of a load which does;
    to a thousandth where that is not the wanted one."""

    def inside(rate_rps: float) -> bool:
        return not service.outside(replace(load, rate_rps=rate_rps), replicas)

    if inside(wanted_rps):
        return wanted_rps
    good, bad = load.rate_rps, wanted_rps
    while max(good / bad, bad / good) > EDGE:
        middle = (good * bad) ** 0.5
        good, bad = (middle, bad) if inside(middle) else (good, middle)
    return good


WITHIN, TIMES_MORE = 0.05, 4.0
UNBOUNDED_S = 1e12
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

    def measure(probe: Probe) -> ProbeObservation:
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
        return ProbeObservation(against=tuple(against), values=values)

    result = largest_load(search, load.duration_s, measure, lambda probe, verdict, why: None)
    low, high = result.bracket
    ends = [rate for rate in (result.found, high) if rate is not None]
    outside = any(service.outside(replace(load, rate_rps=float(rate)), replicas) for rate in ends)
    return LargestLoad(
        outcome=str(result.outcome),
        found_rps=result.found,
        low_rps=low,
        high_rps=high,
        confidence=result.confidence or 0.0,
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
