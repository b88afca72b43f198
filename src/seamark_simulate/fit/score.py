"""How wrong a fitted model is: whole treatments are left out in turn and predicted from the others."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from seamark_simulate.fit.prediction import Prediction
from seamark_simulate.fit.replica_trial import ReplicaTrial
from seamark_simulate.fit.station_trial import StationTrial
from seamark_simulate.model.fitted_model import FitScore, HeldOutFigure, Place

T = TypeVar("T", StationTrial, ReplicaTrial)
M = TypeVar("M")


def score(
    trials: Sequence[T], fit: Callable[[Sequence[T]], M], predict: Callable[[M, T, int], Prediction]
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
