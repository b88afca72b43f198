"""Blocks of policies side by side: a row for each policy, a column for each combination of the other factors."""

from matplotlib.ticker import MaxNLocator

from seamark.model.results.comparison import Compared
from seamark.report.comparison import effect_text, p_text, reason_text, verdict_text
from seamark.report.figures.canvas import drawing, picture_of
from seamark.report.numbers import number, unit_words
from seamark.report.page.comparisons import draw_ratios, label_verdicts
from seamark.report.page.content import Block, Cell, Content, Picture, Table, absent, column
from seamark.report.source import ShownWorkload
from seamark_simulate.report.policies import PolicyMatrix, policy_matrices

MOST_METRICS, MOST_COLUMNS, MOST_DRAWN = 3, 12, 4


def policy_blocks(workload: ShownWorkload) -> list[Block]:
    """Return a figure and a table for each metric by which the policies of a workload are compared."""
    comparisons = workload.results.summary.comparisons
    if comparisons is None:
        return []
    blocks: list[Block] = []
    for matrix in policy_matrices(comparisons, workload.name)[:MOST_METRICS]:
        blocks += _pictures(matrix, workload, comparisons.margin)
        blocks.append(_table(matrix, workload, comparisons.family))
    return blocks


def _pictures(matrix: PolicyMatrix, workload: ShownWorkload, margin: float) -> list[Picture]:
    """Draw the ratio of each policy to the baseline with its interval; nothing without any ratio."""
    columns = matrix.columns[:MOST_DRAWN]
    policies = list(matrix.cells)
    shown = [cell for row in matrix.cells.values() for column, cell in row.items() if column in columns]
    if all(cell.ratio is None for cell in shown):
        return []
    lines = max(column.count(",") for column in columns) + 1
    with drawing(8.4, 0.3 * len(policies) + 1.25 + 0.13 * lines) as figure:
        axes = figure.subplots(1, len(columns), squeeze=False, sharex=True, sharey=True)[0]
        for axis, column in zip(axes, columns, strict=True):
            draw_ratios(axis, enumerate(matrix.cells[policy].get(column) for policy in policies), margin)
            axis.xaxis.set_major_locator(MaxNLocator(4))
            axis.set_title(column.replace(", ", "\n"), fontsize=8.5)
        axes[0].set_yticks(range(len(policies)), policies)
        axes[0].set_ylim(len(policies) - 0.5, -0.5)
        figure.supxlabel(f"{matrix.metric} in ratio to {matrix.base}", fontsize=8.5)
        label_verdicts(figure, axes[0], shown)
        more = len(matrix.columns) - len(columns)
        picture = picture_of(
            figure,
            f"{workload.stem}-policies-{matrix.metric.replace('.', '-').replace('_', '-')}",
            alt=f"{workload.name}: {matrix.metric} of policies in ratio to {matrix.base}",
            caption=f"{workload.name}: {matrix.metric} of each policy in ratio to {matrix.base}, with its exact"
            f" interval. The line is no difference, the band the margin of {100 * margin:g} % within which policies"
            f" are equivalent.{f' Not drawn: {more} more.' if more > 0 else ''}",
        )
    return [picture]


def _table(matrix: PolicyMatrix, workload: ShownWorkload, family: int) -> Table:
    """Return a row for each policy, the baseline with its medians first."""
    shown = matrix.columns[:MOST_COLUMNS]
    policies = list(matrix.cells)
    unit = unit_words(matrix.unit)
    columns = [column("policy", [f"{matrix.base} (baseline)", *policies])]
    for name in shown:
        cells = [_cell(matrix.cells[policy].get(name), family) for policy in policies]
        given: list[Content] = [matrix.medians[name], *cells]
        head = name or matrix.metric
        columns.append(column(head, given, why="no figures", shown=lambda value: f"{number(value)} {unit}".strip()))
    more = len(matrix.columns) - len(shown)
    notes = [
        "Of the baseline the median over repetitions, of the others the ratio to it. Intervals, p and verdicts are"
        " those of Comparisons."
    ]
    notes += [f"{more} more combinations are among the comparisons."] if more > 0 else []
    return Table(
        columns=tuple(columns), caption=f"{workload.name}: policies by {matrix.metric}", footnotes=tuple(notes)
    )


def _cell(each: Compared | None, family: int) -> Cell:
    if each is None:
        return absent("not compared")
    text = ", ".join(filter(None, (effect_text(each), verdict_text(each))))
    title = ". ".join(filter(None, (p_text(each, family), reason_text(each))))
    return Cell(text=text, title=title or None)
