"""Text for a terminal: the summary table of `bench submit`, and the result of `bench load`."""

import math
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from seamark.model.objectives import MAKESPAN, RUN_TIME, SEARCH_FOUND
from seamark.model.origin import any_virtual
from seamark.model.plurals import counted, in_percent
from seamark.model.results.summary import SearchSummary, Summary, SummaryRow
from seamark.model.results.times import Times
from seamark.model.results.trial_metrics import KindFigures, TrialMetrics
from seamark.model.service import Value
from seamark.report.asked import RESPONSE, asked_groups, figure_column
from seamark.report.numbers import (
    ABSENT,
    MEAN_NOTE,
    RANGE_NOTE,
    SEARCHED,
    UNSTEADY_NOTE,
    aligned,
    bracket,
    errors_text,
    level,
    number,
    range_text,
    saturation_mark,
    span,
    statistic,
    time_unit,
    unit_of,
    unit_words,
)
from seamark.report.ordering import ORIGIN, SERVER, in_order, mixture, simulated_services
from seamark.stats.histogram import Histogram

COLOURS = {"VALID": "green", "SUSPECT": "yellow", "INVALID": "red"}
MIDDLE, WIDE = 100, 130
"""Terminal widths from which units are named, and all columns are shown."""
NARROWEST = 8
"""Least width of a text that is folded, where the terminal is narrower than all that is always shown."""


@dataclass(frozen=True, kw_only=True)
class _Column:
    """A column of the summary table; of those that do not fit, the one with the highest `spare` is left out first."""

    head: str
    cells: Sequence[str | Text]
    spare: int = 0
    left: bool = False
    folds_at: int | None = None

    @property
    def longest(self) -> int:
        """Width of its longest cell."""
        return max(cell_len(str(text)) for text in (self.head, *self.cells))

    @property
    def least(self) -> int:
        """Least width, at which texts are folded."""
        return self.longest if self.folds_at is None else min(self.longest, self.folds_at)


def summary_table(summary: Summary, width: int | None = None) -> Table:
    """Return a row for each treatment of a summary; a withheld number is an en dash.

    What the scenario compares stands first. Where `width` (that of the terminal, unless given) is small, spread, p95
    and repetitions are left out, and then what else does not fit, the verdict last. What a search reached stands
    beside the load that it found only where there is room. Lower bounds and percentiles of saturated trials are
    marked; the caption says with what. Programs have a run time in place of percentiles, simulated schedules a
    makespan beside them.
    """
    available = width or shutil.get_terminal_size().columns
    rows = in_order(summary)
    asked = asked_groups(summary.comparisons, rows)
    for units, wide in ((available >= MIDDLE, available >= WIDE), (available >= MIDDLE, False), (False, False)):
        columns = _columns(rows, asked, units=units, wide=wide)
        if _width(columns) <= available:
            break
    for column in sorted((column for column in columns if column.spare), key=lambda column: -column.spare):
        if _width(columns) > available:
            columns.remove(column)
    table = Table(header_style="bold", pad_edge=False, box=None, padding=(0, 1))
    room = available - _width(columns)
    for column in columns:
        chosen = column.least
        if column.folds_at is not None:
            chosen = max(NARROWEST, min(column.longest, column.least + room))
            room -= chosen - column.least
        table.add_column(column.head, justify="left" if column.left else "right", overflow="fold", width=chosen)
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    notes = _captions(summary, columns)
    table.caption = Text("\n".join(sorted(notes)), justify="left") if notes else None
    return table


def _width(columns: Sequence[_Column]) -> int:
    """Return the least width of a table, as Rich counts it: each column has a space at both sides."""
    return sum(column.least + 2 for column in columns)


