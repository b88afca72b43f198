"""Draws how the trials of one treatment went, second by second: load, response time, CPU and memory."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from seamark.report.canvas import COLOURS, DASHES, MUTED, SHADE, drawing, log_ticks, plain_numbers, written
from seamark.report.content import Picture
from seamark.report.numbers import level, unit_words
from seamark.report.readings import SOURCES, Series, read_series, read_telemetry
from seamark.report.source import Document, Results, TrialRecord

MOST_TRIALS = 3


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
    """Return every value of the curves in a row of axes; the mark of the warm-up is none."""
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
    """Name the curves of a row once, at its right end; a source may be missing in some trials."""
    found: dict[str, Artist] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    if found:
        axes[-1].legend(list(found.values()), list(found), loc="upper left", bbox_to_anchor=(1.0, 1.0))
