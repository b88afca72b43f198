"""Trials of a station whose truth is known: seeded arrivals, served by the simulated station."""

from dataclasses import replace

import numpy as np

from seamark_simulate.fit.station_trial import StationTrial
from seamark_simulate.model.fitted_model import FitSource
from seamark_simulate.simulation.station import Station, exponential, serve

OVERHEAD_S = 3e-4
MEAN_S = 0.005


def planted(seed, *, draw=None, servers=1, loads=(0.2, 0.4, 0.6), repeats=3, requests=2_000, between=0.0):
    """Return `repeats` trials at each load; the first tenth of the requests is warm-up. `between` is the standard
    deviation of the log of a trial's speed."""
    draw = draw or exponential(MEAN_S)
    trials = []
    for number, load in enumerate(loads):
        for repeat in range(repeats):
            random = np.random.default_rng([seed, number, repeat])
            arrival_s = np.cumsum(random.exponential(MEAN_S / load / servers, requests))
            factor = float(np.exp(random.normal(0.0, between)))
            station = Station(servers=servers, service=lambda rng, count, by=factor: draw(rng, count) * by)
            served = serve(station, arrival_s, random)
            trials.append(
                StationTrial(
                    source=FitSource(scenario="s", trial=f"load-{load}--r{repeat + 1}", trial_id="", config_hash=""),
                    treatment=f"load-{load}",
                    arrival_s=arrival_s,
                    end_s=served.end_s + OVERHEAD_S,
                    warmup_s=float(arrival_s[requests // 10]),
                    until_s=float(arrival_s[-1]) + 1e-9,
                )
            )
    return trials


def stalled(trial, *, at=0.5, for_s=0.5):
    """Return a trial whose server serves nothing for a while from a share of the load on."""
    from_s = trial.arrival_s[int(at * len(trial.arrival_s))]
    free_s, ends_s = float("-inf"), []
    for arrival_s, end_s, before_s in zip(
        trial.arrival_s, trial.end_s - OVERHEAD_S, [float("-inf"), *(trial.end_s - OVERHEAD_S)], strict=False
    ):
        length_s = end_s - max(arrival_s, before_s)
        start_s = max(arrival_s, free_s)
        if from_s <= start_s < from_s + for_s:
            start_s = from_s + for_s
        free_s = start_s + length_s
        ends_s.append(free_s)
    return replace(trial, end_s=np.array(ends_s) + OVERHEAD_S)
