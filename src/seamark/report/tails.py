"""Draws how response times are distributed: the share of requests that took less, and the tail above."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from seamark.report.canvas import MUTED, drawing, look, plain_numbers, written
from seamark.report.content import Picture
from seamark.report.distribution import Curve, pooled
from seamark.report.numbers import level
from seamark.report.source import Document, Results

MOST_CURVES = 7
MOST_FIGURES = 4


def tail_pictures(
    results: Results, workload: str, treatments: Sequence[Document], stem: str, folder: Path
) -> list[Picture]:
    """Draw the pooled distribution of each treatment, up to seven of them in a figure."""
    measured = []
    for treatment in treatments:
        trials = [t for t in results.trials_of(treatment) if t.ok and t.folder.samples.is_file()]
        curve = pooled((trial.folder.samples, trial.window_s) for trial in trials) if trials else None
        if curve is not None:
            measured.append((_label(treatment), curve))
        if len(measured) == MOST_CURVES * MOST_FIGURES:
            break
    groups = [measured[at : at + MOST_CURVES] for at in range(0, len(measured), MOST_CURVES)]
    left_out = sum(1 for t in treatments if any(x.ok for x in results.trials_of(t))) - len(measured)
    return [
        _picture(group, workload, f"{stem}-response-time{f'-{place}' if place else ''}", folder, left_out)
        for place, group in enumerate(groups)
    ]


def _label(treatment: Document) -> str:
    return ", ".join(f"{name} {level(value)}" for name, value in (treatment.get("factors") or {}).items()) or "all"


def _picture(group: Sequence[tuple[str, Curve]], workload: str, name: str, folder: Path, left_out: int) -> Picture:
    with drawing(8.4, 3.2 + 0.16 * len(group)) as figure:
        body, tail = figure.subplots(1, 2)
        for index, (label, curve) in enumerate(group):
            style = look(index)
            body.plot(
                curve.at_ms, curve.share, ls=style.dashes, color=style.colour, label=f"{label} (n = {curve.n:,})"
            )
            tail.plot(curve.at_ms, 1 - curve.share, ls=style.dashes, color=style.colour)
            for share in (0.5, 0.95, 0.99):
                _mark(body, tail, curve, share, style.marker, style.colour)
        body.set_title("Share of requests that took less")
        body.set_ylim(0, 1.01)
        tail.set_title("Share that took longer (the tail)")
        tail.set_yscale("log")
        tail.set_ylim(0.0009, 1.15)
        tail.set_yticks([1, 0.1, 0.01, 0.001], ["100 %", "10 %\np90", "1 %\np99", "0.1 %\np99.9"])
        body.set_yticks([0, 0.25, 0.5, 0.75, 0.95], ["0", "25 %", "p50", "75 %", "p95"])
        low = min(float(curve.at_ms[0]) for _, curve in group)
        high = max(float(curve.at_ms[-1]) for _, curve in group)
        for axis in (body, tail):
            _milliseconds(axis, low, high)
        figure.legend(loc="outside lower left", ncols=2 if max(len(label) for label, _ in group) < 50 else 1)
        return written(
            figure,
            folder,
            name,
            alt=f"Distribution of the response times of {workload}",
            caption="Response times of good requests in the measured window, raw samples of all repetitions pooled. "
            "Markers stand at p50, p95 and p99. A curve ends at p99.9, or where fewer than ten requests are left."
            + (f" {left_out} treatments are not drawn." if left_out > 0 else ""),
        )


def _mark(body: Axes, tail: Axes, curve: Curve, share: float, marker: str, colour: str) -> None:
    place = int(curve.share.searchsorted(share))
    if place < len(curve.share):
        body.plot(curve.at_ms[place], share, marker, color=colour, mec="white", mew=0.6)
        tail.plot(curve.at_ms[place], 1 - share, marker, color=colour, mec="white", mew=0.6)


def _milliseconds(axis: Axes, low: float, high: float) -> None:
    axis.set_xlabel("response time (ms)", color=MUTED)
    axis.set_xscale("log")
    axis.set_xlim(low / 1.15, high * 1.15)
    plain_numbers(axis, x=True)
    axis.tick_params(axis="x", which="minor", labelbottom=False)
