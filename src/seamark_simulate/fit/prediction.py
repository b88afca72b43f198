"""Figures of a trial as a fitted model predicts them, with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from seamark_simulate.fit.replica_fit import ranges_of
from seamark_simulate.fit.replica_trial import ReplicaTrial, replayed_figures
from seamark_simulate.fit.station_trial import StationTrial
from seamark_simulate.model.fitted_model import InputRange, ReplicaModel, StationModel
from seamark_simulate.simulation.fitted_service import own_speed, replica_of
from seamark_simulate.simulation.station import Station, drawn_by, serve

CONFIDENCE = 0.9
KEPT_UP = 0.98
"""Share of an open load that must have been answered in time for a server to keep up with it."""


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """The median of a figure over simulated trials, and the limits between which CONFIDENCE of them lie."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Figures of one trial. `extrapolated` names the inputs that lie outside of those of the fit; `overload`: more
    than the server can serve."""

    figures: Mapping[str, Predicted]
    extrapolated: tuple[str, ...] = ()
    overload: bool = False


def predict_station(station: StationModel, trial: StationTrial, seed: int = 0) -> Prediction:
    """Simulate the arrivals of a trial once with each draw of the fit, and summarise.

    A simulated trial has service times of its own, and a mean of its own as repeats of a treatment have.
    """
    random = np.random.default_rng(seed)
    simulated = []
    servers = min(station.servers, len(trial.arrival_s))
    for draw in station.draws:
        mean_s = draw.mean_s * own_speed(station.between, len(station.sources), random)
        law = drawn_by(station.family, mean_s, draw.variation)
        served = serve(Station(servers=servers, service=law), trial.arrival_s, random)
        simulated.append(replace(trial, end_s=served.end_s + draw.overhead_s).figures)
    utilisation = trial.rate_rps * station.parameters.mean_s / station.servers
    loads = InputRange(low=station.loads[0], high=station.loads[1])
    return Prediction(
        figures=_summarised(simulated),
        extrapolated=() if loads.holds(utilisation) else ("utilisation",),
        overload=utilisation >= 1.0,
    )


def predict_replica(fitted: ReplicaModel, trial: ReplicaTrial, seed: int = 0) -> Prediction:
    """Replay the load of a trial once with each draw of the fit, and summarise.

    A replayed trial has a speed of its own, as repeats of a treatment have.
    """
    random = np.random.default_rng(seed)
    replays = []
    for draw in fitted.draws:
        cost = draw.slower(own_speed(fitted.between, len(fitted.sources), random))
        replays.append(replayed_figures(replica_of(fitted, cost), trial, draw.overhead_s))
    figures = _summarised(replays)
    return Prediction(
        figures=figures,
        extrapolated=tuple(
            name
            for name, span in ranges_of([trial]).items()
            if name not in fitted.ranges or not fitted.ranges[name].holds(span.low)
        ),
        overload=trial.concurrency is None and figures["throughput_rps"].value < KEPT_UP * trial.rate_rps,
    )


def predicted_of(values: Sequence[float]) -> Predicted:
    """Return median and limits of a figure over simulated trials.

    A further trial lies below the k-th of n simulated ones with a chance of k / (n + 1), so the limits are at these
    ranks. Between those of numpy's default, 60 simulated trials hold 87 % of others, and 200 hold 89 %.
    """
    tail = (1 - CONFIDENCE) / 2
    low, middle, high = np.quantile(values, (tail, 0.5, 1 - tail), method="weibull").tolist()
    return Predicted(value=middle, low=low, high=high)


def _summarised(trials: Sequence[Mapping[str, float]]) -> dict[str, Predicted]:
    names = dict.fromkeys(name for trial in trials for name in trial)
    return {name: predicted_of([trial[name] for trial in trials if name in trial]) for name in names}
