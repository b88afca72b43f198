"""Sums up what searches found, over the repetitions of a treatment."""

from collections import Counter
from collections.abc import Sequence

from seamark.analysis.outcome import Document, Outcome
from seamark.analysis.spread import each, spread

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
        "bracket": _around([search["bracket"] for search in searches]),
        "confidence": min((search["confidence"] for search in searches if search.get("confidence")), default=None),
        "outcomes": dict(Counter(str(search["outcome"]) for search in searches)),
        "confirmed": sum(bool(search["confirmed"]) for search in searches),
        "of": len(searches),
    }


def _around(brackets: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Return the bracket around those of all repetitions; None on a side that one of them leaves open."""
    lows, highs = zip(*brackets, strict=True)
    low = None if None in lows else min(one for one in lows if one is not None)
    high = None if None in highs else max(one for one in highs if one is not None)
    return [low, high]
