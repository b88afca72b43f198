"""Models of the servers that some trials were measured on, as the document of `bench fit`, and their scores: how
wrong a model is about treatments that were left out."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

import numpy as np

from seamark.errors import UserError
from seamark_simulate.fit.contradiction import contradictions, replica_contradictions
from seamark_simulate.fit.prediction import Prediction, predict_replica, predict_station
from seamark_simulate.fit.replica_fit import ReplicaLimits, fit_replica
from seamark_simulate.fit.replica_trial import ReplicaTrial
from seamark_simulate.fit.station_fit import fit_station
from seamark_simulate.fit.station_trial import StationTrial
from seamark_simulate.model.fitted_model import (
    FitScore,
    FittedModels,
    HeldOutFigure,
    Place,
    ReplicaModel,
    StationModel,
)
from seamark_simulate.trials.fit_inputs import FitGroup, FitInputs
from seamark_simulate.trials.fitted_server import fitted_server

SCORE_DRAWS, REPLICA_SCORE_DRAWS = 100, 40
T = TypeVar("T", StationTrial, ReplicaTrial)
M = TypeVar("M", StationModel, ReplicaModel)


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
        starts=tuple(inputs.starts),
        left_out=tuple(inputs.left_out),
        not_fitted=tuple(reasons),
    )


def _station(group: FitGroup[StationTrial], servers: int | None, seed: int) -> StationModel:
    fit = partial(fit_station, servers=servers, seed=seed)
    station = fit(group.trials)
    against = contradictions(station, group.trials)
    return _scored(group, station, against, partial(fit, draws=SCORE_DRAWS), predict_station, seed)


def _replica(group: FitGroup[ReplicaTrial], seed: int) -> ReplicaModel:
    fit = partial(fit_replica, limits=common_limits(group.limits), seed=seed)
    replica = fit(group.trials)
    against = replica_contradictions(replica, group.trials)
    return _scored(group, replica, against, partial(fit, draws=REPLICA_SCORE_DRAWS), predict_replica, seed)


def _scored(
    group: FitGroup[T],
    model: M,
    against: tuple[str, ...],
    fit: Callable[[Sequence[T]], M],
    predict: Callable[[M, T, int], Prediction],
    seed: int,
) -> M:
    """Return a model with name and server of its trials, what stands against it, and how wrong it is, or why that is
    not known."""
    named = replace(
        model,
        name=group.name,
        service=group.served[0].trial.service,
        contradictions=against,
        server=fitted_server(group.served),
    )
    try:
        held_out, scores = score(
            group.trials, fit, lambda fitted, trial, number: predict(fitted, trial, seed + number)
        )
    except ValueError as reason:
        return replace(named, why_no_score=str(reason))
    return replace(named, held_out=held_out, scores=scores)


def common_limits(limits: list[ReplicaLimits]) -> ReplicaLimits:
    """Return limits that all trials can be replayed with: the fewest blocks that a server counted at a start; without
    a count the most of any, as those are guessed by the lengths of requests."""
    counted = [limit for limit in limits if limit.kv_counted]
    if counted:
        return min(counted, key=lambda limit: limit.kv_blocks)
    return replace(limits[0], kv_blocks=max(limit.kv_blocks for limit in limits))


Fitted = TypeVar("Fitted")


def score(
    trials: Sequence[T], fit: Callable[[Sequence[T]], Fitted], predict: Callable[[Fitted, T, int], Prediction]
) -> tuple[tuple[HeldOutFigure, ...], tuple[FitScore, ...]]:
    """Return all figures, each predicted without its treatment, and their errors by place and figure.

    `fit` makes a model from trials, `predict` takes it, a trial and a seed. Raises ValueError for fewer than three
    treatments, and as `fit`.
    """
    names = list(dict.fromkeys(trial.treatment for trial in trials))
    if len(names) < 3:
        raise ValueError("a score needs three treatments or more: one is left out, and two say how load matters")
    figures: list[tuple[HeldOutFigure, float | None]] = []
    for name in names:
        fitted = fit([trial for trial in trials if trial.treatment != name])
        repeats = [trial for trial in trials if trial.treatment == name]
        spreads = _spreads(repeats)
        for number, trial in enumerate(repeats):
            predicted = predict(fitted, trial, number)
            place: Place = "overload" if predicted.overload else "beyond" if predicted.extrapolated else "inside"
            for figure, measured in trial.figures.items():
                said = predicted.figures.get(figure)
                if said is None or not measured:
                    continue
                held = HeldOutFigure(
                    scenario=trial.source.scenario,
                    trial=trial.id,
                    place=place,
                    figure=figure,
                    measured=measured,
                    predicted=said.value,
                    low=said.low,
                    high=said.high,
                )
                figures.append((held, spreads.get(figure)))
    return tuple(held for held, _ in figures), _scores(figures)


def _spreads(trials: Sequence[StationTrial | ReplicaTrial]) -> dict[str, float]:
    """Return the relative standard deviation of each figure over repeats; nothing for a single trial."""
    if len(trials) < 2:
        return {}
    rows = [trial.figures for trial in trials]
    common = [name for name in rows[0] if all(name in row for row in rows)]
    values = {name: np.array([row[name] for row in rows]) for name in common}
    return {name: float(column.std(ddof=1) / column.mean()) for name, column in values.items()}


def _scores(figures: Sequence[tuple[HeldOutFigure, float | None]]) -> tuple[FitScore, ...]:
    """Return the errors of figures with their spreads, by place and figure."""
    places: tuple[Place, ...] = ("inside", "beyond", "overload")
    names = list(dict.fromkeys(held.figure for held, _ in figures))
    scores = []
    for place, name in ((place, name) for place in places for name in names):
        rows = [(held, spread) for held, spread in figures if (held.place, held.figure) == (place, name)]
        if not rows:
            continue
        errors = [abs(held.predicted / held.measured - 1) for held, _ in rows]
        relative = [error / spread for error, (_, spread) in zip(errors, rows, strict=True) if spread]
        scores.append(
            FitScore(
                place=place,
                figure=name,
                trials=len(rows),
                median_error=float(np.median(errors)),
                largest_error=max(errors),
                in_spreads=float(np.median(relative)) if relative else None,
                inside_interval=sum(held.is_hit for held, _ in rows) / len(rows),
            )
        )
    return tuple(scores)
