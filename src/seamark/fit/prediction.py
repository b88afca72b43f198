"""Figures of a trial as a fitted station predicts them, with intervals."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from seamark.fit.station_fit import FittedStation
from seamark.fit.station_trial import figures_of
from seamark.simulation.schedule import Floats
from seamark.simulation.station import Station, serve

CONFIDENCE = 0.9


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """The median of a figure over simulated trials, and the limits between which CONFIDENCE of them lie."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Figures of one trial. `extrapolated`: its load is outside of those of the fit; `overload`: more than the
    servers can serve."""

    utilisation: float
    figures: Mapping[str, Predicted]
    extrapolated: bool
    overload: bool


def predict(
    station: FittedStation, arrival_s: Floats, *, warmup_s: float, until_s: float, seed: int = 0
) -> Prediction:
    """Simulate arrivals in seconds, shape (requests,), once with each draw of the fit, and summarise.

    A simulated trial has service times of its own, and a mean of its own as repeats of a treatment have.
    """
    random = np.random.default_rng(seed)
    found: dict[str, list[float]] = {}
    for draw in station.draws:
        own = draw.service.scaled(float(np.exp(random.normal(0.0, station.between))))
        served = serve(Station(servers=min(station.servers, len(arrival_s)), service=own.draw), arrival_s, random)
        for name, value in figures_of(arrival_s, served.end_s + draw.overhead_s, warmup_s, until_s).items():
            found.setdefault(name, []).append(value)
    tail = (1 - CONFIDENCE) / 2
    rows = {name: np.quantile(values, (0.5, tail, 1 - tail)).tolist() for name, values in found.items()}
    utilisation = station.utilisation(len(arrival_s) / until_s)
    low, high = station.loads
    return Prediction(
        utilisation=utilisation,
        figures={name: Predicted(value=row[0], low=row[1], high=row[2]) for name, row in rows.items()},
        extrapolated=not low * 0.999 <= utilisation <= high * 1.001,
        overload=utilisation >= 1.0,
    )
