"""How wrong a fitted model is: whole treatments are left out in turn and predicted from the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from seamark_simulate.fit.prediction import Predicted, Prediction
from seamark_simulate.fit.replica_trial import ReplicaTrial
from seamark_simulate.fit.station_trial import StationTrial

Place = Literal["inside", "beyond", "overload"]
"""Of a treatment that was left out: its load is among those of the others, outside of them, or too much to serve."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """One figure over the held-out trials of one place.

    `median_error` and `largest_error` are relative; `in_spreads` is the median error over the standard deviation of
    repeats, None without repeats. `inside_interval` is the share of trials that lie in their 90 % interval.
    """

    place: Place
    figure: str
    trials: int
    median_error: float
    largest_error: float
    in_spreads: float | None
    inside_interval: float


T = TypeVar("T", StationTrial, ReplicaTrial)
M = TypeVar("M")


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """One figure of a trial, the `number`-th of all, that was predicted from the trials of other treatments.
    `spread` is the relative standard deviation over its repeats, None without any."""

    number: int
    place: Place
    figure: str
    measured: float
    predicted: Predicted
    spread: float | None

    @property
    def error(self) -> float:
        """The relative error of the prediction."""
        return abs(self.predicted.value / self.measured - 1)

    @property
    def inside(self) -> bool:
        """Whether the measured figure lies in the interval of the prediction."""
        return self.predicted.low <= self.measured <= self.predicted.high


def score(
    trials: Sequence[T], fit: Callable[[Sequence[T]], M], predict: Callable[[M, T, int], Prediction]
) -> tuple[Scored, ...]:
    """Return the errors of `held_out` by place and figure. Raises as it does."""
    return scored(held_out(trials, fit, predict))


def held_out(
    trials: Sequence[T], fit: Callable[[Sequence[T]], M], predict: Callable[[M, T, int], Prediction]
) -> tuple[HeldOut, ...]:
    """Return all figures, each predicted without its treatment.

    `fit` makes a model from trials, `predict` takes it, a trial and a seed. Raises ValueError for fewer than three
    treatments, and as `fit`.
    """
    names = list(dict.fromkeys(trial.treatment for trial in trials))
    if len(names) < 3:
        raise ValueError("a score needs three treatments or more: one is left out, and two say how load matters")
    places = {id(trial): number for number, trial in enumerate(trials)}
    predictions: list[HeldOut] = []
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
                predictions.append(
                    HeldOut(
                        number=places[id(trial)],
                        place=place,
                        figure=figure,
                        measured=measured,
                        predicted=said,
                        spread=spreads.get(figure),
                    )
                )
    return tuple(predictions)


def scored(found: Sequence[HeldOut]) -> tuple[Scored, ...]:
    """Return the errors by place and figure."""
    places: tuple[Place, ...] = ("inside", "beyond", "overload")
    figures = list(dict.fromkeys(prediction.figure for prediction in found))
    rows = [(place, figure) for place in places for figure in figures]
    return tuple(
        _summed([prediction for prediction in found if (prediction.place, prediction.figure) == row])
        for row in rows
        if any((prediction.place, prediction.figure) == row for prediction in found)
    )


def _spreads(trials: Sequence[StationTrial | ReplicaTrial]) -> dict[str, float]:
    """Return the relative standard deviation of each figure over repeats; nothing for a single trial."""
    if len(trials) < 2:
        return {}
    rows = [trial.figures for trial in trials]
    common = [name for name in rows[0] if all(name in row for row in rows)]
    values = {name: np.array([row[name] for row in rows]) for name in common}
    return {name: float(column.std(ddof=1) / column.mean()) for name, column in values.items()}


def _summed(rows: Sequence[HeldOut]) -> Scored:
    errors = np.array([row.error for row in rows])
    relative = [row.error / row.spread for row in rows if row.spread]
    return Scored(
        place=rows[0].place,
        figure=rows[0].figure,
        trials=len(rows),
        median_error=float(np.median(errors)),
        largest_error=float(errors.max()),
        in_spreads=float(np.median(relative)) if relative else None,
        inside_interval=sum(row.inside for row in rows) / len(rows),
    )
