"""Intervals around predictions from how far earlier predictions were off, without a model of the errors. Pure."""

from collections.abc import Sequence
from math import ceil


def half_width(residuals: Sequence[float], confidence: float) -> float | None:
    """Return the half-width of the split-conformal interval by the absolute residuals of a calibration.

    The next prediction is off by no more with a probability of at least `confidence`, if it could as well have been
    one of the calibration: exchangeable. None where there are too few residuals: 90 % takes nine. Lei et al.,
    Distribution-Free Predictive Inference for Regression, JASA 113, 2018.
    """
    rank = ceil(round((len(residuals) + 1) * confidence, 9))
    return sorted(map(abs, residuals))[rank - 1] if 0 < rank <= len(residuals) else None
