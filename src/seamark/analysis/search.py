"""Sums up what searches found, over the repetitions of a treatment."""

from collections import Counter
from collections.abc import Sequence

from seamark.analysis.outcome import Document, Outcome
from seamark.analysis.spread import each, spread

FOUND = ("setting", "found", "outcome", "confirmed", "probes")
"""What the tables of a summary have of a search."""


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
        "outcomes": dict(Counter(str(search["outcome"]) for search in searches)),
        "confirmed": sum(bool(search["confirmed"]) for search in searches),
        "of": len(searches),
    }
