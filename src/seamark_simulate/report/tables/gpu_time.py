"""Table of schedules: time of the GPUs, loads and switches, queue, and waits by cause, a row for each treatment."""

from collections.abc import Callable, Sequence

from seamark.model.results.summary import SummaryRow
from seamark.report.numbers import number, percent
from seamark.report.page.content import Column, Table, figures, known
from seamark.report.tables.by_treatment import factor_columns
from seamark_simulate.report.figures.gpu_time import is_shown
from seamark_simulate.report.schedules import Schedules

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
