"""Policies side by side: the comparisons of one metric, by policy and by the levels of all other factors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seamark.model.results.comparison import Compared, Comparisons
from seamark.report.numbers import level, levels_text

POLICY = "policy"


@dataclass(frozen=True, kw_only=True)
class PolicyMatrix:
    """Comparisons of policies with the baseline `base` by one metric. `medians` are those of the baseline by column;
    `cells` are by policy, then by column."""

    metric: str
    unit: str
    base: str
    columns: tuple[str, ...]
    medians: Mapping[str, float | None]
    cells: Mapping[str, Mapping[str, Compared]]


def policy_matrices(found: Comparisons | None, workload: str) -> list[PolicyMatrix]:
    """Return a matrix for each metric by which policies of a workload are compared, those of the family first."""
    own = [each for each in found.comparisons if each.factor == POLICY] if found is not None else []
    own = [each for each in own if each.workload == workload]
    own.sort(key=lambda each: not each.in_family)
    return [
        _matrix([each for each in own if each.metric == name]) for name in dict.fromkeys(each.metric for each in own)
    ]


def _matrix(own: Sequence[Compared]) -> PolicyMatrix:
    cells: dict[str, dict[str, Compared]] = {}
    medians: dict[str, float | None] = {}
    for each in own:
        column = levels_text(each.fixed)
        medians.setdefault(column, each.base.median)
        cells.setdefault(level(each.new.level, POLICY), {})[column] = each
    first = own[0]
    return PolicyMatrix(
        metric=first.metric,
        unit=first.unit,
        base=level(first.base.level, POLICY),
        columns=tuple(medians),
        medians=medians,
        cells=cells,
    )
