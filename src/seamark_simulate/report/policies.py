"""Policies side by side: the comparisons of one metric, by policy and by the levels of all other factors."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seamark.model.results.comparison import Compared, Comparisons
from seamark.model.results.headline import Headline, HeadlineNumber
from seamark.model.results.summary import SummaryRow
from seamark.report.numbers import level, levels_text, number, unit_words

POLICY = "policy"
MOST_NUMBERS = 16
"""Numbers of a headline."""


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
    pairs = [pair for pair in found.comparisons if pair.factor == POLICY] if found is not None else []
    pairs = [pair for pair in pairs if pair.workload == workload]
    pairs.sort(key=lambda pair: not pair.in_family)
    return [
        _matrix([pair for pair in pairs if pair.metric == name])
        for name in dict.fromkeys(pair.metric for pair in pairs)
    ]


def _matrix(own: Sequence[Compared]) -> PolicyMatrix:
    cells: dict[str, dict[str, Compared]] = {}
    medians: dict[str, float | None] = {}
    for pair in own:
        column = levels_text(pair.fixed)
        medians.setdefault(column, pair.base.median)
        cells.setdefault(level(pair.new.level, POLICY), {})[column] = pair
    first = own[0]
    return PolicyMatrix(
        metric=first.metric,
        unit=first.unit,
        base=level(first.base.level, POLICY),
        columns=tuple(medians),
        medians=medians,
        cells=cells,
    )


def headline_of_policies(found: Comparisons, rows: Sequence[SummaryRow]) -> Headline | None:
    """Return the best policy of each case; None where no policies are compared, and without a median of any."""
    names = dict.fromkeys(row.workload for row in rows)
    matrices = [matrix for name in names for matrix in policy_matrices(found, name)[:1]]
    if not matrices:
        return None
    texts, best_ones, numbers = [], [], []
    verdicts: Counter[str] = Counter()
    for matrix in matrices:
        for column, base in matrix.medians.items():
            own = {name: cells[column] for name, cells in matrix.cells.items() if column in cells}
            medians = {matrix.base: base, **{name: cell.new.median for name, cell in own.items()}}
            known = {name: value for name, value in medians.items() if value is not None}
            if not known:
                continue
            order = sorted(known, key=known.__getitem__, reverse=next(iter(own.values())).better == "higher")
            unit = unit_words(matrix.unit)
            best, after = order[0], order[1] if len(order) > 1 else None
            best_ones.append(best)
            verdicts[(own[best].verdict if best in own else None) or "is itself the best"] += 1
            text = f"{number(known[best])} {unit}".strip()
            if column or len(matrices) > 1:  # a single case is named by what goes before
                text = f"{column + ': ' if column else ''}{best}, {text}"
            numbers.append(HeadlineNumber(name=f"{best} {column}".strip(), value=known[best], unit=unit))
            if after is not None:
                text += f", {_lead(known[best], known[after])} {after}"
                numbers.append(HeadlineNumber(name=f"next: {after} {column}".strip(), value=known[after], unit=unit))
            texts.append(text)
    if not best_ones:
        return None
    common, count = Counter(best_ones).most_common(1)[0]
    cases = len(best_ones)
    which = common if count == cases else f"{common} in {count} of {cases} cases"
    against = ", ".join(f"{verdict}{f' ({times})' if cases > 1 else ''}" for verdict, times in verdicts.items())
    return Headline(
        kind="policies",
        question="Which policy is best?",
        answer=f"Best policy by {matrices[0].metric}: {which} ({'; '.join(texts)}).",
        numbers=tuple(numbers[:MOST_NUMBERS]),
        certainty=f"The best against {matrices[0].base}: {against}. The margin over the next is one of medians.",
    )


def _lead(best: float, after: float) -> str:
    if best == after:
        return "level with"
    return f"{100 * abs(after / best - 1):.2g} % ahead of" if best else "ahead of"
