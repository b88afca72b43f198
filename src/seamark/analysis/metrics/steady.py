"""Steadiness of a load over its measured window, and the start of its steady part, by a test of change and MSER-5.

A verdict and an advice beside the metrics: nothing here decides what is measured.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from seamark.analysis.metrics.outages import (
    LEAST_PARTS,
    REPLIES_A_PART,
    SHORTEST_PART_NS,
    LoadFacts,
    RunTimeline,
    outages,
    run_timeline,
)
from seamark.analysis.metrics.samples import Samples
from seamark.analysis.metrics.timeline import SECOND_NS
from seamark.analysis.metrics.window import Window
from seamark.model.plurals import in_percent
from seamark.model.results.trial_metrics import SteadyVerdict
from seamark.stats.change import change

Series = NDArray[np.float64]

SURE = 0.01
"""Probability that a steady load is called not steady."""
LEAST_CHANGE = 0.1
"""A smaller change does not matter, however certain it is."""


def steady_state(samples: Samples, window: Window, facts: LoadFacts) -> tuple[SteadyVerdict, Window | None]:
    """Judge the measured window of a load; return the verdict, without figures, and the steady part: the whole window
    if it was steady, the rest after a start-up if there is one, else None.

    It is not steady when there was an outage, and when throughput or mean response time changed, by a step at any
    place or by a trend (stats/change.py). A start-up after which nothing changes ends where MSER-5 truncates.
    """
    timeline = run_timeline(samples, window)
    down = outages(samples, window, timeline, facts)
    if timeline is None and window.end_ns - window.start_ns < LEAST_PARTS * SHORTEST_PART_NS:
        reason = f"{window.length_s:.3g} s is too short to tell"
        return SteadyVerdict(steady=False, reason=reason, outages=down), None
    if facts.changing:
        return SteadyVerdict(reason="the rate is meant to change", outages=down), None
    if timeline is None:
        reason = f"{samples.rows} requests are too few to tell: it takes {LEAST_PARTS * REPLIES_A_PART}"
        return SteadyVerdict(reason=reason, outages=down), None
    rule = f"change test at {SURE:g} and MSER-5, {timeline.parts} parts of {timeline.part_s:.3g} s"
    if down:
        return SteadyVerdict(steady=False, reason=down[0].text, rule=rule, outages=down), None
    series = {"throughput": timeline.replies, "response time": timeline.response_s}
    if (text := _changed(series, timeline)) is None:
        return SteadyVerdict(steady=True, rule=rule), window
    return _after_start_up(series, timeline, window, SteadyVerdict(steady=False, reason=text, rule=rule))


def state_of_items(samples: Samples, window: Window, facts: LoadFacts) -> tuple[SteadyVerdict, None]:
    """Return the outages of a finite load. It has no steady state: it ends when its items are done."""
    down = outages(samples, window, run_timeline(samples, window), facts)
    return SteadyVerdict(reason="a finite load ends when its items are done", outages=down), None


def _changed(series: Mapping[str, Series], timeline: RunTimeline, start: int = 0) -> str | None:
    """Return the change from part `start` on; None without one."""
    for name, values in series.items():
        part = values[start:]
        least = part[part > 0].min() / 2 if (part > 0).any() else 1.0  # half of the smallest above 0, for a logarithm
        found = change(np.log(np.maximum(part, least)))
        ratio = float(np.exp(found.after - found.before))
        if found.p <= SURE / len(series) and abs(ratio - 1) > LEAST_CHANGE:
            at = f"at about {timeline.at_s(start + found.at):.3g} s"
            return f"{name} {_way(ratio)} {'over the window' if found.kind == 'trend' else at}"
    return None


def _way(ratio: float) -> str:
    if ratio >= 2:
        return f"rose {ratio:.3g}-fold"
    return f"rose by {in_percent(ratio - 1)}" if ratio > 1 else f"fell by {in_percent(1 - ratio)}"


def _after_start_up(
    series: Mapping[str, Series], timeline: RunTimeline, window: Window, verdict: SteadyVerdict
) -> tuple[SteadyVerdict, Window | None]:
    """Add the steady part if the load settled: from the later of both truncations, without a change after it."""
    truncations = [mser(values) for values in series.values()]
    cut = max((truncation.cut for truncation in truncations if truncation.differs), default=0)
    settled = cut > 0 and not any(truncation.differs and truncation.at_limit for truncation in truncations)
    if not settled or _changed(series, timeline, cut) is not None:
        return verdict, None
    start_ns = round(window.start_ns + cut * timeline.part_ns)
    start_s = start_ns / SECOND_NS
    reason = f"{verdict.reason}: a start-up that ended by {start_s:.3g} s"
    part = Window(start_ns=start_ns, end_ns=window.end_ns, rule="after the start-up")
    return replace(verdict, reason=reason, advised_warmup_s=start_s), part


BATCH = 5
LEAST_DIFFERENCE = 0.05


@dataclass(frozen=True, kw_only=True)
class Truncation:
    """Number of leading observations that MSER cuts, and whether they differ from the rest.

    `differs` requires a difference of more than LEAST_DIFFERENCE of the kept mean and three standard errors, so that
    pure noise is not cut. `at_limit`: the best cut is the latest allowed, half of the series, so the series has not
    settled.
    """

    cut: int
    at_limit: bool
    differs: bool


def mser(series: Series) -> Truncation:
    """Return where the Marginal Standard Error Rule on means of BATCH observations truncates `series`.

    MSER(d) = sum over i > d of (y_i - mean_d)^2 / (n - d)^2, least for d in 0..n/2 (White, Cobb, Spratt 2000). Fewer
    than four batches are not cut.
    """
    size = len(series) // BATCH
    if size < 4:
        return Truncation(cut=0, at_limit=False, differs=False)
    means = series[: size * BATCH].reshape(size, BATCH).mean(axis=1)
    left = np.arange(size, 0, -1)
    sums = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means - means.mean())[::-1] ** 2)[::-1]
    centred = np.cumsum((means - means.mean())[::-1])[::-1]
    spread = np.maximum(squares - centred**2 / left, 0)
    limit = size // 2
    cut = int(np.argmin((spread / left**2)[: limit + 1]))
    if cut == 0:
        return Truncation(cut=0, at_limit=False, differs=False)
    kept = sums[cut] / left[cut]
    deviation = math.sqrt(spread[cut] / max(1, left[cut] - 1))
    difference = abs(means[:cut].mean() - kept)
    noise = 3 * deviation * math.sqrt(1 / cut + 1 / left[cut])
    return Truncation(
        cut=cut * BATCH, at_limit=cut == limit, differs=bool(difference > max(LEAST_DIFFERENCE * abs(kept), noise))
    )
