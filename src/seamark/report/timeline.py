"""Draws how the trials of one treatment went, second by second: load, response time, CPU and memory."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from matplotlib.axes import Axes

from seamark.report.canvas import COLOURS, DASHES, INK, MUTED, SHADE, drawing, log_ticks, plain_numbers, written
from seamark.report.content import Picture
from seamark.report.numbers import level, unit_words
from seamark.report.source import Document, Results, TrialRecord

MOST_TRIALS = 3
MOST_POINTS = 1500
SOURCES = {"host": 0, "server": 1, "client": 2}

Series = tuple[list[float], list[float]]


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
    telemetry = [_telemetry(trial.folder.telemetry) for trial in trials]
    has_telemetry = any(telemetry)
    rows = 4 if has_telemetry else 2
    with drawing(max(8.4, 3.4 * len(trials)), 1.2 * rows + 0.6) as figure:
        axes = figure.subplots(rows, len(trials), squeeze=False, sharex="col", sharey="row")
        for column, (trial, samples) in enumerate(zip(trials, telemetry, strict=True)):
            _load(axes[0][column], axes[1][column], trial)
            if has_telemetry:
                _by_source(axes[2][column], samples, "cpu_ratio", 100.0)
                _by_source(axes[3][column], samples, "rss_bytes", 1 / (1 << 20))
            for axis in axes[:, column]:
                _window(axis, trial)
            axes[0][column].set_title(f"repetition {trial.repetition}")
            axes[-1][column].set_xlabel("seconds from the start of the load")
        for row, label in zip(
            axes, (unit_words(trials[0].unit), "response (ms)", "CPU (%)", "RSS (MiB)"), strict=False
        ):
            row[0].set_ylabel(label)
            if label != "response (ms)":
                plain_numbers(row[0], y=True)
        most = max((value for line in axes[0].flat for value in _drawn(line)), default=1.0)
        axes[0][0].set_ylim(0, 1.12 * most)
        _times(axes[1])
        for row, marks in ((axes[1], 2), *(((axes[2], 3), (axes[3], 2)) if has_telemetry else ())):
            handles, labels = row[0].get_legend_handles_labels()
            if labels:
                row[-1].legend(handles[:marks], labels[:marks], loc="upper left", bbox_to_anchor=(1.0, 1.0))
        factors = ", ".join(
            f"{name} {level(value, name)}" for name, value in (treatment.get("factors") or {}).items()
        )
        return written(
            figure,
            folder,
            f"{stem}-over-time",
            alt=f"{workload} over time",
            caption=f"{workload}{': ' + factors if factors else ''}, the treatment of the highest throughput, second "
            "by second. Shaded: the measured window. Dotted line: end of the warm-up. CPU is a share of the whole "
            "machine.",
        )


def _drawn(axis: Axes) -> list[float]:
    """Return every value of the axis' curves; the mark of the warm-up has but two points and is none."""
    curves = [np.asarray(line.get_ydata(), dtype=float) for line in axis.lines]
    return [float(value) for curve in curves if len(curve) > 2 for value in curve]


def _times(axes: Sequence[Axes]) -> None:
    """Response times on a logarithmic axis with plain numbers."""
    values = [value for axis in axes for value in _drawn(axis) if value > 0]
    if values:
        for axis in axes:
            axis.set_yscale("log")
            axis.set_ylim(min(values) / 1.3, max(values) * 1.3)
            log_ticks(axis.yaxis, min(values), max(values))


def _load(rate: Axes, response: Axes, trial: TrialRecord) -> None:
    rows = _series(trial.folder.series)
    at_s, values = _column(rows, "throughput")
    if at_s:  # a row stands for the second that begins with it
        rate.plot([*at_s, at_s[-1] + 1], [*values, values[-1]], color=COLOURS[0], lw=1.3, drawstyle="steps-post")
    response.plot(*_column(rows, "latency_p50_s", 1e3, 0.5), color=COLOURS[0], label="p50", lw=1.3)
    response.plot(*_column(rows, "latency_p99_s", 1e3, 0.5), color=COLOURS[1], ls=DASHES[1], label="p99", lw=1.1)


def _window(axis: Axes, trial: TrialRecord) -> None:
    if trial.window_s is not None:
        axis.axvspan(*trial.window_s, color=SHADE, alpha=0.6, lw=0, zorder=0)
    if trial.warmup_s:
        axis.axvline(trial.warmup_s, color=MUTED, ls=":", lw=1)


def _series(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    return rows[:: max(1, -(-len(rows) // MOST_POINTS))]


def _column(rows: Sequence[Mapping[str, str]], name: str, scale: float = 1.0, shift_s: float = 0.0) -> Series:
    known = [
        (float(row["second"]) + shift_s, scale * float(row[name]))
        for row in rows
        if row.get(name) not in (None, "", "nan")
    ]
    return [at for at, _ in known], [value for _, value in known]


def _telemetry(path: Path) -> dict[tuple[str, str], Series]:
    """Return (source, name) -> times and values of what is drawn; empty when there is no telemetry."""
    if not path.is_file():
        return {}
    wanted = [("source", "in", list(SOURCES)), ("name", "in", ["cpu_ratio", "rss_bytes"])]
    table = pq.read_table(path, columns=["at_s", "source", "name", "value"], filters=wanted)
    found: dict[tuple[str, str], Series] = {}
    for row in table.to_pylist():
        if row["value"] is not None:
            at_s, values = found.setdefault((row["source"], row["name"]), ([], []))
            at_s.append(row["at_s"])
            values.append(row["value"])
    return {
        key: (at_s[:: max(1, -(-len(at_s) // MOST_POINTS))], values[:: max(1, -(-len(values) // MOST_POINTS))])
        for key, (at_s, values) in found.items()
    }


def _by_source(axis: Axes, samples: Mapping[tuple[str, str], Series], name: str, scale: float) -> None:
    for source, index in SOURCES.items():
        at_s, values = samples.get((source, name), ([], []))
        if at_s:
            axis.plot(
                at_s,
                [scale * v for v in values],
                color=(*COLOURS, INK)[index],
                ls=DASHES[index],
                lw=1.3,
                label=source,
            )
    axis.set_ylim(bottom=0)
