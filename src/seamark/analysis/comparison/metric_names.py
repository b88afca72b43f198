"""Metrics that are compared: their names, units and directions, and those that a component is known by. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from seamark.analysis.comparison.observations import Observation
from seamark.analysis.metrics.table import METRICS
from seamark.errors import UserError, did_you_mean
from seamark.model.objectives import MAKESPAN, RESPONSE_TIME, RUN_TIME, SEARCH_FOUND, quality_direction
from seamark.model.service import Quality
from seamark.stats.compare import Direction

TABLE = {metric.path: metric for metric in METRICS}
UNANSWERED = (RESPONSE_TIME, "latency_ms.p99")
STREAMED = ("ttft_ms.p50", "ttft_ms.p99", "tpot_ms.p50")
DEFAULTS = ("throughput.value", *UNANSWERED, *STREAMED)
"""Paths of all figures that a default comparison may need."""


@dataclass(frozen=True, kw_only=True)
class ComparedMetric:
    """A metric by its name and its path. The unit of throughput is that of the trials."""

    name: str
    path: str
    unit: str
    better: Direction

    @property
    def group(self) -> str:
        """The group of figures that it belongs to: `latency_ms` of `latency_ms.p99`."""
        return self.path.partition(".")[0]


def table_paths(names: Iterable[str]) -> tuple[str, ...]:
    """Return the paths in the table of metrics that trials are read for: those of the names, and the defaults."""
    return tuple(dict.fromkeys((*(path for name in names if (path := _path(name))), *DEFAULTS)))


def default_metrics(primary: str, seen: Sequence[Observation]) -> tuple[str, ...]:
    """Return the metrics of treatments, by the figures that some trial has: the first score of answers, as speed is
    worth nothing without quality, then the primary metric, then others."""
    scores = next((trial.answers.scores[:1] for trial in seen if trial.answers is not None), ())
    return tuple(dict.fromkeys((*scores, *_unscored(primary, seen))))


def _unscored(primary: str, seen: Sequence[Observation]) -> tuple[str, ...]:
    known = {path for trial in seen for path in trial.figures}
    if primary == RUN_TIME:
        return (RUN_TIME,) if f"quality.{RUN_TIME}" in known else ("throughput",)
    if f"quality.{MAKESPAN}" in known:
        return (MAKESPAN, "completion_mean_s")
    times = STREAMED if "ttft_ms.p50" in known else UNANSWERED
    recalls = sorted(path.removeprefix("quality.") for path in known if path.startswith("quality.recall"))
    return tuple(dict.fromkeys((primary, "throughput", *times, *recalls)))


def metric_of(
    name: str, seen: Sequence[Observation], qualities: Mapping[str, Quality], where: str = ""
) -> ComparedMetric:
    """Return a metric by its name: of the table, a quality, a metric of the user's own, or what a search found.

    Raises UserError, which begins with `where`, for an unknown name and for a metric of which neither more nor less
    is better.
    """
    own_metrics = {key: fact for trial in seen for key, fact in trial.own.items()}
    measured = {
        path.removeprefix("quality.") for trial in seen for path in trial.figures if path.startswith("quality.")
    }
    short = name.removeprefix("quality.").removeprefix("own.")
    better: str
    if name == SEARCH_FOUND:
        return ComparedMetric(name=name, path=SEARCH_FOUND, unit="", better="higher")
    if path := _path(name):
        metric = TABLE[path]
        shown, unit, better = path.removesuffix(".value"), metric.unit, metric.better
    elif short in own_metrics:
        shown, path, unit, better = short, f"own.{short}", own_metrics[short].unit, own_metrics[short].better
    elif short in measured or short in qualities:
        quality = qualities.get(short)
        shown, path, unit = short, f"quality.{short}", quality.unit if quality else ""
        ops = {slo.op for trial in seen for slo in trial.slos if slo.metric == short}
        better = quality.better if quality else quality_direction(short, ops)
    else:
        known = (*(path.removesuffix(".value") for path in TABLE), *own_metrics, *measured, *qualities, SEARCH_FOUND)
        raise UserError(
            f"{where}{name}: no such metric.{did_you_mean(name, known)} docs/measurement.md lists all; qualities and"
            " metrics of your own have their own names."
        )
    if better not in ("higher", "lower"):
        remedy = "Compare another metric, such as throughput or latency_ms.p99."
        if path == f"quality.{short}":
            remedy = f"Say which by an objective of the workload: `slos: {short} >= 0`, or `<=` if less is better."
            remedy += " A figure of a command may have `better: more` or `better: less` instead."
        raise UserError(f"{where}{name}: neither more nor less of it is better, so it gives no verdict. {remedy}")
    return ComparedMetric(name=shown, path=path, unit=unit, better="higher" if better == "higher" else "lower")


def _path(name: str) -> str | None:
    return next((path for path in (name, f"{name}.value") if path in TABLE), None)
