"""The search loop: measures one probe after another until the bracket is decided or the budget is spent. Pure.

Objectives on times of requests and on the share of errors are decided by all requests of all probes of a level, with
their autocorrelation, at a stated error. Of anything else (other objectives, a server that falls behind, failures)
two probes have to agree.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seamark.model.results.load_record import SearchOutcome
from seamark.model.results.search_record import Probe
from seamark.model.scenario import Search
from seamark.report.numbers import duration, percent
from seamark.stats.decision import Odds, mean_odds, quantile_odds
from seamark.trials.search.steps import (
    LOOK_ERROR,
    TIMES,
    LevelVerdict,
    Verdict,
    next_step,
    spent,
)

Measure = Callable[[Probe], "ProbeObservation"]
Note = Callable[[Probe, Verdict, str], None]
Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Limit:
    """An objective on every request: `name` as written, `of` the time, and its mean or quantile (of `probability`)
    with an upper limit, in seconds."""

    name: str
    statistic: Literal["mean", "quantile"]
    limit: float
    probability: float = 0.0
    of: str = "latency"

    @property
    def most(self) -> float:
        """The largest mean, or the largest ratio of requests beyond the limit."""
        return self.limit if self.statistic == "mean" else 1 - self.probability


@dataclass(frozen=True, kw_only=True)
class ProbeObservation:
    """The observation of one probe. `void`: why it is no evidence about the server. `values`: the values of all
    requests under each objective, in the order of due times; those of `bounded` are lower bounds in part, and show no
    level to pass. `against`: other evidence against this load, decisive from one probe where `sure`. `took_s` is its
    duration with warm-up and metrics."""

    void: str | None = None
    against: tuple[str, ...] = ()
    sure: bool = False
    values: Mapping[Limit, Values] = field(default_factory=dict)
    bounded: frozenset[Limit] = frozenset()
    took_s: float = 0.0


def judged(seen: Sequence[ProbeObservation]) -> tuple[Verdict, str]:
    """Return the joint verdict of a level's probes, in the order in which they were made, and the reason in words.
    The error of a look is shared among its objectives, any of which may fail the level."""
    last = seen[-1]
    if last.void is not None:
        return "void", last.void
    told = [probe for probe in seen if probe.void is None]
    against = [bool(probe.against) for probe in told]
    if last.against and (last.sure or (all(against) and len(against) > 1)):
        return "fail", "; ".join(last.against)
    if last.against:
        return "likely_fail", "; ".join(last.against)
    values = {limit: [probe.values[limit] for probe in told if limit in probe.values] for limit in last.values}
    odds = {limit: _odds(limit, pieces) for limit, pieces in values.items()}
    missed = [_text(limit, chance) for limit, chance in odds.items() if chance.above <= LOOK_ERROR / len(odds)]
    if missed:
        return "fail", "; ".join(missed)
    above = [_text(limit, chance) for limit, chance in odds.items() if not chance.estimate <= limit.most]
    if above:
        return "likely_fail", f"not decided: {'; '.join(above)}"
    bounded = [limit.name for limit in odds if any(limit in probe.bounded for probe in told)]
    sure = all(chance.below <= LOOK_ERROR for chance in odds.values()) and not any(against) and not bounded
    met = "; ".join(_text(limit, chance) for limit, chance in odds.items()) or "every objective is met"
    if bounded:
        met += f"; {', '.join(bounded)} is not known, as requests had no answer: raise timeout_s, or duration_s"
    return ("pass", met) if sure else ("likely_pass", f"not decided: {met}")


def _odds(limit: Limit, pieces: Sequence[Values]) -> Odds:
    if limit.statistic == "mean":
        return mean_odds(pieces, limit.limit)
    return quantile_odds(pieces, limit.probability, limit.limit, LOOK_ERROR)


def _text(limit: Limit, odds: Odds) -> str:
    if limit.statistic == "mean":
        return f"{limit.name}: the mean is {odds.estimate:.4g}"
    above = f"{percent(odds.estimate)} % of requests took longer than {duration(limit.limit)}"
    return f"{limit.name}: {above}; {percent(1 - limit.probability)} % may"


def largest_load(
    search: Search, duration_s: float, measure: Measure, note: Note, *, warmup_s: float = 0.0
) -> SearchOutcome:
    """Return the largest load that meets the objectives. `measure` measures a probe, `note` receives its verdict.

    A look of `duration_s` times its number of times, after its warm-up, is shortened if it would end after the
    budget, and none begins after it.
    """
    answers: list[LevelVerdict] = []
    seen: dict[float, list[ProbeObservation]] = {}
    spent_s = 0.0
    while isinstance(step := next_step(search, answers), Probe):
        if spent_s >= search.budget_s:
            return spent(search, answers)
        left_s = search.budget_s - spent_s - warmup_s
        times = max(fit for fit in TIMES if fit == 1 or (fit <= step.times and fit * duration_s <= left_s))
        step = replace(step, times=times)
        observed = measure(step)
        spent_s = round(spent_s + observed.took_s, 3)
        of_level = seen.setdefault(step.level, [])
        of_level.append(observed)
        verdict, why = judged(of_level)
        answers.append(LevelVerdict(probe=step, verdict=verdict))
        note(step, verdict, why)
    return step
