"""Timelines: the trials of one treatment second by second, and the whole run, trial by trial."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from seamark.model.plurals import counted
from seamark.model.results.deployment_record import DeploymentRecord
from seamark.report.figures.canvas import (
    COLOURS,
    DASHES,
    MUTED,
    SHADE,
    drawing,
    log_ticks,
    look,
    panels,
    plain_numbers,
    written,
)
from seamark.report.numbers import level, unit_words
from seamark.report.page.content import Picture
from seamark.report.source import Document, Results, TrialRecord

MOST_TRIALS = 3
MOST_POINTS = 1200
SOURCES = ("host", "server", "client")
NAMES = ("cpu_ratio", "rss_bytes")

Numbers = NDArray[np.float64]
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "oo")
MOST_DEPLOYMENTS = 40
PHASES = ("setup_s", "stage_s", "start_s", "populate_s")


@dataclass(frozen=True, kw_only=True)
class Series:
    """Values over time; times in seconds from the start of the load."""

    at_s: Numbers
    values: Numbers


def representative(results: Results, treatments: Sequence[Document]) -> Document | None:
    """Return the treatment that is shown over time: the one of greatest median throughput; None if none is ok."""
    able = [
        t for t in treatments if any(trial.ok and trial.folder.series.is_file() for trial in results.trials_of(t))
    ]
    return max(able, key=lambda t: (t.get("throughput") or {}).get("median") or 0.0, default=None)


def timeline_picture(
    results: Results, workload: str, treatments: Sequence[Document], stem: str, folder: Path
) -> Picture | None:
    """Draw up to three trials of the representative treatment side by side; None when there is nothing to draw."""
    treatment = representative(results, treatments)
    if treatment is None:
        return None
    trials = [t for t in results.trials_of(treatment) if t.ok and t.folder.series.is_file()][:MOST_TRIALS]
    series = [read_series(trial.folder.series) for trial in trials]
    telemetry = [read_telemetry(trial.folder.telemetry) for trial in trials]
    labels = [unit_words(trials[0].unit), "response (ms)", *(["CPU (%)", "RSS (MiB)"] if any(telemetry) else [])]
    with drawing(max(8.4, 3.4 * len(trials)), 1.2 * len(labels) + 0.6) as figure:
        axes = figure.subplots(len(labels), len(trials), squeeze=False, sharex="col", sharey="row")
        for column, trial in enumerate(trials):
            _load(axes[0][column], axes[1][column], series[column], trial.load_s)
            if any(telemetry):
                _by_source(axes[2][column], telemetry[column], "cpu_ratio", 100.0)
                _by_source(axes[3][column], telemetry[column], "rss_bytes", 1 / (1 << 20))
            for axis in axes[:, column]:
                _window(axis, trial)
            unread = "" if series[column] is not None else " (series.csv cannot be read)"
            axes[0][column].set_title(f"repetition {trial.repetition}{unread}")
            axes[-1][column].set_xlabel("seconds from the start of the load")
        for row, label in zip(axes, labels, strict=True):
            row[0].set_ylabel(label)
            (_times if label == "response (ms)" else _from_zero)(row)
            _legend(row)
        factors = ", ".join(
            f"{name} {level(value, name)}" for name, value in (treatment.get("factors") or {}).items()
        )
        return written(
            figure,
            folder,
            f"{stem}-over-time",
            alt=f"{workload} over time",
            caption=f"{workload}{': ' + factors if factors else ''}, the treatment of the highest throughput, second "
            "by second. Shaded: the measured window. Dotted line: end of the warm-up. Crosses: replies after the end "
            "of the load. Of fewer than 100 replies in a second, p99 is the slowest. CPU is a share of the whole "
            "machine.",
        )


def _load(rate: Axes, response: Axes, series: Mapping[str, Series] | None, end_s: float | None) -> None:
    if series is None:
        return
    drawn = series["throughput"]
    whole = drawn.at_s + 1 <= (end_s or np.inf)  # the load ends within its last second: half a second is no rate
    if whole.any():  # a row stands for the second that begins with it
        at_s, values = drawn.at_s[whole], drawn.values[whole]
        at_s, values = np.append(at_s, at_s[-1] + 1), np.append(values, values[-1])
        rate.plot(at_s, values, color=COLOURS[0], lw=1.3, drawstyle="steps-post")
    for index, name in enumerate(("p50_ms", "p99_ms")):
        at_s, values = series[name].at_s, series[name].values
        inside = at_s - 0.5 < (end_s or np.inf)  # a point stands in the middle of its second
        response.plot(
            at_s[inside],
            values[inside],
            color=COLOURS[index],
            ls=DASHES[index],
            marker="." if len(at_s) < 30 else "",
            lw=1.2,
            label=name.removesuffix("_ms"),
        )
        response.plot(at_s[~inside], values[~inside], color=COLOURS[index], ls="", marker="x", ms=4)


def _by_source(axis: Axes, telemetry: Mapping[tuple[str, str], Series], name: str, scale: float) -> None:
    for index, source in enumerate(SOURCES):
        drawn = telemetry.get((source, name))
        if drawn is not None:
            axis.plot(drawn.at_s, scale * drawn.values, color=COLOURS[index], ls=DASHES[index], lw=1.3, label=source)


def _window(axis: Axes, trial: TrialRecord) -> None:
    if trial.window_s is not None:
        axis.axvspan(*trial.window_s, color=SHADE, alpha=0.6, lw=0, zorder=0)
    if trial.warmup_s:
        axis.axvline(trial.warmup_s, color=MUTED, ls=":", lw=1, gid="warmup")


def _drawn(axes: Sequence[Axes]) -> list[float]:
    """Return every value of the curves in a row of axes, without the marks of warm-ups."""
    lines = [line for axis in axes for line in axis.lines if line.get_gid() != "warmup"]
    return [float(value) for line in lines for value in np.asarray(line.get_ydata(), dtype=float)]


def _from_zero(axes: Sequence[Axes]) -> None:
    axes[0].set_ylim(0, 1.12 * (max(_drawn(axes), default=0.0) or 1.0))
    plain_numbers(axes[0], y=True)


def _times(axes: Sequence[Axes]) -> None:
    """Response times on a logarithmic axis with plain numbers."""
    values = [value for value in _drawn(axes) if value > 0]
    if values:
        for axis in axes:
            axis.set_yscale("log")
            axis.set_ylim(min(values) / 1.3, max(values) * 1.3)
            log_ticks(axis.yaxis, min(values), max(values))


def _legend(axes: Sequence[Axes]) -> None:
    """Draw one legend for a row at its right end; a source may be missing in some trials."""
    found: dict[str, Artist] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    if found:
        axes[-1].legend(list(found.values()), list(found), loc="upper left", bbox_to_anchor=(1.0, 1.0))


def phases_of(record: DeploymentRecord) -> dict[str, float]:
    """Return a deployment's time to service by phase, in the order in which the phases run."""
    known = {name: float(taken_s) for name, taken_s in record.time_to_service_s.items() if taken_s is not None}
    first = {name: known[name] for name in PHASES if name in known}
    return first | {name: value for name, value in known.items() if name not in first and name != "total_s"}


