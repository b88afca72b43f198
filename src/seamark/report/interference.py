"""Who slows whom: what parties cost each other under load, from the comparisons of their sets. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from seamark.model.parties import SETS, names_in
from seamark.model.results.comparison import Compared, ComparedVerdict, Comparisons
from seamark.model.service import Value

THROUGHPUT = "throughput"
PREFERRED = ("latency_ms.p50", THROUGHPUT)
"""Metrics of which the first that a party has is its slowdown in a matrix."""


@dataclass(frozen=True, kw_only=True)
class Slowdown:
    """What one metric of a party becomes beside others, as a ratio to the party alone under the same placement: above
    1 it is slower, for a rate as much as for a time. `low` and `high` are its interval."""

    party: str
    beside: tuple[str, ...]
    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    verdict: ComparedVerdict | None = None
    p_adjusted: float | None = None
    fixed: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SetFacts:
    """A set of parties as a whole: `progress` is the sum of their throughputs together over alone, where 1 is no
    better than taking turns; `worst` the largest slowdown, `fairness` the smallest share of the throughput alone over
    the largest."""

    parties: tuple[str, ...]
    fixed: Mapping[str, Value]
    progress: float
    worst: float
    fairness: float


def slowdowns_of(comparisons: Comparisons | None) -> tuple[Slowdown, ...]:
    """Return the slowdowns of parties in each set, against each party alone; nothing where no sets are compared."""
    found = comparisons.comparisons if comparisons is not None else ()
    return tuple(slowdown for compared in found if (slowdown := _slowdown(compared)) is not None)


def _slowdown(compared: Compared) -> Slowdown | None:
    party = compared.workload.partition(".")[2]
    alone, together = names_in(str(compared.base.level)), names_in(str(compared.new.level))
    if compared.factor != SETS.name or compared.ratio is None or alone != (party,) or party not in together:
        return None
    ends = [compared.ratio.value, compared.ratio.low, compared.ratio.high]
    if compared.better == "higher":
        value, high, low = (1 / end if end else None for end in ends)
    else:
        value, low, high = ends
    if value is None:
        return None
    return Slowdown(
        party=party,
        beside=tuple(name for name in together if name != party),
        metric=compared.metric,
        value=value,
        low=low,
        high=high,
        confidence=compared.confidence,
        verdict=compared.verdict,
        p_adjusted=compared.p_adjusted,
        fixed=compared.fixed,
    )


def in_matrix(found: Iterable[Slowdown]) -> list[Slowdown]:
    """Return the slowdown of each party in each set that a matrix shows: by the first of PREFERRED that is known."""
    chosen: dict[tuple[str, tuple[str, ...], str], Slowdown] = {}
    for slowdown in found:
        key = (slowdown.party, slowdown.beside, str(sorted(slowdown.fixed.items())))
        if slowdown.metric in PREFERRED:
            known = chosen.get(key)
            if known is None or PREFERRED.index(slowdown.metric) < PREFERRED.index(known.metric):
                chosen[key] = slowdown
    return list(chosen.values())


def sets_of(found: Iterable[Slowdown]) -> list[SetFacts]:
    """Return the facts of each set of which the throughput of every party is known."""
    groups: dict[tuple[frozenset[str], str], list[Slowdown]] = {}
    for slowdown in found:
        key = (frozenset((slowdown.party, *slowdown.beside)), str(sorted(slowdown.fixed.items())))
        groups.setdefault(key, []).append(slowdown)
    facts = []
    for (names, _), inside in groups.items():
        shares = {slowdown.party: 1 / slowdown.value for slowdown in inside if slowdown.metric == THROUGHPUT}
        if set(shares) == names:
            facts.append(
                SetFacts(
                    parties=tuple(sorted(names)),
                    fixed=inside[0].fixed,
                    progress=sum(shares.values()),
                    worst=max(slowdown.value for slowdown in in_matrix(inside)),
                    fairness=min(shares.values()) / max(shares.values()),
                )
            )
    return facts
