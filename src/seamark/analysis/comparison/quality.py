"""Whether two treatments have equal quality, so that their speeds may be compared. Pure."""

from collections.abc import Sequence
from statistics import median

from seamark.analysis.comparison.metric_names import ComparedMetric
from seamark.analysis.comparison.observations import Observation
from seamark.analysis.metrics.objectives import path_of
from seamark.model.results.comparison import EQUAL_RATIO
from seamark.model.results.trial_metrics import ObjectiveResult

UNEQUAL = "not comparable at equal quality"


def unequal_quality(
    base: Sequence[Observation],
    new: Sequence[Observation],
    metric: ComparedMetric,
    quality_margin: float | None = None,
) -> tuple[str, str] | None:
    """Return why the speeds of two treatments get no verdict, and a remedy; None if they get one.

    They get none where one side meets an objective, in most of its trials, that the other misses; objectives on the
    compared figures themselves do not count. A recall or score without an objective must be equal, a score within a
    stated `quality_margin`. Qualities and metrics of the user's own are no speeds.
    """
    if metric.group in ("quality", "own"):
        return None
    for slo in _objectives(base, new, metric):
        met = _meets(base, slo), _meets(new, slo)
        if True in met and False in met:
            who = "the baseline" if met[0] is False else "the other side"
            return (
                f"{UNEQUAL}: {who} misses {slo.metric} {slo.op} {slo.limit:g}, which the other meets",
                "compare treatments that meet it, or search for the largest load that does (`search`).",
            )
    floors = {slo.metric for trial in (*base, *new) for slo in trial.slos}
    recalls = [path for trial in base for path in trial.figures if path.startswith("quality.recall")]
    scores = [f"quality.{name}" for trial in base if trial.answers is not None for name in trial.answers.scores]
    for path in dict.fromkeys((*recalls, *scores)):
        name = path.removeprefix("quality.")
        one, other = _median(base, path), _median(new, path)
        if name in floors or one is None or other is None:
            continue
        margin = quality_margin if path in scores else None
        if abs(one - other) > (EQUAL_RATIO * max(abs(one), abs(other)) if margin is None else margin):
            return (
                f"{UNEQUAL}: {name} is {one:.3g} on the baseline and {other:.3g} on the other side",
                f"say what is enough, such as `slos: ['{name} >= 0.95']`.",
            )
    return None


def quality_note(base: Sequence[Observation], new: Sequence[Observation], metric: ComparedMetric) -> str | None:
    """Return what is said beside a verdict: which objectives both sides miss, and which are not known to be met."""
    notes = []
    for slo in _objectives(base, new, metric):
        met, words = (_meets(base, slo), _meets(new, slo)), f"{slo.metric} {slo.op} {slo.limit:g}"
        if met == (False, False):
            notes.append(f"both sides miss {words}")
        elif None in met:
            notes.append(f"objective not known: {words}")
    return "; ".join(notes) or None


def _objectives(
    base: Sequence[Observation], new: Sequence[Observation], metric: ComparedMetric
) -> list[ObjectiveResult]:
    """Return the objectives of two sides, each once, without those on the compared figures themselves."""
    named = {(slo.metric, slo.op, slo.limit): slo for trial in (*base, *new) for slo in trial.slos}
    return [slo for slo in named.values() if path_of(slo.metric).partition(".")[0] != metric.group]


def _meets(side: Sequence[Observation], slo: ObjectiveResult) -> bool | None:
    """Return whether most trials meet an objective; None where half do, or none is known to."""
    known = [
        result.met
        for observed in side
        for result in observed.slos
        if (result.metric, result.op, result.limit) == (slo.metric, slo.op, slo.limit) and result.met is not None
    ]
    missed = 2 * known.count(False)
    return None if missed == len(known) else missed < len(known)


def _median(side: Sequence[Observation], path: str) -> float | None:
    values = [figure.low for trial in side if (figure := trial.figure(path)) is not None]
    return median(values) if values else None
