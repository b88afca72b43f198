"""Latency CDF of each treatment, and its tail: the share of requests that took longer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns

from seamark.analysis.trial_view import read_histograms
from seamark.model.plurals import LONGEST_MS, counted
from seamark.report.figures.canvas import COLOURS, DASHES, MARKERS, drawing, log_ticks, picture_of
from seamark.report.numbers import level
from seamark.report.page.content import Block, Picture, Text
from seamark.report.source import ShownWorkload
from seamark.stats.histogram import Histogram, bucket_value, merge
from seamark.stats.quantiles import BEYOND, samples_needed
from seamark.storage.paths import TrialFolder

MOST_CURVES = 7
MOST_FIGURES = 4
FEWEST = samples_needed(0.5)
"""Fewest requests of a drawn curve: below it even the median is withheld."""
LAST = 0.999
"""A curve ends at this share, or where fewer than ten requests are left."""

PALE = 0.35
PALE_NOTE = " Where a curve is pale, requests without an answer lie below: its times are lower bounds."


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The `n` requests of a distribution by time: `ms` of a bucket and how many `requests` it holds.

    Of requests without an answer only a lower bound of the time is known: it stands for the time, so beyond the least
    of these bounds, `known_until_ms` (None: there is none), times are lower bounds. `unread` trials are not in it,
    since their histogram.json is damaged.
    """

    buckets: pd.DataFrame
    n: int
    known_until_ms: float | None = None
    unread: int = 0


Measured = tuple[dict[str, Any], Curve]


def latency_blocks(workload: ShownWorkload) -> list[Block]:
    """Draw the pooled distribution of each treatment, up to seven of them in a figure."""
    able: list[tuple[dict[str, Any], list[TrialFolder]]] = []
    for row in workload.treatments:
        views = [view for view in workload.results.trials_of(row) if view.ok and view.folder.histogram.is_file()]
        able += [(dict(row.factors), [view.folder for view in views])] if views else []
    most = MOST_CURVES * MOST_FIGURES
    curves = [(factors, pooled(folders)) for factors, folders in able[:most]]
    measured = [(factors, curve) for factors, curve in curves if curve is not None and curve.n >= FEWEST]
    few = len(curves) - len(measured)
    notes = f" Only {most} of {len(able)} treatments are drawn." if len(able) > most else ""
    if few:
        notes += f" Not drawn: {counted(few, 'treatment')} of fewer than {FEWEST} good requests."
    if few and not measured:
        return [Text(text=f"No distribution of response times is drawn.{notes}")]
    return [
        _picture(group, workload.name, f"{workload.stem}-response-time{f'-{index}' if index > 1 else ''}", notes)
        for index, group in enumerate(grouped(measured), 1)
    ]


def marked(n: int) -> tuple[float, ...]:
    """Return the percentiles marked on a curve of `n` requests: those that the tables show."""
    return tuple(share for share in (0.5, 0.95, 0.99) if n >= samples_needed(share))


