"""Draws how the whole scenario went: time to service of each deployment, and drift over the order of the run."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from seamark.model.plurals import counted
from seamark.report.canvas import COLOURS, MUTED, drawing, look, panels, plain_numbers, written
from seamark.report.content import Picture
from seamark.report.source import Results, TrialRecord

HATCHES = ("", "///", "...", "xxx", "\\\\\\", "++", "oo")
MOST_DEPLOYMENTS = 40
PHASES = ("setup_s", "stage_s", "start_s", "populate_s")


def phases_of(record: Mapping[str, object]) -> dict[str, float]:
    """Return a deployment's time to service by phase, in the order in which the phases run."""
    found = record.get("time_to_service_s") or record.get("phases")
    if not isinstance(found, Mapping):
        return {}
    known = {str(name): float(value) for name, value in found.items() if isinstance(value, int | float)}
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
        figure.legend(*_legend(figure.axes), loc="outside upper left", ncols=7)
        return written(
            figure,
            folder,
            "run-order",
            alt="Throughput over the order of the run",
            caption="Each point is a trial. A slope or a step means that the machine changed while the scenario ran. "
            "A block holds every treatment of one start of a server once, in random order.",
        )


def _legend(axes: list[Axes]) -> tuple[list[Any], list[str]]:
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-(most // 2 - 1) :]}"
