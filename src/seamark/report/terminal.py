"""Text for a terminal: the summary table of `bench submit`, and the result of `bench load`."""

import math
import shutil
from collections import Counter
from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from seamark.model.objectives import MAKESPAN
from seamark.model.plurals import counted
from seamark.model.results.summary import SearchSummary, Summary
from seamark.model.results.times import Times
from seamark.model.results.trial_metrics import KindFigures, TrialMetrics
from seamark.model.service import Value
from seamark.report.numbers import (
    ABSENT,
    BOUND_NOTE,
    MEAN_NOTE,
    SEARCHED,
    UNSTEADY_NOTE,
    bracket,
    level,
    number,
    percent,
    saturation_mark,
    span,
    statistic,
    unit_words,
)
from seamark.report.ordering import ORIGIN, SERVER, in_order, mixture, simulated_services
from seamark.stats.histogram import Histogram

COLOURS = {"VALID": "green", "SUSPECT": "yellow", "INVALID": "red"}
MIDDLE, WIDE = 100, 130
"""Terminal widths from which units are named, and all columns are shown."""


def summary_table(summary: Summary, width: int | None = None) -> Table:
    """Return a row for each treatment of a summary; a withheld number is an en dash.

    Where `width` (that of the terminal, unless given) is small, units, spread, p95 and repetitions are left out.
    Of a search the load that was found comes first, with its bracket, and what it reached only where there is room.
    Lower bounds and percentiles of saturated trials are marked; the caption says with what. Programs have a run time
    in place of percentiles, simulated schedules a makespan beside them.
    """
    columns = width or shutil.get_terminal_size().columns
    wide, units = columns >= WIDE, columns >= MIDDLE
    table = Table(header_style="bold", pad_edge=False, box=None, padding=(0, 1))
    table.add_column("workload", no_wrap=True)
    simulated = simulated_services(summary)
    if simulated:
        table.add_column(ORIGIN, no_wrap=True)
    table.add_column("factors", overflow="fold", min_width=20)
    searched = any(row.search for row in summary.treatments)
    if searched:
        table.add_column("largest load" if units else "found", justify="right", no_wrap=True)
        table.add_column("between", justify="right", no_wrap=True)
    reached = wide or not searched
    if reached:
        table.add_column("throughput" if units else "units/s", justify="right", no_wrap=True)
    if wide:
        table.add_column("min – max", justify="right", no_wrap=True)
    if reached and units:
        table.add_column("", no_wrap=True)
    names: tuple[str, ...] = ("p50", "p95", "p99") if wide else ("p50", "p99") if units or not searched else ("p99",)
    if programs := all(row.component == "program" for row in summary.treatments):
        names = ()
        table.add_column("run time s", justify="right", no_wrap=True)
    if schedules := any(MAKESPAN in row.quality for row in summary.treatments):
        table.add_column("makespan s", justify="right", no_wrap=True)
    for name in names:
        table.add_column(f"{name} ms", justify="right", no_wrap=True)
    table.add_column("err %", justify="right", no_wrap=True)
    if wide:
        table.add_column("ok", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    last = None
    marks: set[str] = {warning} if (warning := mixture(summary)) else set()
    if simulated:
        marks.add(f"Simulated, not measured: {', '.join(simulated)}.")
    for row in in_order(summary):
        throughput, latency, workload = row.throughput, row.latency_ms, row.workload
        mark = saturation_mark(row.codes)
        bounded = latency is not None and any(map(latency.is_lower_bound, names))
        marks |= {note for note, sign in ((BOUND_NOTE, bounded), (UNSTEADY_NOTE, mark)) if sign}
        table.add_row(
            Text("" if workload == last else workload),
            *([row.origin] if simulated else []),
            Text(_levels(row.factors) or ABSENT),
            *(_found(row.search, units=units) if searched else ()),
            *([number(throughput.median)] if reached else []),
            *([span(throughput.min, throughput.max)] if wide else []),
            *([Text(unit_words(throughput.unit))] if reached and units else []),
            *([number(row.quality.get("run_time_s"))] if programs else []),
            *([number(row.quality.get(MAKESPAN))] if schedules else []),
            *(Text(f"{statistic(latency, name)}{mark}") for name in names),
            percent(row.errors.rate),
            *([f"{row.repetitions}/{row.planned}"] if wide else []),
            Text(row.verdict, style=COLOURS.get(row.verdict, "")),
        )
        last = workload
    table.caption = Text("\n".join(sorted(marks)), justify="left") if marks else None
    return table


def _found(search: SearchSummary | None, *, units: bool) -> tuple[str, str]:
    """Return the load that a search found and its bracket; without `units` neither the unit nor the confidence."""
    if search is None or search.found.median is None:
        return ABSENT, bracket(search, confidence=units)
    unit = f" {SEARCHED[search.setting]}" if units else ""
    return f"{number(search.found.median)}{unit}", bracket(search, confidence=units)


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
    if counts.ok or metrics.latency_ms.is_conditional:
        lines += ["", f"{'ms':<15}" + "".join(f"{name:>10}" for name in QUANTILES)]
        for group, name in TIMES.items():
            times = getattr(metrics, group)
            if times and (group not in AS_TTFT or times != metrics.ttft_ms):
                figures = (statistic(times, q) for q in QUANTILES)
                lines.append(f"{name + mark:<15}" + "".join(f"{figure:>10}" for figure in figures))
    lines += _kinds(metrics.by_kind or {}, mark)
    lines += _notes(metrics, mark)
    if response is not None and response.count:
        lines += ["", *_bars(response)]
    failed = {name: count for name, count in metrics.errors.by_category.items() if count}
    if failed:
        said = (f"{name} {count}{_of_statuses((statuses or {}).get(name))}" for name, count in failed.items())
        lines += ["", "failures: " + ", ".join(said)]
    for slo in metrics.slos:
        met = "unknown" if slo.met is None else "met" if slo.met else "missed"
        value = f"{'≥ ' if slo.lower_bound else ''}{number(slo.value)}"
        lines.append(f"objective {slo.metric} {slo.op} {slo.limit:g}: {value}, {met}")
    lines += ["", metrics.verdict]
    lines += [f"  {reason.code}: {reason.text}. {reason.remedy}".rstrip() for reason in metrics.reasons]
    return "\n".join(lines)


def _notes(metrics: TrialMetrics, mark: str) -> list[str]:
    """Return the explanations of the marks beside figures."""
    groups: list[Times] = [times for group in TIMES if (times := getattr(metrics, group))]
    of_kinds = [
        times for kind in (metrics.by_kind or {}).values() for group in OF_KIND if (times := getattr(kind, group))
    ]
    notes = {
        BOUND_NOTE: any(times.bounds for times in (*groups, *of_kinds)),
        MEAN_NOTE: any(times.is_conditional for times in groups),
        UNSTEADY_NOTE: bool(mark),
    }
    return [note for note, needed in notes.items() if needed]


def _kinds(by_kind: Mapping[str, KindFigures], mark: str) -> list[str]:
    """Return a line for each kind of request; `mark` is appended to times."""
    if not by_kind:
        return []
    shown = [(f"{name} {q}", group, q) for group, name in OF_KIND.items() for q in ("p50", "p99")]
    shown = [each for each in shown if any(getattr(kind, each[1]) for kind in by_kind.values())]
    longest = max(len(name) for name in by_kind)
    head = f"{'ms':<{longest}}{'requests':>10}{'failed':>8}"
    head += "".join(f"{title + mark:>11}" for title, _, _ in shown)
    rows = [
        f"{name:<{longest}}{kind.requests:>10,}{kind.failed:>8,}"
        + "".join(f"{statistic(getattr(kind, group), q):>11}" for _, group, q in shown)
        for name, kind in by_kind.items()
    ]
    return ["", head, *rows]


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
    bounds = _distinct([upper / 1e6 for upper, _ in rows])
    return [
        f"<={bound:>10} ms {'#' * round(WIDTH * count / largest):<{WIDTH}} {count / histogram.count:7.2%}"
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
