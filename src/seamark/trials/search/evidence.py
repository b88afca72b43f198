"""What the probes of a level say together: each objective against its limit, at a stated error. Pure.

Objectives on times of requests and on the share of errors are decided by all requests of all probes, with their
autocorrelation. Of anything else (other objectives, a server that falls behind, failures) two probes have to agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seamark.stats.decision import Odds, mean_odds, quantile_odds
from seamark.trials.search.steps import LOOK_ERROR, Verdict

Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Limit:
    """An objective on every request: `name` as it is written, `of` which time, and the mean or the quantile (of
    `probability`) of that time that has an upper limit, in seconds."""

    name: str
    statistic: Literal["mean", "quantile"]
    limit: float
    probability: float = 0.0
    of: str = "latency"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one probe saw. `void`: why it says nothing of the server. `values`: of every request what an objective is
    on, in the order of due times. `against`: what else speaks against this load; `sure` where one probe is enough."""

    void: str | None = None
    against: tuple[str, ...] = ()
    sure: bool = False
    values: Mapping[Limit, Values] = field(default_factory=dict)


def judged(seen: Sequence[Seen]) -> tuple[Verdict, str]:
    """Return what the probes of a level say together, in the order in which they were made, and why in words."""
    last = seen[-1]
    if last.void is not None:
        return "void", last.void
    told = [each for each in seen if each.void is None]
    against = [bool(each.against) for each in told]
    if last.against and (last.sure or (all(against) and len(against) > 1)):
        return "fail", "; ".join(last.against)
    if last.against:
        return "likely_fail", "; ".join(last.against)
    values = {limit: [each.values[limit] for each in told if limit in each.values] for limit in last.values}
    odds = {limit: _odds(limit, pieces) for limit, pieces in values.items()}
    missed = [_said(limit, one) for limit, one in odds.items() if one.above <= LOOK_ERROR]
    if missed:
        return "fail", "; ".join(missed)
    above = [_said(limit, one) for limit, one in odds.items() if _likely_missed(limit, one)]
    if above:
        return "likely_fail", f"not decided: {'; '.join(above)}"
    sure = all(one.below <= LOOK_ERROR for one in odds.values()) and not any(against)
    met = "; ".join(_said(limit, one) for limit, one in odds.items()) or "every objective is met"
    return ("pass", met) if sure else ("likely_pass", f"not decided: {met}")


def _odds(limit: Limit, pieces: Sequence[Values]) -> Odds:
    if limit.statistic == "mean":
        return mean_odds(pieces, limit.limit)
    return quantile_odds(pieces, limit.probability, limit.limit, LOOK_ERROR)


def _likely_missed(limit: Limit, odds: Odds) -> bool:
    bound = limit.limit if limit.statistic == "mean" else 1 - limit.probability
    return not odds.estimate <= bound


def _said(limit: Limit, odds: Odds) -> str:
    if limit.statistic == "mean":
        return f"{limit.name}: the mean is {odds.estimate:.4g}"
    return f"{limit.name}: {odds.estimate:.2%} lie above, {1 - limit.probability:.3g} may"
