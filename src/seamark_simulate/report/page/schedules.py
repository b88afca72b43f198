"""Blocks of schedules of workflows, with Gantt charts, use and queue over time, time of GPUs and waits, and of
policies side by side."""

from collections.abc import Callable, Sequence
from pathlib import Path

from seamark.model.results.comparison import Compared
from seamark.model.results.summary import SummaryRow
from seamark.report.comparison import effect_text, p_text, reason_text, verdict_text
from seamark.report.numbers import number, percent, unit_words
from seamark.report.page.content import Block, Cell, Column, Table, Text, absent, column, figures, known
from seamark.report.source import Results
from seamark.report.tables.by_treatment import factor_columns
from seamark_simulate.report.figures.gantt import gantt_pictures
from seamark_simulate.report.figures.gpu_course import course_pictures
from seamark_simulate.report.figures.gpu_time import gpu_time_picture, is_shown
from seamark_simulate.report.figures.policies import policy_picture
from seamark_simulate.report.policies import PolicyMatrix, policy_matrices
from seamark_simulate.report.schedules import Schedules, schedules_of


def schedule_blocks(
    results: Results, workload: str, treatments: Sequence[SummaryRow], stem: str, folder: Path
) -> list[Block]:
    """Return figures and table of a workload's schedules; only the reason where none can be read."""
    schedules = schedules_of(results, treatments)
    notes = [Text(text=text, kind="note") for text in schedules.notes]
    if not schedules.shown:
        return [*notes]
    return [
        *gantt_pictures(schedules.shown, workload, stem, folder),
        *course_pictures(schedules, workload, stem, folder),
        gpu_time_picture(schedules, workload, stem, folder),
        gpu_time_table(schedules, treatments, f"{workload}: time of the GPUs and waits"),
        *notes,
    ]


NOTES = (
    "Execution, load, switch and idle are shares of makespan × GPUs. Loads are first loads of empty GPUs,"
    " switches changes of the model on the first GPU of an execution. Queue: nodes that are ready and have no GPUs.",
    "Waits are seconds a node, on average over all executions. Predecessors: from the arrival of the request until"
    " the node is ready. From then until the node has its k GPUs, each moment counts as one of three: fewer than k"
    " GPUs are free; k are free, but no k neighbours; or held back: k neighbours are free, but the policy waits for"
    " other nodes or GPUs, or these GPUs do not suit the node.",
)
PERCENT: tuple[tuple[str, str], ...] = (
    ("run_ratio", "execution"),
    ("load_ratio", "load"),
    ("switch_ratio", "switch"),
    ("transfer_ratio", "transfer"),
    ("idle_ratio", "idle"),
)
NUMBERS: tuple[tuple[str, str, str], ...] = (
    ("loads", "loads", ""),
    ("load_s", "loads", "s"),
    ("switches", "switches", ""),
    ("switch_s", "switches", "s"),
    ("queue_mean", "queue", "mean"),
    ("queue_most", "queue", "most"),
    ("lacking_s", "too few free", "s"),
    ("apart_s", "not neighbours", "s"),
    ("held_back_s", "held back", "s"),
    ("predecessors_s", "predecessors", "s"),
)


def gpu_time_table(found: Schedules, treatments: Sequence[SummaryRow], caption: str) -> Table:
    """Return a row for each treatment that is shown."""
    rows = [schedule.treatment for schedule in found.shown]

    def of(name: str, title: str, unit: str, shown: Callable[[float], str]) -> Column:
        cells = [known(shown(getattr(schedule, name))) for schedule in found.figures]
        return figures(title, cells, unit)

    columns = (
        *factor_columns(rows, treatments),
        *(of(name, title, "%", percent) for name, title in PERCENT if is_shown(name, found.figures)),
        *(of(name, title, unit, _count if unit in ("", "most") else number) for name, title, unit in NUMBERS),
    )
    repeated = f"Medians over {_range(found.trials)} repetitions." if max(found.trials, default=1) > 1 else ""
    return Table(columns=columns, caption=caption, footnotes=(*NOTES, *([repeated] if repeated else [])))


def _count(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


MOST_METRICS = 3


def policy_blocks(
    results: Results, workload: str, treatments: Sequence[SummaryRow], stem: str, folder: Path
) -> list[Block]:
    """Return a figure and a table for each metric by which the policies of a workload are compared."""
    comparisons = results.summary.comparisons
    blocks: list[Block] = []
    for matrix in policy_matrices(comparisons, workload)[:MOST_METRICS]:
        assert comparisons is not None
        picture = policy_picture(matrix, workload, comparisons.margin, stem, folder)
        blocks += [*([picture] if picture else []), policy_table(matrix, workload, comparisons.family)]
    return blocks


MOST_COLUMNS = 12


def policy_table(matrix: PolicyMatrix, workload: str, family: int) -> Table:
    """Return a row for each policy, the baseline with its medians first."""
    shown = matrix.columns[:MOST_COLUMNS]
    policies = list(matrix.cells)
    unit = unit_words(matrix.unit)
    columns = [column("policy", [f"{matrix.base} (baseline)", *policies])]
    for name in shown:
        median = matrix.medians[name]
        base = absent("no figures") if median is None else Cell(text=f"{number(median)} {unit}".strip())
        cells = [base, *(_cell(matrix.cells[policy].get(name), family) for policy in policies)]
        columns.append(column(name or matrix.metric, cells))
    more = len(matrix.columns) - len(shown)
    notes = [
        "Of the baseline the median over repetitions, of the others the ratio to it. Intervals, p and verdicts are"
        " those of Comparisons."
    ]
    notes += [f"{more} more combinations are among the comparisons."] if more > 0 else []
    return Table(columns=tuple(columns), caption=f"{workload}: policies by {matrix.metric}", footnotes=tuple(notes))


def _cell(each: Compared | None, family: int) -> Cell:
    if each is None:
        return absent("not compared")
    text = ", ".join(filter(None, (effect_text(each), verdict_text(each))))
    title = ". ".join(filter(None, (p_text(each, family), reason_text(each))))
    return Cell(text=text, title=title or None)
