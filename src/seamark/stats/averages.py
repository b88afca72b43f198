"""Macro and micro average of scores over subsets of a benchmark. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, kw_only=True)
class Averages:
    """`macro` is the mean of the subsets' means, each subset counting alike; `micro` the mean of all items, each item
    counting alike. Both are None where a subset has no scores: `missing` names it."""

    macro: float | None
    micro: float | None
    subsets: int
    items: int
    missing: tuple[str, ...] = ()


def averages(subsets: Mapping[str, Sequence[float] | None]) -> Averages:
    """Return both averages over subsets, given the scores of each; None or nothing: it has none.

    An average over the rest would be of another benchmark, so there is none where a subset is missing.
    """
    known = {name: list(scores) for name, scores in subsets.items() if scores is not None and len(scores)}
    missing = tuple(name for name in subsets if name not in known)
    items = sum(map(len, known.values()))
    whole = known and not missing
    return Averages(
        macro=fmean(fmean(scores) for scores in known.values()) if whole else None,
        micro=fmean(score for scores in known.values() for score in scores) if whole else None,
        subsets=len(subsets),
        items=items,
        missing=missing,
    )
