"""What a number of items can show: the smallest difference of right answers, for `bench plan`."""

from collections.abc import Mapping, Sequence

from seamark.model.items import ItemCount
from seamark.model.plurals import in_percent
from seamark.stats.paired_proportions import ALPHA, MOST_PAIRS, POWER, detectable_difference

MCNEMAR = "exact McNemar test of independent items, right or wrong"
SIGN_FLIP = "sign-flip test of contexts, if all answers to one are alike; less where they are not"
SHARES = (0.05, 0.1, 0.2)
"""Shares of items that two methods answer with another score: few where one hardly changes the other."""


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