def _columns(rows: Sequence[SummaryRow], asked: Sequence[str], *, units: bool, wide: bool) -> list[_Column]:
    """Return the columns in their order, first what is `asked`; with `units` those are named, with `wide` nothing is
    left out."""
    programs = all(row.component == "program" for row in rows)
    workloads = [row.workload for row in rows]
    if not units and len(_units(rows)) > 1:  # no room for a column of them
        workloads = [", ".join(filter(None, (row.workload, unit_words(row.throughput.unit)))) for row in rows]
    again = [at > 0 and name == workloads[at - 1] for at, name in enumerate(workloads)]
    names = [Text("" if same else name) for name, same in zip(workloads, again, strict=True)]
    levels = [Text(_levels(row.factors) or ABSENT) for row in rows]
    verdicts = [Text(row.verdict, style=COLOURS.get(row.verdict, "")) for row in rows]
    figures: dict[str, list[_Column]] = {name: [] for name in asked}
    if any(row.search for row in rows):
        figures[SEARCH_FOUND] = [
            _Column(head="largest load" if units else "found", cells=[_found(row.search, units) for row in rows]),
            _Column(head="between", cells=[bracket(row.search, confidence=units) for row in rows]),
        ]
    if wide or SEARCH_FOUND not in figures or asked[0] == "throughput":
        figures["throughput"] = _throughput(rows, units=units, wide=wide)
    planned = any(MAKESPAN in row.quality for row in rows)
    for name, head, has_it in ((RUN_TIME, "run time s", programs), (MAKESPAN, "makespan s", planned)):
        if has_it:
            figures[name] = [_Column(head=head, cells=[number(row.quality.get(name)) for row in rows])]
    if not programs:
        shown: tuple[str, ...] = ("p50", "p99") if units or SEARCH_FOUND not in figures else ("p99",)
        shown = ("p50", "p95", "p99") if wide else shown
        figures[RESPONSE] = [_percentile(rows, name, asked=RESPONSE in asked) for name in shown]
    for name in asked:
        if not figures[name]:
            head, unit, texts = figure_column(rows, name)
            figures[name] = [_Column(head=f"{head} {unit}".strip(), cells=texts)]
    columns = [_Column(head="workload", cells=names, left=True, folds_at=16)]
    if any_virtual(rows):
        spare = 1 if len({row.origin for row in rows}) == 1 else 0  # the caption says it too
        columns.append(_Column(head=ORIGIN, cells=[row.origin for row in rows], left=True, spare=spare))
    columns.append(_Column(head="factors", cells=levels, left=True, folds_at=20))
    columns += [column for group in figures.values() for column in group]
    columns.append(_Column(head="err %", cells=[errors_text(row.errors) for row in rows], spare=2))
    if wide:
        columns.append(_Column(head="ok", cells=[f"{row.repetitions}/{row.planned}" for row in rows]))
    columns.append(_Column(head="verdict", cells=verdicts, left=True))
    return columns


def _throughput(rows: Sequence[SummaryRow], *, units: bool, wide: bool) -> list[_Column]:
    """Return the throughput with its unit: in a column where there is room for `units`, else in the head, or with the
    workload where it differs."""
    names = _units(rows)
    head = names[0] if len(names) == 1 and not units else "throughput"
    spare = 4 if not units and any(MAKESPAN in row.quality for row in rows) else 0
    columns = [_Column(head=head, cells=[number(row.throughput.median) for row in rows], spare=spare)]
    if not units:
        return columns
    if wide:
        spans = [span(row.throughput.min, row.throughput.max) for row in rows]
        columns.append(_Column(head="min – max", cells=spans))
    return [*columns, _Column(head="", cells=[Text(unit_words(row.throughput.unit)) for row in rows], left=True)]


def _units(rows: Sequence[SummaryRow]) -> list[str]:
    return list(dict.fromkeys(unit_words(row.throughput.unit) for row in rows if row.throughput.unit))


def _percentile(rows: Sequence[SummaryRow], name: str, *, asked: bool) -> _Column:
    unit, factor = time_unit([row.latency_ms for row in rows], (name,))
    cells = []
    for row in rows:
        few = row.latency_ms is not None and row.latency_ms.statistic(name) is None
        text = f"{statistic(row.latency_ms, name, factor)}{saturation_mark(row.codes)}"
        cells.append(Text(text, style="dim" if few else ""))
    return _Column(head=f"{name} {unit}", cells=cells, spare=0 if asked else {"p50": 5, "p99": 3}.get(name, 0))


