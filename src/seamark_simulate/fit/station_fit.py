"""A station fitted to trials: servers, service times, overhead, and how sure each is. The trial is the unit."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from seamark_simulate.fit.service_time import FAMILIES, PARAMETERS, ServiceTime, Sums, fit_service_time
from seamark_simulate.fit.station_trial import StationTrial, service_times
from seamark_simulate.model.fitted_model import Family, StationModel, StationParameters
from seamark_simulate.simulation.schedule import Floats

SERVERS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
"""Numbers of servers that are tried when none is given."""
FIRST = 1_000
"""Requests of each trial by which the number of servers is chosen, and of its warm-up before them."""
OVERHEADS = 25
"""Values of the overhead that are compared, from 0 to the shortest response."""
DRAWS = 200
OUT_OF_ORDER = 0.01
"""Largest share of requests that may have ended before one that they came after."""
PENALTY = 25.0
"""How much a request out of order takes from the logarithm of the likelihood."""


@dataclass(frozen=True, kw_only=True)
class _Choice:
    at: int
    service: ServiceTime
    aic: float


def fit_station(
    trials: Sequence[StationTrial], *, servers: int | None = None, seed: int = 0, draws: int = DRAWS
) -> StationModel:
    """Fit a station to open loads of one server at one or several rates; it has no name, score and server yet.

    Servers, overhead and family of distributions are those of the least AIC. Raises ValueError for fewer than two
    trials, for one without requests after its warm-up, and where no number of servers explains in which order
    requests ended.
    """
    if len(trials) < 2:
        raise ValueError("a fit needs two trials or more: the trial is the unit of its uncertainty")
    if empty := next((trial.id for trial in trials if not trial.counted.any()), None):
        raise ValueError(f"{empty} has no requests after its warm-up")
    least_s = min(float((trial.end_s - trial.arrival_s)[trial.counted].min()) for trial in trials)
    coarse_s = np.linspace(0.0, max(least_s, 0.0), OVERHEADS, endpoint=False).tolist()
    count = servers or _servers([_first(trial) for trial in trials], coarse_s[::4])
    rough = _best([_seen(trial, count, coarse_s) for trial in trials], FAMILIES)
    if rough is None:
        raise _disorder()
    overheads_s = _finer(coarse_s, rough.at)
    seen = [_seen(trial, count, overheads_s) for trial in trials]
    best = _best(seen, FAMILIES) or rough
    overhead_s = overheads_s[best.at]
    random = np.random.default_rng(seed)
    rates_rps = [trial.rate_rps for trial in trials]
    loads = [rate_rps * best.service.mean_s / count for rate_rps in rates_rps]
    times_s = [service_times(trial, count, overhead_s) for trial in trials]
    return StationModel(
        name="",
        service="",
        servers=count,
        family=best.service.family,
        parameters=StationParameters(
            mean_s=best.service.mean_s, variation=best.service.variation, overhead_s=overhead_s
        ),
        between=_between([every_s[every_s > 0] for every_s in times_s]),
        loads=(min(loads), max(loads)),
        rates_rps=(min(rates_rps), max(rates_rps)),
        requests=sum(int(trial.counted.sum()) for trial in trials),
        out_of_order=sum(row[best.at].out_of_order for row in seen),
        sources=tuple(trial.source for trial in trials),
        draws=tuple(_draw(seen, overheads_s, best, random) for _ in range(draws)),
    )


def _finer(overheads_s: Sequence[float], at: int) -> list[float]:
    """Return overheads with as many more in the step before and the step after one of them."""
    step_s = overheads_s[1] - overheads_s[0]
    near_s = overheads_s[at] + np.linspace(-step_s, step_s, OVERHEADS)
    return sorted({*overheads_s, *near_s[near_s >= 0].tolist()})


def _first(trial: StationTrial) -> StationTrial:
    begins = int(np.searchsorted(trial.arrival_s, trial.warmup_s))
    part = slice(max(0, begins - FIRST), begins + FIRST)
    return replace(trial, arrival_s=trial.arrival_s[part], end_s=trial.end_s[part])


def _servers(trials: Sequence[StationTrial], overheads_s: Sequence[float]) -> int:
    """Return the number of servers of the least AIC."""
    tried = {count: _best([_seen(trial, count, overheads_s) for trial in trials], FAMILIES) for count in SERVERS}
    aics = {count: choice.aic for count, choice in tried.items() if choice is not None}
    if not aics:
        raise _disorder()
    return min(aics, key=aics.__getitem__)


def _disorder() -> ValueError:
    return ValueError("no number of servers explains in which order requests ended: not first come, first served")


def _seen(trial: StationTrial, servers: int, overheads_s: Sequence[float]) -> tuple[Sums, ...]:
    """Return the sums of a trial's service times at each overhead."""
    return tuple(Sums.of(service_times(trial, servers, overhead_s)) for overhead_s in overheads_s)


def _best(seen: Sequence[Sequence[Sums]], families: Sequence[Family]) -> _Choice | None:
    """Return the overhead and distribution of the least AIC over trials; None if too many requests are out of
    order."""
    best: _Choice | None = None
    for at, trials in enumerate(zip(*seen, strict=True)):
        sums = reduce(Sums.plus, trials)
        if sums.out_of_order > OUT_OF_ORDER * (sums.count + sums.out_of_order):
            continue
        for family in families:
            service = fit_service_time(sums, family)
            likelihood = service.log_likelihood(sums) - PENALTY * sums.out_of_order
            aic = 2 * (PARAMETERS[family] + 1) - 2 * likelihood
            if best is None or aic < best.aic:
                best = _Choice(at=at, service=service, aic=aic)
    return best


def _draw(
    seen: Sequence[Sequence[Sums]], overheads_s: Sequence[float], best: _Choice, random: np.random.Generator
) -> StationParameters:
    """Fit to trials drawn with replacement; moved away from the estimate as far as so few trials ask for."""
    chosen = random.integers(len(seen), size=len(seen))
    drawn = _best([seen[at] for at in chosen], [best.service.family]) or best
    widen = (len(seen) / (len(seen) - 1)) ** 0.5
    overhead_s = overheads_s[best.at] + widen * (overheads_s[drawn.at] - overheads_s[best.at])
    return StationParameters(
        mean_s=best.service.mean_s * (drawn.service.mean_s / best.service.mean_s) ** widen,
        variation=best.service.variation * (drawn.service.variation / best.service.variation) ** widen,
        overhead_s=max(0.0, overhead_s),
    )


def _between(times_s: Sequence[Floats]) -> float:
    """Return the standard deviation between trials of the log mean, less what sampling explains (DerSimonian and
    Laird 1986), 0 at least."""
    logs = np.array([np.log(row.mean()) for row in times_s])
    weights = np.array([len(row) * row.mean() ** 2 / max(float(row.var()), 1e-18) for row in times_s])
    mean = float((weights * logs).sum() / weights.sum())
    excess = float((weights * (logs - mean) ** 2).sum()) - (len(logs) - 1)
    scale = float(weights.sum() - (weights**2).sum() / weights.sum())
    return float(max(0.0, excess / scale) ** 0.5)
