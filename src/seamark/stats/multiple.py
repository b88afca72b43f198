"""p values of several tests at once: adjusted so that a family keeps the error rate of one test."""

from collections.abc import Sequence


def holm(ps: Sequence[float]) -> list[float]:
    """Return p values adjusted by Holm's step-down method: the family-wise error rate, under any dependence."""
    adjusted = [0.0] * len(ps)
    highest = 0.0
    for place, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, (len(ps) - place) * ps[index]))
        adjusted[index] = highest
    return adjusted


def benjamini_hochberg(ps: Sequence[float]) -> list[float]:
    """Return p values adjusted for the false discovery rate, for independent tests."""
    if not ps:
        return []
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(list(ps), method="bh")]
