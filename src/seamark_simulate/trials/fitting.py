"""Models of the servers that some trials were measured on, with their scores, as the document of `bench fit`."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from seamark.errors import UserError
from seamark_simulate.fit import (
    HeldOut,
    ReplicaLimits,
    ReplicaTrial,
    StationTrial,
    contradictions,
    fit_replica,
    fit_station,
    held_out,
    predict_replica,
    predict_station,
    replica_contradictions,
    scored,
)
from seamark_simulate.fit.replica_fit import ReplicaDraw
from seamark_simulate.fit.station_fit import Draw
from seamark_simulate.model.fitted_model import (
    FitScore,
    FitSource,
    FittedModels,
    HeldOutFigure,
    ReplicaModel,
    ReplicaParameters,
    StartModel,
    StationModel,
    StationParameters,
)
from seamark_simulate.trials.fit_inputs import FitGroup, FitInputs, ServerStarts
from seamark_simulate.trials.fitted_server import fitted_server

SCORE_DRAWS, REPLICA_SCORE_DRAWS = 100, 40


def fitted_models(inputs: FitInputs, *, servers: int | None, seed: int) -> FittedModels:
    """Fit a model to each group of trials. Raises UserError where no group can be fitted, with all reasons."""
    stations, replicas, reasons = [], [], []
    for station in inputs.stations:
        try:
            stations.append(_station(station, servers, seed))
        except ValueError as reason:
            reasons.append(f"{station.name}: {reason}.")
    for replica in inputs.replicas:
        try:
            replicas.append(_replica(replica, seed))
        except ValueError as reason:
            reasons.append(f"{replica.name}: {reason}.")
    if not stations and not replicas:
        counts = Counter(str(trial.why) for trial in inputs.left_out)
        reasons += [f"{count} left out: {why}." for why, count in counts.items()]
        raise UserError(
            f"bench fit: no model can be fitted. {' '.join(reasons)} A fit needs streamed replies of a language"
            " model, or open loads such as `pattern: poisson`, of one server with several levels of load and"
            " repetitions."
        )
    return FittedModels(
        fitted_at=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=seed,
        machines=tuple(sorted(inputs.machines)),
        stations=tuple(stations),
        replicas=tuple(replicas),
        starts=tuple(map(_start, inputs.starts)),
        left_out=tuple(inputs.left_out),
        not_fitted=tuple(reasons),
    )


def _station(group: FitGroup[StationTrial], servers: int | None, seed: int) -> StationModel:
    station = fit_station(group.trials, servers=servers, seed=seed)
    figures, why_no_score = _held_out(
        lambda: held_out(
            group.trials,
            lambda others: fit_station(others, servers=servers, seed=seed, draws=SCORE_DRAWS),
            lambda fitted, trial, number: predict_station(
                fitted, trial.arrival_s, warmup_s=trial.warmup_s, until_s=trial.until_s, seed=seed + number
            ),
        )
    )
    rates = [trial.rate_rps for trial in group.trials]
    return StationModel(
        name=group.name,
        service=group.service,
        servers=station.servers,
        family=station.service.family,
        parameters=_station_parameters(Draw(service=station.service, overhead_s=station.overhead_s)),
        between=station.between,
        loads=station.loads,
        rates_rps=(min(rates), max(rates)),
        requests=station.requests,
        out_of_order=station.out_of_order,
        sources=group.sources,
        contradictions=contradictions(station, group.trials),
        scores=tuple(FitScore(**vars(score)) for score in scored(figures)),
        held_out=tuple(_figure(figure, group.sources[figure.number]) for figure in figures),
        why_no_score=why_no_score,
        draws=tuple(map(_station_parameters, station.draws)),
        server=fitted_server(group.served),
    )


def _replica(group: FitGroup[ReplicaTrial], seed: int) -> ReplicaModel:
    limits = common_limits(group.limits)
    fitted = fit_replica(group.trials, limits, seed=seed)
    figures, why_no_score = _held_out(
        lambda: held_out(
            group.trials,
            lambda others: fit_replica(others, limits, seed=seed, draws=REPLICA_SCORE_DRAWS),
            lambda other, trial, number: predict_replica(other, trial, seed + number),
        )
    )
    return ReplicaModel(
        name=group.name,
        service=group.service,
        kv_blocks=limits.kv_blocks,
        block_tokens=limits.block_tokens,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        parameters=_replica_parameters(ReplicaDraw(cost=fitted.cost, overhead_s=fitted.overhead_s)),
        between=fitted.between,
        speed=fitted.speed,
        ranges=fitted.ranges,
        requests=fitted.requests,
        sources=group.sources,
        contradictions=replica_contradictions(fitted, group.trials),
        scores=tuple(FitScore(**vars(score)) for score in scored(figures)),
        held_out=tuple(_figure(figure, group.sources[figure.number]) for figure in figures),
        why_no_score=why_no_score,
        draws=tuple(map(_replica_parameters, fitted.draws)),
        server=fitted_server(group.served),
    )


def common_limits(limits: list[ReplicaLimits]) -> ReplicaLimits:
    """Return limits that all trials can be replayed with: the fewest blocks that a server counted at a start; without
    a count the most of any, as those are guessed by the lengths of requests."""
    counted = [limit for limit in limits if limit.kv_counted]
    if counted:
        return min(counted, key=lambda limit: limit.kv_blocks)
    return replace(limits[0], kv_blocks=max(limit.kv_blocks for limit in limits))


def _held_out(predicted: Callable[[], tuple[HeldOut, ...]]) -> tuple[tuple[HeldOut, ...], str | None]:
    """Return the figures of trials that were left out, or why there are none."""
    try:
        return predicted(), None
    except ValueError as reason:
        return (), str(reason)


def _figure(found: HeldOut, source: FitSource) -> HeldOutFigure:
    said = found.predicted
    return HeldOutFigure(
        scenario=source.scenario,
        trial=source.trial,
        place=found.place,
        figure=found.figure,
        measured=found.measured,
        predicted=said.value,
        low=said.low,
        high=said.high,
    )


def _start(starts: ServerStarts) -> StartModel:
    return StartModel(
        name=starts.name,
        service=starts.service,
        starts=len(starts.times_s),
        mean_s=float(np.mean(starts.times_s)),
        std_s=float(np.std(starts.times_s, ddof=1)) if len(starts.times_s) > 1 else None,
    )


def _station_parameters(draw: Draw) -> StationParameters:
    return StationParameters(mean_s=draw.service.mean_s, variation=draw.service.variation, overhead_s=draw.overhead_s)


def _replica_parameters(draw: ReplicaDraw) -> ReplicaParameters:
    return ReplicaParameters(**vars(draw.cost), overhead_s=draw.overhead_s)
