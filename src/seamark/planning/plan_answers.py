"""What a number of items can show: the smallest difference of right answers, for `bench plan`."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

from seamark.errors import UserError
from seamark.model.plurals import in_percent
from seamark.model.service import Value
from seamark.stats.paired_proportions import ALPHA, MOST_PAIRS, POWER, detectable_difference
from seamark.tasks.benchmark import Benchmark, Subset
from seamark.tasks.loading import rows_of
from seamark.tasks.question_files import CACHE, question_of, questions
from seamark.tasks.task import task_of_document

ITEMS_BY = ("items", "task", "max_requests")
"""Settings on which the number of items depends."""
MCNEMAR = "exact McNemar test of independent items, right or wrong"
SIGN_FLIP = "sign-flip test of contexts, if all answers to one are alike; less where they are not"
SHARES = (0.05, 0.1, 0.2)
"""Shares of items that two methods answer with another score: few where one hardly changes the other."""


@dataclass(frozen=True, kw_only=True, order=True)
class ItemCount:
    """The items of a trial, and how many contexts they are about: those are what a test counts."""

    items: int
    contexts: int

    @property
    def text(self) -> str:
        """`64 items in 8 contexts`."""
        return f"{self.items:,} items" + (f" in {self.contexts:,} contexts" if self.contexts < self.items else "")


def items_of(settings: Mapping[str, Value]) -> ItemCount | None:
    """Return the number of items of a trial: `items`, or the questions of its `task`, of which `max_requests` are
    asked. Data in a file or folder are counted; None for those of the hub, and where they are not there yet.

    Contexts are those of the questions. `items` without a task are independent, as far as a plan can know.
    """
    if isinstance(items := settings.get("items"), int):
        return ItemCount(items=items, contexts=items)
    if not settings.get("task"):
        return None
    benchmark, subset = task_of_document(json.loads(str(settings["task"])))
    asked = settings.get("max_requests")
    limit = asked if isinstance(asked, int) else None
    if subset.source.kind == "hub":
        return None
    if subset.source.kind == "made" and subset.length_words is not None:  # as many as are asked, of long contexts
        count = limit or subset.questions
        return None if not count else ItemCount(items=count, contexts=-(-count // _of_one_context(benchmark, subset)))
    with suppress(UserError, OSError):
        found = questions(benchmark, subset, limit=limit, cache=CACHE.expanduser())
        return ItemCount(items=len(found), contexts=len({question.cluster for question in found}))
    return None


def _of_one_context(benchmark: Benchmark, subset: Subset) -> int:
    """Return how many questions the first made context has: all have as many."""
    rows, task = rows_of(benchmark, subset, seed=0, length_words=None), benchmark.task(subset)
    made = (question_of(task, subset, row, number).cluster for number, row in enumerate(rows))
    first = next(made)
    return 1 + sum(1 for _ in takewhile(lambda cluster: cluster == first, made))


def detectable_scores(count: ItemCount, comparisons: int) -> Mapping[str, float | None]:
    """Return the smallest difference of mean scores of right and wrong answers that the test shows, by the share of
    discordant items; None where not even the whole share is shown. As one of a family (Bonferroni, which Holm's
    method is never below).

    Of independent items that is the exact McNemar test. Contexts are tested as wholes by the sign-flip test, which is
    the same test of contexts where all answers to one are alike: the power is that, the worst case.
    """
    alpha, units = ALPHA / comparisons, min(count.contexts, MOST_PAIRS)
    return {f"{share:g}": detectable_difference(units, share, alpha=alpha) for share in SHARES}


def answer_lines(items: Sequence[ItemCount], detectable: Sequence[Mapping[str, float | None]]) -> list[str]:
    """Return a line for each number of items, and of contexts where these are fewer."""
    return [
        f"  {f'scores of {count.text}':<24} {_differences(shares)}, at {in_percent(POWER)} power ("
        + (MCNEMAR if count.contexts == count.items else SIGN_FLIP)
        + ")"
        for count, shares in zip(items, detectable, strict=True)
    ]


def context_notes(items: Sequence[ItemCount], comparisons: int) -> list[str]:
    """Return what would help where contexts decide and not items."""
    return [
        f"scores of {count.text}: the contexts decide, so more contexts help, and more questions about one do not."
        + (
            f" {count.contexts} reach no p of {ALPHA} in {comparisons} comparisons, whatever they show."
            if 2 ** (1 - count.contexts) * comparisons > ALPHA
            else ""
        )
        for count in items
        if count.contexts < count.items
    ]


def _differences(shares: Mapping[str, float | None]) -> str:
    shown = {share: value for share, value in shares.items() if value is not None}
    if not shown:
        return f"no difference where {in_percent(float(list(shares)[-1]))} of the items or fewer differ"
    return ", ".join(f"{value:.3f} where {in_percent(float(share))} differ" for share, value in shown.items())