def verdicts_text(summary: Summary) -> str | None:
    """Return how many trials are not VALID, with the number of trials for each reason, the most frequent first:
    `28 SUSPECT: busy_elsewhere 28, no_steady_state 12`; None where all are."""
    verdicts = [f"{count} {name}" for name, count in summary.verdicts.items() if name != "VALID" and count]
    reasons = Counter[str]()
    for row in summary.treatments:
        reasons.update({reason.code: reason.count for reason in row.reasons if reason.severity != "note"})
    said = ", ".join(f"{code} {count}" for code, count in reasons.most_common())
    return f"{', '.join(verdicts)}{f': {said}' if said else ''}" if verdicts else None


def _captions(summary: Summary, columns: Sequence[_Column]) -> set[str]:
    """Return what is said below the table: of simulated services, several servers, and the marks of its figures."""
    shown = {column.head.removesuffix(" ms").removesuffix(" s") for column in columns}
    notes: set[str] = {warning} if (warning := mixture(summary)) else set()
    if simulated := simulated_services(summary):
        notes.add(f"Simulated, not measured: {', '.join(simulated)}.")
    for row in summary.treatments:
        times = row.latency_ms and any(map(row.latency_ms.is_range, shown & {"p50", "p95", "p99"}))
        if times or ("err %" in shown and row.errors.is_range("rate")):
            notes.add(RANGE_NOTE)
        if saturation_mark(row.codes):
            notes.add(UNSTEADY_NOTE)
    return notes


def _found(search: SearchSummary | None, units: bool) -> str:
    """Return the load that a search found, with its unit where there is room for `units`."""
    if search is None or search.found.median is None:
        return ABSENT
    return f"{number(search.found.median)}{f' {SEARCHED[search.setting]}' if units else ''}"


def _levels(factors: Mapping[str, Value]) -> str:
    """Return a treatment's levels; numbers are preceded by the name of their factor."""
    words = []
    for name, value in factors.items():
        if name == ORIGIN:
            continue
        text = level(value, name)
        words.append(text if isinstance(value, str) and name != SERVER else f"{name}={text}".replace(" ", ""))
    return " ".join(words)


BARS = 14
WIDTH = 44
STATUSES = 3
TIMES = {
    "latency_ms": "response time",
    "service_time_ms": "service time",
    "ttft_ms": "TTFT",
    "ttft_response_ms": "TTFT response",
    "ttfo_ms": "TTFO",
    "tpot_ms": "TPOT",
    "inter_chunk_ms": "inter-chunk",
}
AS_TTFT = ("ttft_response_ms", "ttfo_ms")
"""Left out where equal to TTFT: in a closed loop, and without reasoning."""
OF_KIND = {"latency_ms": "resp.", "ttft_ms": "TTFT", "tpot_ms": "TPOT"}
QUANTILES = ("mean", "p50", "p90", "p99", "p999", "max")


