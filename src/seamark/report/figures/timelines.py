"""Timelines: the trials of one treatment second by second, and the whole run, trial by trial."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from seamark.analysis.trial_view import TrialView
from seamark.model.plurals import counted
from seamark.model.results.summary import SummaryRow
from seamark.report.figures.canvas import (
    COLOURS,
    DASHES,
    MUTED,
    SHADE,
    drawing,
    looks,
    picture_of,
    plain_numbers,
    scale_y,
    theme,
)
from seamark.report.numbers import levels_text, unit_of, unit_words
from seamark.report.page.content import Picture
from seamark.report.source import Results, ShownWorkload

MOST_TRIALS = 3
MOST_POINTS = 1200
THROUGHPUT, RESPONSE, CPU, RSS = "throughput", "response", "CPU (%)", "RSS (MiB)"
TELEMETRY = {"cpu_ratio": (CPU, 100.0), "rss_bytes": (RSS, 1 / (1 << 20))}
"""Series of telemetry.parquet -> row of the figure, factor to its unit."""
CURVES: Mapping[str, int] = {"throughput": 0, "p50": 0, "p99": 1, "host": 0, "server": 1, "client": 2}
"""Curve -> its colour and dashes."""

HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "oo")
MOST_DEPLOYMENTS = 40
PHASES = ("setup_s", "stage_s", "start_s", "populate_s")


def representative(results: Results, treatments: Sequence[SummaryRow]) -> SummaryRow | None:
    """Return the treatment that is shown over time: the one of greatest median throughput; None if none is ok."""
    able = [
        t for t in treatments if any(trial.ok and trial.folder.series.is_file() for trial in results.trials_of(t))
    ]
    return max(able, key=lambda t: t.throughput.median or 0.0, default=None)


def timeline_pictures(workload: ShownWorkload) -> list[Picture]:
    """Draw up to three trials of the representative treatment side by side; nothing when there is none to draw."""
    treatment = representative(workload.results, workload.treatments)
    if treatment is None:
        return []
    able = [view for view in workload.results.trials_of(treatment) if view.ok and view.folder.series.is_file()]
    trials = able[:MOST_TRIALS]
    columns: list[str] = []
    frames: list[pd.DataFrame] = []
    for view in trials:
        load = read_series(view.folder.series, view.load_s)
        columns.append(f"repetition {view.trial.repetition}{' (series.csv cannot be read)' if load is None else ''}")
        parts = (load, read_telemetry(view.folder.telemetry))
        frames += [part.assign(column=columns[-1]) for part in parts if part is not None]
    if not frames or (frame := pd.concat(frames, ignore_index=True)).empty:
        return []
    times = frame["row"] == RESPONSE
    unit, factor = unit_of(frame.loc[times, "value"].dropna())
    frame.loc[times, "value"] *= factor
    labels = {
        THROUGHPUT: unit_words(trials[0].good.throughput.unit if trials[0].good else ""),
        RESPONSE: f"{RESPONSE} ({unit})",
        CPU: CPU,
        RSS: RSS,
    }
    rows = [row for row in labels if row in (THROUGHPUT, RESPONSE) or (frame["row"] == row).any()]
    with theme():
        facets = sns.relplot(
            frame[~frame["late"].astype(bool)],
            kind="line",
            x="at_s",
            y="value",
            row="row",
            row_order=rows,
            col="column",
            col_order=columns,
            hue="curve",
            style="curve",
            palette={curve: COLOURS[index] for curve, index in CURVES.items()},
            dashes={curve: DASHES[index] for curve, index in CURVES.items()},
            estimator=None,
            lw=1.3,
            legend=False,
            height=1.35,
            aspect=max(8.4, 3.4 * len(trials)) / len(trials) / 1.35,
            facet_kws={"sharex": "col", "sharey": "row", "despine": False},
        )
        for row, axes in zip(rows, facets.axes, strict=True):
            of_row = frame[frame["row"] == row]
            for axis, trial, column in zip(axes, trials, columns, strict=True):
                _finish(axis, trial, row, of_row[of_row["column"] == column])
            scale_y(axes, of_row["value"], log_beyond=1.0 if row == RESPONSE else np.inf, room=1.12)
            axes[0].set_ylabel(labels[row])
            _legend(axes[-1], [curve for curve in CURVES if row != THROUGHPUT and (of_row["curve"] == curve).any()])
        facets.set_titles("").set_xlabels("seconds from the start of the load")
        for axis, column in zip(facets.axes[0], columns, strict=True):
            axis.set_title(column)
        facets.figure.set_layout_engine("constrained")
        factors = levels_text(treatment.factors)
        picture = picture_of(
            facets.figure,
            f"{workload.stem}-over-time",
            alt=f"{workload.name} over time",
            caption=f"{workload.name}{': ' + factors if factors else ''}, the treatment of the highest throughput, "
            "second by second. Shaded: the measured window. Dotted line: end of the warm-up. Crosses: replies after "
            "the end of the load. Of fewer than 100 replies in a second, p99 is the slowest. CPU is a share of the "
            "whole machine.",
        )
    return [picture]


def _finish(axis: Axes, trial: TrialView, row: str, own: pd.DataFrame) -> None:
    """Mark the measured window and replies after the load's end; draw rates as steps, few points with dots."""
    for line in axis.lines:
        line.set(
            drawstyle="steps-post" if row == THROUGHPUT else "default",
            marker="." if row == RESPONSE and len(own) < 60 else "",
            mec=line.get_color(),
        )
    for curve, late in own[own["late"]].groupby("curve"):
        axis.plot(late["at_s"], late["value"], color=COLOURS[CURVES[str(curve)]], ls="", marker="x", ms=4)
    if trial.window_s is not None:
        axis.axvspan(*trial.window_s, color=SHADE, alpha=0.6, lw=0, zorder=0)
    cut = trial.window_s if trial.good and trial.good.warmup_auto else None
    warmup_s = cut[0] if cut else trial.load.warmup_s if trial.load else None
    if warmup_s:
        axis.axvline(warmup_s, color=MUTED, ls=":", lw=1)


