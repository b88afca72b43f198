"""Sums up what searches found, over the repetitions of a treatment."""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median_high, median_low

from seamark.analysis.summary.outcome import Document, Outcome
from seamark.analysis.summary.spread import each, spread

FOUND = ("setting", "found", "bracket_low", "bracket_high", "confidence", "outcome", "confirmed", "probes")
"""What the tables of a summary have of a search."""


def row_of_search(search: Document) -> Document:
    """Return a trial's search as the columns of a table, without their prefix."""
    low, high = search["bracket"]
    values = {**search, "bracket_low": low, "bracket_high": high}
    return {name: values.get(name) for name in FOUND}


def found_by_search(outcomes: Sequence[Outcome]) -> Document | None:
    """Return the level that a treatment's searches found, with its spread, and how each ended; None where the load
    was given. A search that found nothing is among the outcomes, not in the spread."""
    searches = [
        outcome.metrics["search"] for outcome in outcomes if outcome.metrics and outcome.metrics.get("search")
    ]
    if not searches:
        return None
    return {
        "setting": searches[0]["setting"],
        "found": spread(each(searches, "found")),
        "bracket": _median_bracket([search["bracket"] for search in searches]),
        "confidence": min((search["confidence"] for search in searches if search.get("confidence")), default=None),
        "outcomes": dict(Counter(str(search["outcome"]) for search in searches)),
        "confirmed": sum(bool(search["confirmed"]) for search in searches),
        "of": len(searches),
    }


def _median_bracket(brackets: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return the median of the low sides and that of the high sides, of an even number the outer one; an open side is
    infinitely far out. It misses the truth only where half of the repetitions do."""
    low = median_low(-math.inf if low is None else low for low, _ in brackets)
    high = median_high(math.inf if high is None else high for _, high in brackets)
    return [low if math.isfinite(low) else None, high if math.isfinite(high) else None]
