"""What stands against a fitted model in the trials that it was fitted to."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from seamark.model.plurals import in_time
from seamark_simulate.fit.replica_trial import ReplicaTrial, replayed
from seamark_simulate.fit.service_time import ServiceTime
from seamark_simulate.fit.station_trial import StationTrial, service_times
from seamark_simulate.model.fitted_model import ReplicaModel, StationModel
from seamark_simulate.simulation.fitted_service import replica_of
from seamark_simulate.simulation.schedule import Floats

LEVEL = 0.01
"""Probability of a contradiction of a station that is as fitted, over all trials and tests (Holm)."""
DISTANCE, CORRELATION, TIME = 0.1, 0.1, 0.05
"""Distance of distributions, correlation of neighbours, and relative difference of times that matter; smaller ones do
not, however sure. A client sees ends alone, some hundredths of a short service late."""
REPLAY_DISTANCE, NEAR, FEWEST = 0.3, 0.1, 20
"""Distance of replayed and measured distributions that matters, which times near the median do not have; and how many
times a test needs."""


def contradictions(station: StationModel, trials: Sequence[StationTrial]) -> tuple[str, ...]:
    """Return a sentence for each trial and test that a station of independent service times of this distribution
    would hardly have; none where the fit stands.

    Tests: the distribution of service times (Kolmogorov and Smirnov), whether neighbours are alike (rank correlation;
    unlike ones come of one end that was seen late), and whether the longest is too long by a mean time. Holm's method
    at LEVEL over all.
    """
    fitted, tests = station.parameters, list[tuple[float, str]]()
    service = ServiceTime(family=station.family, mean_s=fitted.mean_s, variation=fitted.variation)
    for trial in trials:
        times_s = service_times(trial, station.servers, fitted.overhead_s)
        tests += _tests(service, trial.id, times_s[times_s > 0])
    return _holm(tests)


def replica_contradictions(fitted: ReplicaModel, trials: Sequence[ReplicaTrial]) -> tuple[str, ...]:
    """Return a sentence for each trial whose times a replica with these costs would hardly have had.

    Tests: the distributions of response times and of times per further token after the warm-up, measured and replayed
    (Kolmogorov and Smirnov), each divided by its median, which the spread of trials explains. Holm's method at LEVEL
    over all.
    """
    tests: list[tuple[float, str]] = []
    replica, overhead_s = replica_of(fitted, fitted.parameters), fitted.parameters.overhead_s
    for trial in trials:
        replies = replayed(replica, trial, overhead_s)
        seen, said = trial.sent_s >= trial.warmup_s, replies.arrival_s - overhead_s >= trial.warmup_s
        pairs = {
            "times of further tokens": (
                (trial.last_s - trial.first_s)[seen & (trial.reply_tokens > 1)],
                (replies.completed_s - replies.first_token_s)[said & (replies.reply_tokens > 1)],
            ),
            "response times": ((trial.last_s - trial.sent_s)[seen], (replies.completed_s - replies.arrival_s)[said]),
        }
        for name, (measured_s, said_s) in pairs.items():
            if min(len(measured_s), len(said_s)) < FEWEST:
                continue
            one, other = (times_s / float(np.median(times_s)) for times_s in (measured_s, said_s))
            near = np.where(np.abs(one - 1) < NEAR, 1.0, one), np.where(np.abs(other - 1) < NEAR, 1.0, other)
            tested = stats.ks_2samp(*near)
            text = f"{trial.id}: {name} are spread otherwise than in its replay (distance {tested.statistic:.2f})"
            tests.append((float(tested.pvalue), text if tested.statistic > REPLAY_DISTANCE else ""))
    return _holm(tests)


def _holm(found: Sequence[tuple[float, str]]) -> tuple[str, ...]:
    kept = []
    for rank, (p, text) in enumerate(sorted(found)):
        if p * (len(found) - rank) > LEVEL:
            break
        kept.append(text)
    return tuple(text for text in kept if text)


def _tests(service: ServiceTime, trial: str, times_s: Floats) -> list[tuple[float, str]]:
    """Return p and sentence of each test; without a sentence where the effect is too small to matter."""
    distance = _distance(service, times_s)
    longest_s = max(0.0, float(times_s.max() - service.mean_s)) / (1 + TIME)
    p_longest = float(-np.expm1(len(times_s) * np.log1p(-min(service.beyond(longest_s), 1 - 1e-12))))
    rows = [
        (
            float(stats.kstwo.sf(distance, len(times_s))),
            f"{trial}: service times are not {service.family} with mean {in_time(service.mean_s)}"
            f" (distance {distance:.2f})"
            if distance > DISTANCE
            else "",
        ),
        (
            p_longest,
            f"{trial}: one request was served for {in_time(float(times_s.max()))},"
            f" {times_s.max() / service.mean_s:.3g} times the mean",
        ),
    ]
    if float(times_s.std()) > TIME * float(times_s.mean()):
        neighbours = stats.spearmanr(times_s[:-1], times_s[1:], alternative="greater")
        r = float(neighbours.statistic)
        text = f"{trial}: service times of neighbours are correlated ({r:.2f}): the server has times of its own"
        rows.append((float(neighbours.pvalue), text if r > CORRELATION else ""))
    return rows


def _distance(service: ServiceTime, times_s: Floats) -> float:
    """Return the largest distance of the shares of measured and fitted times, where a time may be off by TIME."""
    ordered = np.sort(times_s)
    ranks = np.arange(1, len(ordered) + 1) / len(ordered)
    more = ranks - service.cdf(ordered * (1 + TIME))
    fewer = service.cdf(ordered * (1 - TIME)) - (ranks - 1 / len(ordered))
    return max(0.0, float(more.max()), float(fewer.max()))
