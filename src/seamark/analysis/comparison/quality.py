"""Whether two treatments have equal quality, so that their speeds may be compared. Pure."""

from collections.abc import Sequence
from statistics import median

from seamark.analysis.comparison.metric_names import ComparedMetric
from seamark.analysis.comparison.observations import Observation
from seamark.analysis.metrics.objectives import COLUMNS, GROUPS, WHOLE
from seamark.model.objectives import REQUEST_OBJECTIVES
from seamark.model.results.trial_metrics import ObjectiveResult

EQUAL_RATIO = 0.01
"""Recalls are equal within this share of the greater one, where no objective says what is enough."""
UNEQUAL = "not comparable at equal quality"


def unequal_quality(
    base: Sequence[Observation], new: Sequence[Observation], metric: ComparedMetric
) -> tuple[str, str] | None:
    """Return why the speeds of two treatments cannot be compared, and a remedy; None if they can be.

    Both sides must meet every objective but those on the compared figures themselves, each in most of its trials.
    A recall without an objective must be equal. Qualities and metrics of the user's own are no speeds.
    """
    if metric.group in ("quality", "own"):
        return None
    named = {(slo.metric, slo.op, slo.limit): slo for each in (*base, *new) for slo in each.slos}
    for slo in named.values():
        missed = [name for name, side in (("the baseline", base), ("the other side", new)) if _misses(side, slo)]
        if missed and _group(slo.metric) != metric.group:
            who = "both sides" if len(missed) == 2 else missed[0]
            verb = "miss" if len(missed) == 2 else "misses"
            return (
                f"{UNEQUAL}: {who} {verb} {slo.metric} {slo.op} {slo.limit:g}",
                "compare treatments that meet it, or search for the largest load that does (`search`).",
            )
    floors = {slo.metric for slo in named.values()}
    paths = [path for each in base for path in each.figures if path.startswith("quality.recall")]
    for path in dict.fromkeys(paths):
        name = path.removeprefix("quality.")
        one, other = _median(base, path), _median(new, path)
        if name in floors or one is None or other is None:
            continue
        if abs(one - other) > EQUAL_RATIO * max(abs(one), abs(other)):
            return (
                f"{UNEQUAL}: {name} is {one:.3g} on the baseline and {other:.3g} on the other side",
                f"say what is enough, such as `slos: ['{name} >= 0.95']`.",
            )
    return None


def _misses(side: Sequence[Observation], slo: ObjectiveResult) -> bool:
    known = [
        each.met
        for observed in side
        for each in observed.slos
        if (each.metric, each.op, each.limit) == (slo.metric, slo.op, slo.limit) and each.met is not None
    ]
    return known.count(False) * 2 > len(known)


def _group(objective: str) -> str:
    """Return the group of figures that an objective is on."""
    if objective in REQUEST_OBJECTIVES:
        return GROUPS.get(objective.removesuffix("_s"), objective)
    if objective in WHOLE:
        return WHOLE[objective].partition(".")[0]
    name = objective.removesuffix("_s").rpartition("_")[0]
    return GROUPS.get(name) or COLUMNS.get(objective, objective).partition(".")[0]


def _median(side: Sequence[Observation], path: str) -> float | None:
    values = [found.low for each in side if (found := each.figure(path)) is not None]
    return median(values) if values else None
