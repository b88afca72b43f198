"""Check of the repetitions of one treatment: whether they agree. No trial can be judged so by its own files alone."""

from collections.abc import Mapping
from statistics import median

from seamark.analysis.checks.findings import Reason

THROUGHPUT_FACTOR = 1.5
RESPONSE_FACTOR = 2.0
"""How many times more or less than the median a repetition may have. With a coefficient of variation of 10 % between
repetitions, 0.1 % of treatments of three and 0.4 % of treatments of two are beyond 1.5; at 5 % none of 100,000."""


def spread(values: Mapping[str, float], what: str, unit: str, factor: float) -> dict[str, Reason]:
    """Return a reason for each trial whose value is more than `factor` times above or below the median of all.

    `values` are those of the repetitions of one treatment, by trial. Of two that differ by more than `factor` both
    have a reason: nothing tells which of them is the odd one. Nothing comes of one value, or of a median of 0.
    """
    if len(values) < 2:
        return {}
    if len(values) == 2:
        low, high = sorted(values.values())
        odd = dict(values) if high > factor * low else {}
    else:
        middle = median(values.values())
        odd = {name: value for name, value in values.items() if middle > 0 and _beyond(value, middle, factor)}
    return {name: _reason(name, values, what, unit) for name in odd}


def _beyond(value: float, middle: float, factor: float) -> bool:
    return value > factor * middle or value * factor < middle


def _reason(name: str, values: Mapping[str, float], what: str, unit: str) -> Reason:
    value, others = values[name], [other for each, other in values.items() if each != name]
    if len(others) == 1:
        of = f"that of the other repetition {others[0]:.4g} {unit}"
    else:
        middle = median(values.values())
        of = f"the median of {len(values)} repetitions {middle:.4g} {unit} ({value / middle:.0%} of it)"
    return Reason(
        code="spread",
        severity="suspect",
        text=f"its {what} was {value:.4g} {unit}, {of}",
        remedy="See what else ran then, and the trial's other reasons; `bench retry TRIAL` measures it again.",
    )
