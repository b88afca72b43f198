"""Estimate beside measurement of the same requests: one table, from the two schedules of a measured run."""

from collections.abc import Iterator, Sequence

import numpy as np

from seamark_simulate.simulation.executions import executions_of
from seamark_simulate.simulation.schedule import Schedule
from seamark_simulate.simulation.world import COMPLETED
from seamark_simulate.trials.measured.measured_run import MeasuredSimulation

MOST_ROWS = 40
"""More executions than this are shown by model."""
Row = Sequence[str]
HEAD: Row = ("request", "node", "model", "estimated s", "measured s", "ratio")


def beside_lines(run: MeasuredSimulation) -> list[str]:
    """Return the table: a row for each node, or for each model with the means of its nodes; then loads, switches and
    the makespan. Ratios are measured over estimated. Only nodes that did their work have a measured time."""
    of_nodes = len(run.measured.node) <= MOST_ROWS
    rows = list(_of_nodes(run.measured) if of_nodes else _of_models(run.measured))
    for name, estimated, measured in (
        ("first loads", run.estimated.is_cold, executions_of(run.measured).is_first_load),
        ("switches", run.estimated.is_switch, run.measured.is_switch),
    ):
        times = run.estimated.fetch_s[estimated].sum(), run.measured.fetch_s[measured].sum()
        rows.append((name, f"{int(estimated.sum())} and {int(measured.sum())}", "", *_figures(*times)))
    failed = " (of what ran)" if run.failed else ""
    rows.append((f"makespan{failed}", "", "", *_figures(run.estimated.makespan_s, run.measured.makespan_s)))
    head = HEAD if of_nodes else ("executions", "number", *HEAD[2:])
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return ["Estimate beside measurement:", *(_line(row, widths) for row in (head, *rows))]


def _line(row: Row, widths: Sequence[int]) -> str:
    """Return a row with texts to the left and figures to the right."""
    cells = [
        text.ljust(width) if column < 3 else text.rjust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  " + "  ".join(cells).rstrip()


def _of_nodes(measured: Schedule) -> Iterator[Row]:
    work, nodes = measured.work, measured.node.tolist()
    for node, duration_s, outcome in zip(nodes, measured.duration_s.tolist(), measured.outcome, strict=True):
        request, name = work.name_of(node)
        model, estimate_s = work.models[work.model[node]].id, work.estimate_s[node]
        if outcome == COMPLETED:
            yield (request.id, name, model, *_figures(estimate_s, duration_s))
        else:
            yield (request.id, name, model, f"{estimate_s:,.2f}", outcome, "")


def _of_models(measured: Schedule) -> Iterator[Row]:
    estimate_s = np.asarray(measured.work.estimate_s, np.float64)[measured.node]
    for number, model in enumerate(measured.work.models):
        done = (measured.model == number) & measured.is_completed
        if count := int(done.sum()):
            means = estimate_s[done].mean(), measured.duration_s[done].mean()
            yield ("mean of", f"{count:,}", model.id, *_figures(*means))


def _figures(estimated_s: float, measured_s: float) -> tuple[str, str, str]:
    ratio = f"{measured_s / estimated_s:.2f}" if estimated_s > 0 else "-"
    return f"{estimated_s:,.2f}", f"{measured_s:,.2f}", ratio
