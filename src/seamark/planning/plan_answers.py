"""What a number of items can show: the smallest difference of right answers, for `bench plan`."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress

from seamark.errors import UserError
from seamark.model.service import Value
from seamark.stats.paired_proportions import ALPHA, MOST_PAIRS, POWER, detectable_difference
from seamark.tasks.question_files import CACHE, questions
from seamark.tasks.task import task_of_document

ITEMS_BY = ("items", "task", "max_requests")
"""Settings on which the number of items depends."""
SHARES = (0.05, 0.1, 0.2)
"""Shares of items that two methods answer with another score: few where one hardly changes the other."""


def items_of(settings: Mapping[str, Value]) -> int | None:
    """Return the number of items of a trial: `items`, or the questions of its `task`, of which `max_requests` are
    asked. Data in a file or folder are counted; None for those of the hub, and where they are not there yet."""
    if isinstance(items := settings.get("items"), int):
        return items
    if not settings.get("task"):
        return None
    benchmark, subset = task_of_document(json.loads(str(settings["task"])))
    asked = settings.get("max_requests")
    limit = asked if isinstance(asked, int) else None
    if subset.source.kind == "hub":
        return None
    if subset.source.kind != "made":
        with suppress(UserError, OSError):
            return len(questions(benchmark, subset, limit=limit, cache=CACHE.expanduser()))
        return None
    if limit is None:
        return subset.questions
    has_texts_of_its_own = subset.length_words is None
    return min(limit, subset.questions or limit) if has_texts_of_its_own else limit


def detectable_scores(items: int, comparisons: int) -> Mapping[str, float | None]:
    """Return the smallest difference of mean scores of right and wrong answers that the exact McNemar test shows, by
    the share of discordant items; None where not even the whole share is shown. As one of a family (Bonferroni, which
    Holm's method is never below)."""
    alpha = ALPHA / comparisons
    return {f"{share:g}": detectable_difference(min(items, MOST_PAIRS), share, alpha=alpha) for share in SHARES}


def answer_lines(items: Sequence[int], detectable: Sequence[Mapping[str, float | None]]) -> list[str]:
    """Return a line for each number of items."""
    return [
        f"  {f'scores of {count:,} items':<24} {_differences(shares)}, at {POWER:.0%} power (exact McNemar test of"
        " independent items, right or wrong)"
        for count, shares in zip(items, detectable, strict=True)
    ]


def _differences(shares: Mapping[str, float | None]) -> str:
    shown = {share: value for share, value in shares.items() if value is not None}
    if not shown:
        return f"no difference where {float(list(shares)[-1]):.0%} of the items or fewer differ"
    return ", ".join(f"{value:.3f} where {float(share):.0%} differ" for share, value in shown.items())
