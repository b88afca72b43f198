"""Sums up each kind of request over the trials of a treatment: classes of a mix, operations, turns of a session."""

from collections.abc import Mapping, Sequence
from typing import Any

from seamark.analysis.summary.outcome import Document
from seamark.analysis.summary.spread import each, spread

COUNTS = ("requests", "ok", "failed", "units")
TIMES = ("latency_ms", "service_time_ms", "ttft_ms", "tpot_ms")


def kinds_of(good: Sequence[Document]) -> dict[str, Document] | None:
    """Return the figures of each kind of request; None where all are alike.

    Counts are those of all trials together, times the spread of the trials' own figures: one that a trial withholds,
    having too few samples for it, is withheld. `requests_per_s` are good requests that were due in the window.
    """
    names = dict.fromkeys(name for metrics in good for name in metrics.get("by_kind") or {})
    return {name: _kind(name, [m for m in good if name in (m.get("by_kind") or {})]) for name in names} or None


def _kind(name: str, trials: Sequence[Document]) -> Document:
    figures = [metrics["by_kind"][name] for metrics in trials]
    counts = {count: sum(kind[count] for kind in figures) for count in COUNTS}
    ended = counts["ok"] + counts["failed"]
    rates = [
        kind["ok"] / length_s
        for kind, metrics in zip(figures, trials, strict=True)
        if (length_s := _length_s(metrics)) is not None
    ]
    return {
        **counts,
        "requests_per_s": spread(rates),
        "errors": {"rate": counts["failed"] / ended if ended else None},
        **{group: _times(figures, group) for group in TIMES},
    }


def _length_s(metrics: Document) -> float | None:
    window = metrics.get("window") or {}
    start_s, end_s = window.get("start_s"), window.get("end_s")
    return end_s - start_s if start_s is not None and end_s is not None and end_s > start_s else None


def _times(figures: Sequence[Mapping[str, Any]], group: str) -> Document | None:
    """Return the spread of every figure of a group; None where no trial has the group.

    `censored` is the sum over the trials; `lower_bounds` names what is a lower bound in any trial: so is its median.
    """
    names = dict.fromkeys(name for kind in figures for name in kind.get(group) or {})
    for name in ("censored", "lower_bounds"):
        names.pop(name, None)
    found = {name: each(figures, group, name) for name in names}
    bounds = [name for kind in figures for name in (kind.get(group) or {}).get("lower_bounds") or ()]
    spreads = {name: spread(values if len(values) == len(figures) else ()) for name, values in found.items()}
    censored = sum((kind.get(group) or {}).get("censored") or 0 for kind in figures)
    return {**spreads, "censored": censored, "lower_bounds": list(dict.fromkeys(bounds))} if spreads else None