def grouped(measured: Sequence[Measured]) -> list[list[Measured]]:
    """Split curves into figures of at most seven: by the levels of a factor if possible, else evenly."""
    if len(measured) <= MOST_CURVES:
        return [list(measured)] if measured else []
    for name in measured[0][0]:
        by_level: dict[Any, list[Measured]] = {}
        for pair in measured:
            by_level.setdefault(pair[0].get(name), []).append(pair)
        if 1 < len(by_level) <= MOST_FIGURES and max(map(len, by_level.values())) <= MOST_CURVES:
            return list(by_level.values())
    count = -(-len(measured) // MOST_CURVES)
    per_figure = -(-len(measured) // count)
    return [list(measured[at : at + per_figure]) for at in range(0, len(measured), per_figure)]


def pooled(folders: Iterable[TrialFolder]) -> Curve | None:
    """Pool the histograms of trials' response times; None when no trial has a good reply.

    They hold the requests that were due in the measured window, in buckets 1 % wide: the percentiles of a curve are
    those of the tables.
    """
    parts: list[tuple[Histogram, Histogram]] = []
    unread = 0
    for folder in folders:
        try:
            known, bounds = read_histograms(folder)
            pair = known["response_ns"], bounds.get("response_ns", Histogram())
            merge((Histogram(), *pair))  # of another relative error it cannot be pooled
        except (OSError, ValueError):
            unread += 1
        else:
            parts.append(pair)
    answered, unanswered = merge(known for known, _ in parts), merge(bounds for _, bounds in parts)
    if not answered.count:
        return None
    whole = answered.merged(unanswered)
    counts = pd.Series(whole.buckets).sort_index()
    ms = bucket_value(counts.index.to_numpy(), whole.relative_error) / 1e6
    return Curve(
        buckets=pd.DataFrame({"ms": ms, "requests": counts.to_numpy()}),
        n=whole.count,
        known_until_ms=None if unanswered.minimum is None else unanswered.minimum / 1e6,
        unread=unread,
    )


def _picture(group: Sequence[Measured], workload: str, name: str, notes: str) -> Picture:
    names = [n for n in group[0][0] if len({repr(factors.get(n)) for factors, _ in group}) > 1]
    unread = sum(curve.unread for _, curve in group)
    shared = ", ".join(f"{n} {level(v, n)}" for n, v in group[0][0].items() if n not in names)
    in_s = max(curve.buckets["ms"].max() for _, curve in group) > LONGEST_MS
    with drawing(8.4, 2.9 + 0.16 * -(-len(group) // 2)) as figure:
        body, tail = figure.subplots(1, 2)
        for index, (factors, curve) in enumerate(group):
            label = ", ".join(f"{n} {level(factors.get(n), n)}" for n in names) or workload
            unit_ms, label = 1e3 if in_s else 1.0, f"{label} (n = {curve.n:,})"
            _draw(body, curve, index, unit_ms, complementary=False, label=label)
            _draw(tail, curve, index, unit_ms, complementary=True)
        body.set(title="Share of requests that took less", ylim=(0, 1.02))
        body.set_yticks([0, 0.25, 0.5, 0.75, 0.95], ["0", "25 %", "p50", "75 %", "p95"])
        tail.set(title="Share that took longer: the tail", yscale="log", ylim=(0.0009, 1.2))
        tail.set_yticks([1, 0.1, 0.01, 0.001], ["100 %", "10 %\np90", "1 %\np99", "0.1 %\np99.9"])
        drawn = np.concatenate([line.get_xdata() for line in tail.lines])
        for axis in (body, tail):
            axis.set(
                xlabel=f"response time ({'s' if in_s else 'ms'})",
                ylabel="",
                xscale="log",
                xlim=(min(drawn) / 1.1, max(drawn) * 1.1),
            )
            log_ticks(axis.xaxis, min(drawn), max(drawn))
        figure.legend(loc="outside lower left", ncols=2)
        return picture_of(
            figure,
            name,
            alt=f"Distribution of the response times of {workload}{', ' + shared if shared else ''}",
            caption=f"Response times{' with ' + shared if shared else ''}: requests due in the measured window of "
            "all repetitions, counted in buckets 1 % wide. Markers stand at p50, p95, p99 where the tables have "
            "them. A curve ends at p99.9, or where fewer than ten requests are left."
            + (f" Left out: {counted(unread, 'trial')} with an unreadable histogram.json." if unread else "")
            + (PALE_NOTE if any(curve.known_until_ms is not None for _, curve in group) else "")
            + notes,
        )


def _draw(
    axis: Any, curve: Curve, place: int, unit_ms: float = 1.0, *, complementary: bool, label: str | None = None
) -> None:
    """Draw a curve up to its end, pale from where its times are lower bounds, with marks at percentiles."""
    style = {
        "color": COLOURS[place],
        "ls": (0, DASHES[place] or ()),
        "marker": MARKERS[place],
        "mec": "white",
        "mew": 0.6,
    }
    buckets = curve.buckets.assign(at=curve.buckets["ms"] / unit_ms)
    sns.ecdfplot(buckets, x="at", weights="requests", complementary=complementary, ax=axis, label=label, **style)
    line = axis.lines[-1]
    at, share = (values[1:] for values in line.get_data())  # the first point lies at minus infinity
    below = 1 - share if complementary else share
    quantiles = marked(curve.n)
    marks = below.searchsorted(quantiles)
    ends = max(1, int(below.searchsorted(min(LAST, 1 - BEYOND / curve.n), side="right")))
    until_ms = curve.known_until_ms
    known = ends if until_ms is None else min(ends, int(at.searchsorted(until_ms / unit_ms, "right")))
    # A bucket is a step of the curve: a percentile lies on the step, at its own height, and not at the step's end.
    line.set(data=(at[:known], share[:known]), drawstyle="steps-post", markevery=[])
    if known < ends:
        rest = slice(max(0, known - 1), ends)
        axis.plot(at[rest], share[rest], alpha=PALE, drawstyle="steps-post", **style | {"marker": None})
    for mark, quantile in zip(marks, quantiles, strict=True):
        if mark < ends:
            height = 1 - quantile if complementary else quantile
            axis.plot(at[mark], height, alpha=1 if mark < known else PALE, **style | {"ls": "none"})