def phases_picture(results: Results, folder: Path) -> Picture | None:
    """Draw each deployment's time to service as a bar of its phases; None when nothing took measurable time."""
    timed = {
        name: phases
        for name, record in sorted(results.deployments.items())
        if any((phases := phases_of(record)).values())
    }
    if not timed:
        return None
    shown = dict(list(timed.items())[:MOST_DEPLOYMENTS])
    names = list(dict.fromkeys(name for phases in shown.values() for name in phases))
    with drawing(8.4, 1.0 + 0.3 * len(shown)) as figure:
        axis = figure.subplots()
        lefts = [0.0] * len(shown)
        for index, name in enumerate(names):
            widths = [phases.get(name, 0.0) for phases in shown.values()]
            axis.barh(
                range(len(shown)),
                widths,
                left=lefts,
                height=0.62,
                color=COLOURS[index % len(COLOURS)],
                hatch=HATCHES[index % len(HATCHES)],
                edgecolor="white",
                linewidth=0.5,
                label=name.removesuffix("_s"),
            )
            lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
        for place, total in enumerate(lefts):
            axis.annotate(
                f"{total:.2f} s", (total, place), (4, 0), textcoords="offset points", va="center", fontsize=8
            )
        axis.set_yticks(range(len(shown)), [_short(name, 44) for name in shown])
        axis.invert_yaxis()
        axis.grid(visible=False, axis="y")
        axis.set_xlim(0, 1.12 * max(lefts))
        axis.set_xlabel("seconds")
        plain_numbers(axis, x=True)
        figure.legend(loc="outside upper left", ncols=len(names))
        left_out = len(timed) - len(shown)
        return written(
            figure,
            folder,
            "time-to-service",
            alt="Time to service of each deployment by phase",
            caption="From the start of a deployment until its server answers and holds its data."
            + (f" Not drawn: {counted(left_out, 'more deployment')}." if left_out else ""),
        )


