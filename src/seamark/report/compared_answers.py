"""Comparisons of answers as text: how many items, how many of them differ, and what their p and intervals are."""

from collections.abc import Sequence

from seamark.model.plurals import counted, in_percent
from seamark.model.results.comparison import Compared, ComparedAnswers, Comparisons
from seamark.report.numbers import number


def items_text(answers: ComparedAnswers) -> str:
    """Return `500 items in 100 clusters, 53 differ (15 higher, 38 lower)`."""
    clusters = f" in {counted(answers.units, 'cluster')}" if answers.units != answers.items else ""
    differ = "differs" if answers.discordant == 1 else "differ"
    sides = f" ({answers.higher} higher, {answers.lower} lower)" if answers.discordant else ""
    return f"{counted(answers.items, 'item')}{clusters}, {answers.discordant:,} {differ}{sides}"


def score_text(value: float, *, signed: bool = False) -> str:
    """Return a score to a thousandth; with `signed` a difference of scores, to a tenth of that where it is small."""
    if abs(value) < 5e-5:
        return "0"
    text = number(value) if abs(value) >= 10 else f"{value:.4f}" if abs(value) < 0.1 else f"{value:.3f}"
    return f"+{text}" if signed and value > 0 else text


def answers_basis(comparisons: Comparisons) -> list[str]:
    """Return the sentences that hold for all comparisons of answers; nothing without any."""
    shown = [compared for compared in comparisons.comparisons if compared.answers is not None]
    if not shown:
        return []
    margin = comparisons.quality_margin
    equal = (
        f" Equivalent: surely within {margin:g} of each other."
        if margin is not None
        else " Without `quality_margin` nothing is equivalent."
    )
    lines = [
        f"Scores: mean difference, new less baseline, over the same items; intervals at {_levels(shown)},"
        f" {_methods(shown)}.{equal}"
    ]
    return [*lines, *_left_out(shown)]


def _levels(shown: Sequence[Compared]) -> str:
    """Return the confidence of intervals: what the family needs of its members, which decides equivalence."""
    levels = sorted(
        {
            in_percent(compared.confidence, 3).rstrip(" %").rstrip("0").rstrip(".")
            for compared in shown
            if compared.confidence
        }
    )
    return f"{' and '.join(levels) or '-'} %"


def _methods(shown: Sequence[Compared]) -> str:
    words = {
        "mcnemar": "exact McNemar test of right and wrong answers with Tango's interval",
        "sign-flip": "sign-flip test of scores with the t interval of clusters",
    }
    errors = [
        compared.answers.p_error for compared in shown if compared.answers and compared.answers.p_error is not None
    ]
    drawn = f" (random signs, seeded: error of p at most {max(errors):.1g})" if errors else ""
    return "; ".join(dict.fromkeys(words[str(compared.method)] for compared in shown)) + drawn


def _left_out(shown: Sequence[Compared]) -> list[str]:
    sums = [compared.answers for compared in shown if compared.answers is not None]
    lines = []
    base, new = (max(answers.left_out[side] for answers in sums) for side in (0, 1))
    if base or new:
        lines.append(
            f"Only common items are compared: up to {base:,} of a baseline and {new:,} of another side are left out."
        )
    unusable = {
        side.treatment: count
        for compared in shown
        if compared.answers
        for side, count in zip((compared.base, compared.new), compared.answers.unusable, strict=True)
        if count
    }
    if total := sum(unusable.values()):
        lines.append(f"{counted(total, 'trial')} with unanswered items left out: invalid for quality.")
    return lines
