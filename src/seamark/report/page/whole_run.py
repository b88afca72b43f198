"""Block of what each party did over its whole run, beside its figures in the window that all parties share."""

from collections.abc import Callable

from seamark.model.results.trial_metrics import PartFigures
from seamark.report.numbers import unit_of, unit_words
from seamark.report.page.content import Column, Table, figures
from seamark.report.page.replicas import median_of
from seamark.report.source import ShownWorkload
from seamark.report.tables.by_treatment import factor_columns

WITHHELD = "withheld: too few requests (p99 needs 1,000)"
NOTE = (
    "Medians over the repetitions, of all requests of the party from the first that was due to the last reply,"
    " warm-up and drain too. All other figures on this page are of the time in which all parties were sending."
)


def whole_run_blocks(workload: ShownWorkload) -> list[Table]:
    """Return length, requests, throughput and response times of each treatment of a party over its whole run."""
    found = [
        (row, [view.good for view in workload.results.trials_of(row) if view.good and view.good.whole_run])
        for row in workload.treatments
    ]
    shown = [(row, trials) for row, trials in found if trials]
    if not shown:
        return []

    def values(of: Callable[[PartFigures], float | None]) -> list[float | None]:
        return [median_of([of(one.whole_run) for one in trials if one.whole_run]) for _, trials in shown]

    def times(name: str) -> Column:
        return figures(
            name, [None if ms is None else factor * ms for ms in responses[name]], unit, "response time", why=WITHHELD
        )

    responses = {
        name: values(lambda one, name=name: one.latency_ms.statistic(name)) for name in ("p50", "p95", "p99")
    }
    unit, factor = unit_of([ms for column in responses.values() for ms in column])
    columns = (
        *factor_columns([row for row, _ in shown], workload.treatments),
        figures("whole run", values(lambda one: one.end_s - one.start_s), "s"),
        figures("requests", values(lambda one: one.requests), shown=lambda count: f"{count:,.0f}"),
        figures("failed", values(lambda one: one.failed), shown=lambda count: f"{count:,.0f}"),
        figures("throughput", values(lambda one: one.throughput), unit_words(shown[0][1][0].throughput.unit)),
        *map(times, responses),
    )
    return [Table(columns=columns, caption=f"{workload.name}: whole run", footnotes=(NOTE,))]