def _legend(axis: Axes, curves: Sequence[str]) -> None:
    """Draw one legend for a row at its right end."""
    if curves:
        looks = [(COLOURS[CURVES[curve]], (0, DASHES[CURVES[curve]] or ())) for curve in curves]
        handles = [Line2D([], [], color=colour, ls=dashes, lw=1.3) for colour, dashes in looks]
        axis.legend(handles, curves, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def read_series(path: Path, end_s: float | None) -> pd.DataFrame | None:
    """Return throughput and response times second by second as `row`, `curve`, `at_s`, `value` and whether it is
    `late`, after the end of the load; None when the file cannot be read.

    Where there are more seconds than can be drawn, a point is the mean of its seconds, for p99 the worst of them.
    """
    try:
        names = ["second", "throughput", "latency_p50_s", "latency_p99_s"]
        seconds = pd.read_csv(path, usecols=names).astype(float)
    except (OSError, ValueError):
        return None
    end_s = end_s or np.inf
    whole = seconds[seconds["second"] + 1 <= end_s]  # the load ends within its last second: half a second is no rate
    rate = _thinned(whole["second"], whole["throughput"], "mean")
    last = rate.tail(1).assign(at_s=lambda tail: tail["at_s"] + 1)  # a row stands for the second that begins with it
    middle_s = seconds["second"] + 0.5
    times = {
        name: _thinned(middle_s, 1e3 * seconds[f"latency_{name}_s"], reduce)
        for name, reduce in (("p50", "mean"), ("p99", "max"))
    }
    return pd.concat(
        [
            pd.concat([rate, last]).assign(row=THROUGHPUT, curve=THROUGHPUT, late=False),
            *(
                frame.assign(row=RESPONSE, curve=name, late=frame["at_s"] - 0.5 >= end_s)
                for name, frame in times.items()
            ),
        ]
    )


def read_telemetry(path: Path) -> pd.DataFrame | None:
    """Return CPU and memory by source in the same columns; None if the file cannot be read."""
    wanted = [("source", "in", ["host", "server", "client"]), ("name", "in", list(TELEMETRY))]
    try:
        table = pd.read_parquet(path, columns=["at_s", "source", "name", "value"], filters=wanted)
        table = table.astype({"at_s": float, "value": float})
    except (OSError, ValueError, pa.ArrowException):
        return None
    frames = [
        _thinned(group["at_s"], factor * group["value"], "mean").assign(row=row, curve=source, late=False)
        for (name, source), group in table.groupby(["name", "source"])
        for row, factor in [TELEMETRY[str(name)]]
    ]
    return pd.concat(frames) if frames else None


def _thinned(at_s: pd.Series, values: pd.Series, reduce: str) -> pd.DataFrame:
    known = pd.DataFrame({"at_s": at_s, "value": values}).dropna()
    groups = np.arange(len(known)) // max(1, -(-len(known) // MOST_POINTS))
    return known.groupby(groups).agg({"at_s": "first", "value": reduce})


def phases_pictures(results: Results) -> list[Picture]:
    """Draw each deployment's time to service as a bar of its phases, the median of its starts; nothing where none
    took measurable time."""
    taken = {name: dict(record.time_to_service_s) for name, record in sorted(results.deployments.items())}
    phases = pd.DataFrame.from_dict(taken, orient="index").drop(columns="total_s", errors="ignore").astype(float)
    phases = phases[phases.sum(axis=1) > 0].dropna(axis=1, how="all").fillna(0.0)
    names, starts = results.plan.names, len(phases)
    phases = phases.groupby(lambda start: names.get(start, start)).median()
    if phases.empty:
        return []
    shown = phases.iloc[:MOST_DEPLOYMENTS]
    shown = shown[sorted(shown, key=lambda name: PHASES.index(name) if name in PHASES else len(PHASES))]
    with drawing(8.4, 1.0 + 0.3 * len(shown)) as figure:
        axis = figure.subplots()
        shown = shown.rename(columns=lambda name: name.removesuffix("_s"))
        shown = shown.rename(index=lambda name: name if len(name) <= 44 else f"{name[:22]}…{name[-21:]}")
        shown.plot.barh(stacked=True, ax=axis, color=COLOURS, width=0.62, edgecolor="white", lw=0.5, legend=False)
        stacked: Any = axis.containers
        for index, bars in enumerate(stacked):
            for bar in bars:
                bar.set_hatch(HATCHES[index % len(HATCHES)])
        totals = shown.sum(axis=1)
        axis.bar_label(stacked[-1], [f"{total:.2f} s" for total in totals], padding=4, fontsize=8)
        axis.invert_yaxis()
        axis.grid(visible=False, axis="y")
        axis.set(xlim=(0, 1.12 * totals.max()), xlabel="seconds")
        plain_numbers(axis.xaxis)
        figure.legend(loc="outside upper left", ncols=len(shown.columns))
        left_out = len(phases) - len(shown)
        picture = picture_of(
            figure,
            "time-to-service",
            alt="Time to service of each deployment by phase",
            caption="From the start of a deployment until its server answers and holds its data."
            + (f" Medians of {starts} starts." if starts > len(phases) else "")
            + (f" Not drawn: {counted(left_out, 'more deployment')}." if left_out else ""),
        )
    return [picture]


def order_pictures(results: Results) -> list[Picture]:
    """Draw throughput, relative to the treatment's median, in the order of the run; nothing without repetitions."""
    frame = results.frame[results.frame["ok"]].dropna(subset="throughput")
    by_treatment = frame.groupby("treatment")["throughput"]
    frame = frame.assign(median=by_treatment.transform("median"), repeated=by_treatment.transform("size") > 1)
    frame = frame[frame["repeated"] & (frame["median"] > 0)]
    if frame.empty:
        return []
    frame = frame.assign(place=range(1, len(frame) + 1), off=100 * (frame["throughput"] / frame["median"] - 1))
    frame["block"] = "block " + frame["block"].astype(str)
    known = dict.fromkeys(row.service for row in results.treatments)
    services = [service for service in known if (frame["service"] == service).any()]
    with theme():
        facets = sns.relplot(
            frame,
            x="place",
            y="off",
            col="service",
            col_order=services,
            col_wrap=min(3, len(services)),
            hue="block",
            style="block",
            **{name: value for name, value in looks(list(frame["block"].unique())).items() if name != "dashes"},
            facet_kws={"sharex": False, "despine": False},
        )
        facets.refline(y=0, color=MUTED, ls="-", lw=0.9)
        facets.set_titles("{col_name}").set_ylabels("deviation from the\ntreatment's median (%)")
        for axis in facets.axes.flat:
            axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
            axis.set_xlabel("place in the order of the run")
        facets.figure.set_size_inches(8.4, 1.9 * -(-len(services) // 3) + 0.7)
        facets.figure.set_layout_engine("constrained")
        sns.move_legend(facets, "outside upper left", ncols=7, title=None)
        picture = picture_of(
            facets.figure,
            "run-order",
            alt="Throughput over the order of the run",
            caption="Each point is a trial. A slope or a step means that the machine changed while the scenario ran. "
            "A block holds every treatment once, in random order: of one start of a server, or of one of its own.",
        )
    return [picture]
