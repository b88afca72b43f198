"""The few figures of a part of a load that stand beside those of the measured window, never in their place."""

from pathlib import Path
from typing import Any

from seamark.analysis.metrics.samples import Samples
from seamark.analysis.metrics.stream import read_stream
from seamark.analysis.metrics.tally import Tally, tally
from seamark.analysis.metrics.window import Window
from seamark.stats.censored import Estimate

SHOWN = ("p50", "p95", "p99")


def part_figures(samples: Samples, part: Window, chunks: Path) -> dict[str, Any]:
    """Return the figures of a part of a load, counted as those of the measured window. `chunks` is its file of
    chunks, which need not be there."""
    return figures_of(tally(samples, part, stream=read_stream(chunks, samples, part)))


def figures_of(counted: Tally) -> dict[str, Any]:
    """Return requests, failures, rates and response times of what was counted; null where too few samples are."""
    length_s = counted.window.length_s
    units = counted.units if counted.streamed_units is None else counted.streamed_units
    bounds = counted.response.lower_bounds()
    times: dict[str, Any] = {name: _ms(counted.response.statistic(name)) for name in (*SHOWN, "mean")}
    times |= {"censored": counted.response.bounds.count, "lower_bounds": [name for name in SHOWN if name in bounds]}
    return {
        "start_s": counted.window.start_ns / 1e9,
        "end_s": counted.window.end_ns / 1e9,
        "requests": counted.due,
        "ok": counted.ok,
        "failed": counted.failed,
        "error_rate": counted.failed / counted.sent if counted.sent else None,
        "requests_per_s": counted.replies / length_s if length_s > 0 else None,
        "throughput": units / length_s if length_s > 0 else None,
        "latency_ms": times,
    }


def _ms(found: Estimate | None) -> float | None:
    return None if found is None else found.value / 1e6
