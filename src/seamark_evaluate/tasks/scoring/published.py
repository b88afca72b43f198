"""Figures of a whole task as its benchmark publishes them, where they are no mean of its answers' scores. Pure."""

from collections.abc import Mapping, Sequence
from math import prod
from statistics import fmean
from typing import Any

Column = Sequence[Any]
"""A value for each answer, None where it has none."""
LENGTHS = (("0-4k", 4000), ("4-8k", 8000), ("8k+", None))
"""Ranges of the fact `length`, in words, each with its end (LongBench's eval.py, `scorer_e`)."""
ROUGES = ("rouge1", "rouge2", "rougel")


def published_figures(
    task: str, scorer: str, scores: Mapping[str, Column], facts: Mapping[str, Column]
) -> Mapping[str, float]:
    """Return the published figures of a task by name, from 0 to 1; none where they are the means of the scores.

    `cloze` (LooGLE): right masks over all masks, so that a question counts by its masks. `rouge_geometric`
    (ZeroSCROLLS): geometric mean of the means of three ROUGE scores. Subsets of LongBench-E (`longbench/*_e`): the
    mean by the length of the context, in ranges that have a question.
    """
    if scorer == "cloze":
        return _by_masks(scores)
    if scorer == "rouge_geometric":
        means = [_mean(scores.get(name, ())) for name in ROUGES]
        known = [mean for mean in means if mean is not None]
        return {"geometric_mean": prod(known) ** (1 / len(ROUGES))} if len(known) == len(ROUGES) else {}
    if task.startswith("longbench/") and task.endswith("_e"):
        return _by_length(scores.get("score", ()), facts.get("length", ()))
    return {}


def _by_masks(scores: Mapping[str, Column]) -> Mapping[str, float]:
    found = {}
    for name in ("score", "partial"):
        pairs = [
            (value, masks)
            for value, masks in zip(scores.get(name, ()), scores.get("masks", ()), strict=False)
            if value is not None and masks
        ]
        if pairs:
            weighted = sum(value * masks for value, masks in pairs) / sum(masks for _, masks in pairs)
            found[f"{name}_by_masks"] = weighted
    return found


def _by_length(scores: Column, lengths: Column) -> Mapping[str, float]:
    ranges: dict[str, list[float]] = {name: [] for name, _ in LENGTHS}
    for score, length in zip(scores, lengths, strict=False):
        if score is not None and length is not None:
            ranges[next(name for name, end in LENGTHS if end is None or float(length) < end)].append(score)
    return {name: fmean(group) for name, group in ranges.items() if group}


def _mean(column: Column) -> float | None:
    known = [value for value in column if value is not None]
    return fmean(known) if known else None
