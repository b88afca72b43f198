"""Latency CDF of each treatment, and its tail: the share of requests that took longer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from seamark.analysis.metrics.samples import DamagedError, open_samples
from seamark.analysis.metrics.tally import Unanswered
from seamark.model.plurals import counted
from seamark.report.figures.canvas import drawing, log_ticks, look, written
from seamark.report.numbers import level
from seamark.report.page.content import Block, Picture, Text
from seamark.report.source import Document, Results
from seamark.stats.histogram import Accumulator, Histogram, merge
from seamark.stats.quantiles import BEYOND, samples_needed

MOST_CURVES = 7
MOST_FIGURES = 4
FEWEST = samples_needed(0.5)
"""Fewest requests of a drawn curve: below it even the median is withheld."""

PALE = 0.35
PALE_NOTE = " Where a curve is pale, requests without an answer lie below: its times are lower bounds."
RELATIVE_ERROR = 0.0005
"""Buckets 0.1 % wide: finer than a line of a figure."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Points of an empirical distribution: `share` of the `n` requests took less than `at_ms`, exactly.

    Of requests without an answer only a lower bound of the time is known: it stands for the time, so beyond the least
    of these bounds, `known_until_ms` (None: there is none), times are lower bounds. `unread` trials are not in it,
    since their samples are damaged.
    """

    at_ms: NDArray[np.float64]
    share: NDArray[np.float64]
    n: int
    known_until_ms: float | None = None
    unread: int = 0


Measured = tuple[dict[str, Any], Curve]


def latency_pictures(
    results: Results, workload: str, treatments: Sequence[Document], stem: str, folder: Path
) -> list[Block]:
    """Draw the pooled distribution of each treatment, up to seven of them in a figure."""
    able = [t for t in treatments if any(x.ok and x.folder.samples.is_file() for x in results.trials_of(t))]
    most = MOST_CURVES * MOST_FIGURES
    measured: list[Measured] = []
    few = 0
    for treatment in able[:most]:
        trials = [t for t in results.trials_of(treatment) if t.ok and t.folder.samples.is_file()]
        curve = pooled((trial.folder.samples, trial.window_s) for trial in trials)
        if curve is not None and curve.n >= FEWEST:
            measured.append((dict(treatment.get("factors") or {}), curve))
        else:
            few += 1
    notes = f" Only {most} of {len(able)} treatments are drawn." if len(able) > most else ""
    if few:
        notes += f" Not drawn: {counted(few, 'treatment')} of fewer than {FEWEST} good requests."
    if few and not measured:
        return [Text(text=f"No distribution of response times is drawn.{notes}")]
    groups = grouped(measured)
    return [
        _picture(group, workload, f"{stem}-response-time{f'-{place}' if place > 1 else ''}", folder, notes)
        for place, group in enumerate(groups, 1)
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
        for one in measured:
            by_level.setdefault(one[0].get(name), []).append(one)
        if 1 < len(by_level) <= MOST_FIGURES and max(map(len, by_level.values())) <= MOST_CURVES:
            return list(by_level.values())
    count = -(-len(measured) // MOST_CURVES)
    each = -(-len(measured) // count)
    return [list(measured[at : at + each]) for at in range(0, len(measured), each)]


def _picture(group: Sequence[Measured], workload: str, name: str, folder: Path, notes: str) -> Picture:
    names = [n for n in group[0][0] if len({repr(factors.get(n)) for factors, _ in group}) > 1]
    unread = sum(curve.unread for _, curve in group)
    shared = ", ".join(f"{n} {level(v, n)}" for n, v in group[0][0].items() if n not in names)
    with drawing(8.4, 2.9 + 0.16 * -(-len(group) // 2)) as figure:
        body, tail = figure.subplots(1, 2)
        for index, (factors, curve) in enumerate(group):
            style = look(index)
            label = ", ".join(f"{n} {level(factors.get(n), n)}" for n in names) or workload
            line = {"ls": style.dashes, "color": style.colour}
            known = len(curve.at_ms)
            if curve.known_until_ms is not None:
                known = int(curve.at_ms.searchsorted(curve.known_until_ms, side="right"))
                last = max(0, known - 1)
                body.plot(curve.at_ms[last:], curve.share[last:], alpha=PALE, **line)
                tail.plot(curve.at_ms[last:], 1 - curve.share[last:], alpha=PALE, **line)
            body.plot(curve.at_ms[:known], curve.share[:known], **line)
            tail.plot(curve.at_ms[:known], 1 - curve.share[:known], **line)
            body.plot([], [], marker=style.marker, label=f"{label} (n = {curve.n:,})", **line)
            for share in marked(curve.n):
                _mark(body, tail, curve, share, style.marker, style.colour)
        body.set_title("Share of requests that took less")
        body.set_ylim(0, 1.02)
        body.set_yticks([0, 0.25, 0.5, 0.75, 0.95], ["0", "25 %", "p50", "75 %", "p95"])
        tail.set_title("Share that took longer: the tail")
        tail.set_yscale("log")
        tail.set_ylim(0.0009, 1.2)
        tail.set_yticks([1, 0.1, 0.01, 0.001], ["100 %", "10 %\np90", "1 %\np99", "0.1 %\np99.9"])
        low = min(float(curve.at_ms[0]) for _, curve in group)
        high = max(float(curve.at_ms[-1]) for _, curve in group)
        for axis in (body, tail):
            axis.set_xlabel("response time (ms)")
            axis.set_xscale("log")
            axis.set_xlim(low / 1.1, high * 1.1)
            log_ticks(axis.xaxis, low, high)
        figure.legend(loc="outside lower left", ncols=2)
        return written(
            figure,
            folder,
            name,
            alt=f"Distribution of the response times of {workload}{', ' + shared if shared else ''}",
            caption=f"Response times{' with ' + shared if shared else ''}: requests due in the measured window, "
            "raw samples of all repetitions pooled. Markers stand at p50, p95, p99 where the tables have "
            "them. A curve ends at p99.9, or where fewer than ten requests are left."
            + (f" Left out: {counted(unread, 'trial')} with unreadable samples." if unread else "")
            + (PALE_NOTE if any(curve.known_until_ms is not None for _, curve in group) else "")
            + notes,
        )


def _mark(body: Axes, tail: Axes, curve: Curve, share: float, marker: str, colour: str) -> None:
    place = int(curve.share.searchsorted(share))
    if place < len(curve.share):
        for axis, at in ((body, share), (tail, 1 - share)):
            axis.plot(curve.at_ms[place], at, marker, color=colour, mec="white", mew=0.6, zorder=3)


def pooled(
    trials: Iterable[tuple[Path, tuple[float, float] | None]], *, points: int = 2000, tail: float = 0.999
) -> Curve | None:
    """Pool the response times of requests that were due in each trial's window; None when none has a good reply.

    `trials` are pairs of a samples.parquet and its measured window in seconds. Samples are counted into narrow
    buckets in batches. At a bucket's edge the share below is a count, not an estimate; at most
    `points` edges are kept, spread evenly over ranks, up to the rank `tail` (but never beyond the rank above
    which fewer than ten requests lie); the first filled bucket is always kept.
    """
    found: list[tuple[Histogram, Histogram]] = []
    unread = 0
    for path, window_s in trials:
        try:
            found.append(_counted(path, window_s))
        except DamagedError:
            unread += 1
    answered, unanswered = merge(known for known, _ in found), merge(bounds for _, bounds in found)
    if not answered.count:
        return None
    whole = answered.merged(unanswered)
    upper_ns, below = whole.cumulative()
    growth = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
    at_ms = np.concatenate(([upper_ns[0] / growth], upper_ns)) / 1e6
    share = np.concatenate(([0.0], below))
    n = whole.count
    known_until_ms = None
    if unanswered.minimum is not None:
        known_until_ms = float(at_ms[max(0, int(np.searchsorted(at_ms, unanswered.minimum / 1e6)) - 1)])
    reach = min(tail, 1 - BEYOND / n)
    keep = share <= max(reach, share[1])
    at_ms, share = at_ms[keep], share[keep]
    if len(share) > points:
        # Half of the points over ranks, half over the logarithm of what lies above: the tail keeps its shape.
        body = np.searchsorted(share, np.linspace(0, share[-1], points // 2))
        ends = 1 - np.geomspace(1, 1 - share[-1], points // 2)
        chosen = np.unique(np.clip(np.concatenate((body, np.searchsorted(share, ends))), 0, len(share) - 1))
        at_ms, share = at_ms[chosen], share[chosen]
    return Curve(at_ms=at_ms, share=share, n=n, known_until_ms=known_until_ms, unread=unread)


def _counted(path: Path, window_s: tuple[float, float] | None) -> tuple[Histogram, Histogram]:
    """Return one trial's times, and the lower bounds of those that have none; raises DamagedError when the samples
    cannot be read to the end."""
    answered, bounds = Accumulator(RELATIVE_ERROR), Accumulator(RELATIVE_ERROR)
    samples = open_samples(path)
    for batch in samples.batches():
        due = np.ones(len(batch.due), dtype=np.bool_)
        if window_s is not None:
            due = (batch.due >= round(window_s[0] * 1e9)) & (batch.due < round(window_s[1] * 1e9))
        answered.add(np.maximum((batch.last - batch.due)[batch.good & due], 1))
        bounds.add(np.maximum(Unanswered(batch, samples.latest_ns).since(batch.due, due), 1))
    return answered.histogram(), bounds.histogram()
