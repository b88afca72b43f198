"""Comparison of two groups as a family of one, for tests that compare nothing else."""

from typing import Any

from seamark.stats.compare import ALPHA, MARGIN, Comparison, Direction, Group, Margin, compare_family


def compare(
    base: Group, new: Group, *, better: Direction, margin: float = MARGIN, alpha: float = ALPHA
) -> Comparison:
    """Compare two groups; ValueError if one is empty."""
    family: dict[Any, Comparison] = compare_family(
        {None: (base, new)}, better=better, margin=Margin(value=margin), alpha=alpha
    )
    return family[None]