def quick_load_text(
    metrics: TrialMetrics, response: Histogram | None, statuses: Mapping[str, Counter[int]] | None = None
) -> str:
    """Return the summary of a trial's metrics; `response` has response times in ns, `statuses` the HTTP
    statuses of failed requests by the category of their failure."""
    counts, window = metrics.counts, metrics.window
    lines = [
        f"{counted(counts.requests or 0, 'request')} in {number(window.length_s)} s of "
        f"{metrics.config['pattern']} load ({window.rule}), {counts.ok:,} good, "
        f"{counts.failed:,} failed, {counts.unfinished:,} unfinished",
        f"{number(metrics.requests_per_s)} requests/s, {number(metrics.throughput.value)} "
        f"{metrics.throughput.unit.replace('_per_s', '/s')}"
        + (f", {number(metrics.bandwidth.mb_per_s)} MB/s" if metrics.bandwidth else ""),
    ]
    if sessions := metrics.sessions:
        lines.append(
            f"{number(sessions.per_s)} whole sessions/s of {metrics.config['turns']} turns, "
            f"{number(sessions.begun_per_s)} begun, {sessions.broken} broken by a failure"
        )
    if lag := metrics.schedule_lag_ms:
        offered, achieved = number(metrics.offered_rps), number(metrics.achieved_rps)
        lines.append(
            f"offered {offered}, achieved {achieved} requests/s; sent {_us(lag.p50)} late (p50), {_us(lag.p99)} (p99)"
        )
    mark = " †" if metrics.saturated else ""
    groups: dict[str, Times] = {group: times for group in TIMES if (times := getattr(metrics, group))}
    if counts.ok or metrics.latency_ms.is_conditional:
        unit, factor = time_unit(groups.values(), QUANTILES)
        rows = [[unit, *QUANTILES]]
        for group, times in groups.items():
            if group not in AS_TTFT or times != metrics.ttft_ms:
                rows.append([TIMES[group] + mark, *(statistic(times, q, factor) for q in QUANTILES)])
        lines += ["", *aligned(rows)]
    lines += _kinds(metrics.by_kind or {}, mark)
    of_kinds = [getattr(kind, group) for kind in (metrics.by_kind or {}).values() for group in OF_KIND]
    notes = {
        RANGE_NOTE: any(
            times.is_range(q) for times in (*groups.values(), *filter(None, of_kinds)) for q in QUANTILES
        ),
        MEAN_NOTE: any(times.is_conditional for times in groups.values()),
        UNSTEADY_NOTE: bool(mark),
    }
    lines += [note for note, needed in notes.items() if needed]
    if response is not None and response.count:
        lines += ["", *_bars(response)]
    failed = {name: count for name, count in metrics.errors.by_category.items() if count}
    if failed:
        said = (f"{name} {count}{_of_statuses((statuses or {}).get(name))}" for name, count in failed.items())
        lines += ["", "failures: " + ", ".join(said)]
        lines += [f"  {code} ({seen.count}): {seen.words}" for code, seen in (metrics.errors.own or {}).items()]
    for slo in metrics.slos:
        met = "unknown" if slo.met is None else "met" if slo.met else "missed"
        value = range_text(slo.known) if slo.known else ABSENT
        lines.append(f"objective {slo.metric} {slo.op} {slo.limit:g}: {value}, {met}")
    lines += ["", metrics.verdict]
    lines += [f"  {reason.code}: {reason.text}. {reason.remedy}".rstrip() for reason in metrics.reasons]
    return "\n".join(lines)


def _kinds(by_kind: Mapping[str, KindFigures], mark: str) -> list[str]:
    """Return a line for each kind of request; `mark` is appended to times."""
    if not by_kind:
        return []
    shown = [(f"{name} {q}", group, q) for group, name in OF_KIND.items() for q in ("p50", "p99")]
    shown = [column for column in shown if any(getattr(kind, column[1]) for kind in by_kind.values())]
    unit, factor = time_unit([getattr(kind, group) for kind in by_kind.values() for group in OF_KIND], ("p50", "p99"))
    rows = [[unit, "requests", "failed", *(title + mark for title, _, _ in shown)]]
    for name, kind in by_kind.items():
        times = (statistic(getattr(kind, group), q, factor) for _, group, q in shown)
        rows.append([name, f"{kind.requests:,}", f"{kind.failed:,}", *times])
    return ["", *aligned(rows)]


def _of_statuses(statuses: Counter[int] | None) -> str:
    """Return the commonest statuses of a category as ' (HTTP 404, 410)', '' where there are none."""
    if not statuses:
        return ""
    shown = [str(status) for status, _ in statuses.most_common(STATUSES)]
    return f" (HTTP {', '.join(shown)}{', ...' if len(statuses) > STATUSES else ''})"


def _bars(histogram: Histogram) -> list[str]:
    """Return a bar for each row of a histogram: how many took no longer than its bound, and longer than the last."""
    rows = histogram.rows(min(BARS, 1 + math.ceil(math.log2(histogram.count + 1))))
    largest = max(count for _, count in rows)
    unit, factor = unit_of([upper / 1e6 for upper, _ in rows])
    bounds = _distinct([factor * upper / 1e6 for upper, _ in rows])
    return [
        f"<={bound:>10} {unit} {'#' * round(WIDTH * count / largest):<{WIDTH}}"
        f" {in_percent(count / histogram.count, 2):>8}"
        for bound, (_, count) in zip(bounds, rows, strict=True)
    ]


def _distinct(values: list[float]) -> list[str]:
    """Return rising numbers with enough digits to differ from each other."""
    texts = [number(value) for value in values]
    for digits in range(4, 10):
        if len(set(texts)) == len(texts):
            break
        texts = [f"{value:.{digits}g}" for value in values]
    return texts


def _us(value_ms: float | None) -> str:
    return ABSENT if value_ms is None else f"{number(value_ms * 1e3)} us"