def order_picture(results: Results, folder: Path) -> Picture | None:
    """Draw throughput, relative to the treatment's median, in the order of the run; None without repetitions."""
    groups: dict[str, list[TrialRecord]] = {}
    for trial in results.ok:
        if trial.throughput is not None:
            groups.setdefault(trial.treatment, []).append(trial)
    middles = {name: median(t.throughput or 0.0 for t in own) for name, own in groups.items() if len(own) > 1}
    points = sorted(
        (trial for name in middles if middles[name] > 0 for trial in groups[name]),
        key=lambda trial: (trial.started_at or "", trial.block, trial.position),
    )
    if not points:
        return None
    places = {trial.id: place for place, trial in enumerate(points, 1)}
    ran = {trial.service for trial in points}
    services = [service for service, _ in results.services() if service in ran]
    with drawing(8.4, 1.9 * -(-len(services) // 3) + 0.7) as figure:
        for axis, service in zip(panels(figure, len(services), columns=3), services, strict=True):
            own = [trial for trial in points if trial.service == service]
            blocks = sorted({trial.block for trial in own})
            for index, block in enumerate(blocks[:7]):
                style = look(index)
                inside = [trial for trial in own if trial.block == block]
                axis.plot(
                    [places[trial.id] for trial in inside],
                    [100 * ((trial.throughput or 0.0) / middles[trial.treatment] - 1) for trial in inside],
                    style.marker,
                    color=style.colour,
                    alpha=0.85,
                    mec="white",
                    mew=0.5,
                    label=f"block {block}",
                )
            axis.axhline(0, color=MUTED, lw=0.9)
            axis.set_title(service)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
            axis.set_xlabel("place in the order of the run")
        figure.axes[0].set_ylabel("deviation from the\ntreatment's median (%)")
        figure.legend(*_one_of_each(figure.axes), loc="outside upper left", ncols=7)
        return written(
            figure,
            folder,
            "run-order",
            alt="Throughput over the order of the run",
            caption="Each point is a trial. A slope or a step means that the machine changed while the scenario ran. "
            "A block holds every treatment of one start of a server once, in random order.",
        )


def _one_of_each(axes: list[Axes]) -> tuple[list[Any], list[str]]:
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2 - 1) :]}"


def read_series(path: Path) -> dict[str, Series] | None:
    """Return throughput and response times second by second; None when the file cannot be read.

    Where there are more seconds than can be drawn, a point is the mean of its seconds, for p99 the worst of them.
    """
    try:
        table = pyarrow.csv.read_csv(path)
        second = _numbers(table, "second")
        return {
            "throughput": _thinned(second, _numbers(table, "throughput"), np.mean),
            "p50_ms": _thinned(second + 0.5, 1e3 * _numbers(table, "latency_p50_s"), np.mean),
            "p99_ms": _thinned(second + 0.5, 1e3 * _numbers(table, "latency_p99_s"), np.max),
        }
    except (OSError, ValueError, KeyError):
        return None


def read_telemetry(path: Path) -> Mapping[tuple[str, str], Series]:
    """Return the drawn series of a trial's telemetry by source and name; empty if unreadable."""
    wanted = [("source", "in", list(SOURCES)), ("name", "in", list(NAMES))]
    try:
        table = pq.read_table(path, columns=["at_s", "source", "name", "value"], filters=wanted)
    except (OSError, ValueError, pa.ArrowException):
        return {}
    found = {}
    for source in SOURCES:
        for name in NAMES:
            own = table.filter((pc.field("source") == source) & (pc.field("name") == name))
            if own.num_rows:
                found[source, name] = _thinned(_numbers(own, "at_s"), _numbers(own, "value"), np.mean)
    return found


def _numbers(table: pa.Table, name: str) -> Numbers:
    """Return a column as floats, NaN where it is empty."""
    return np.asarray(table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)


def _thinned(at_s: Numbers, values: Numbers, reduce: Callable[[Numbers], object]) -> Series:
    known = np.isfinite(values)
    at_s, values = at_s[known], values[known]
    each = -(-len(values) // MOST_POINTS)
    if each > 1:
        starts = range(0, len(values), each)
        at_s = at_s[::each]
        values = np.array([reduce(values[start : start + each]) for start in starts], dtype=np.float64)
    return Series(at_s=at_s, values=values)
