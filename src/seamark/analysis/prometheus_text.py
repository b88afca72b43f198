"""Metrics of trials in Prometheus's text format: base units, one name for all quantiles; telemetry by node as CSV."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from prometheus_client import generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from seamark.analysis.metrics.distribution import STATISTICS
from seamark.analysis.metrics.metric import Metric
from seamark.analysis.metrics.table import METRICS
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.times import Times
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.service import Value
from seamark.model.trial import Trial
from seamark.storage.documents import read, regular, replacing
from seamark.storage.paths import TrialFolder

PREFIX = "seamark"

UNITS: Mapping[str, tuple[str, float]] = {
    "ms": ("seconds", 1e3),
    "s": ("seconds", 1),
    "MB": ("bytes", 1e-6),
    "MB/s": ("bytes_per_second", 1e-6),
    "MiB/s": ("bytes_per_second", 2**-20),
    "ratio": ("ratio", 1),
    "J": ("joules", 1),
    "J/request": ("joules", 1),
    "J/unit": ("joules", 1),
    "W": ("watts", 1),
    "requests": ("requests", 1),
    "sessions": ("sessions", 1),
    "tasks": ("tasks", 1),
    "units/s": ("units_per_second", 1),
    "requests/s": ("requests_per_second", 1),
    "sessions/s": ("sessions_per_second", 1),
    "yes or no": ("", 1),
}
"""Unit in metrics.json -> suffix of the base unit, and the factor between them."""

OWN_UNIT = re.compile(r"(_mb_per_s|_mib_per_s|_per_s|_rps|_ms|_mb|_s|_j|_w)$")
ONE_OF_SEVERAL = re.compile(r"^(?:(?:p\d+|mean|min|max) of|median|greatest) ")


@dataclass(frozen=True, kw_only=True)
class Exposed:
    """One metric in Prometheus's form. `help` describes all metrics of that name.

    `per_base` units of metrics.json are one base unit: 1000 for milliseconds.
    """

    name: str
    help: str
    labels: Mapping[str, str]
    path: str
    per_base: float

    def value(self, figure: float | bool) -> float:
        """Return a value of metrics.json in the base unit, with its own digits."""
        return float(f"{figure / self.per_base:.15g}")


def exposed(metrics: Iterable[Metric] = METRICS) -> tuple[Exposed, ...]:
    """Return the metrics in their order; of two that differ in their unit only, the first."""
    unique: dict[tuple[str, tuple[tuple[str, str], ...]], Exposed] = {}
    for metric in metrics:
        gauge = _exposed(metric)
        unique.setdefault((gauge.name, tuple(gauge.labels.items())), gauge)
    return tuple(unique.values())


def _exposed(metric: Metric) -> Exposed:
    words, labels, meaning = metric.path.split("."), {}, metric.meaning
    if words[-1] in STATISTICS:
        labels["statistic"] = words.pop()
        meaning = ONE_OF_SEVERAL.sub("", meaning)
    elif words[-2:-1] == ["by_category"]:
        labels["category"] = words.pop()
        words.pop()
        meaning = meaning.rpartition(" as ")[0]
    unit, per_base = UNITS[metric.unit]
    return Exposed(
        name=_name("_".join(words), unit),
        help=meaning,
        labels=MappingProxyType(labels),
        path=metric.path,
        per_base=per_base,
    )


def _name(words: str, unit: str) -> str:
    """Join words and unit: a unit at the end of the words is replaced, and the counted noun appears once."""
    said = OWN_UNIT.sub("", words).replace("_ms_", "_").removesuffix("_value").split("_")
    counted, *rest = unit.split("_")
    return "_".join([PREFIX, *said, *(rest if counted in said else [counted, *rest] if counted else [])])


EXPOSED = exposed()
TRIAL = f"{PREFIX}_trial_info"
STARTED = f"{PREFIX}_trial_start_time_seconds"
QUALITY = f"{PREFIX}_quality"
OWN = f"{PREFIX}_own"
HELPS = {
    TRIAL: "always 1; its labels have the outcome and the verdict of the trial",
    STARTED: "when the load began, in seconds since 1970",
    QUALITY: "how good the replies were, such as recall@k",
    OWN: "metrics of the scenario's author, each in its own unit",
    **{gauge.name: gauge.help for gauge in reversed(EXPOSED)},
}
ORDER = (TRIAL, STARTED, *dict.fromkeys(gauge.name for gauge in EXPOSED), QUALITY, OWN)

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


TrialFigures = tuple[Labels, Mapping[str, Sequence[Sample]]]
"""The labels of one trial, and its metrics by their Prometheus names; unknown ones are missing."""


def figures_of(metrics: TrialMetrics, trial: Trial, levels: Mapping[str, Value]) -> TrialFigures:
    """Return the metrics of a trial as Prometheus has them. `levels` are its levels of the scenario's factors."""
    samples: dict[str, list[Sample]] = {TRIAL: [(_info(metrics), 1.0)]}
    if metrics.timestamp is not None:
        samples[STARTED] = [({}, datetime.fromisoformat(metrics.timestamp).timestamp())]
    for gauge in EXPOSED:
        figure = metrics.figure(gauge.path)
        if figure is not None:
            samples.setdefault(gauge.name, []).append(
                ({**gauge.labels, **_marks(metrics, gauge)}, gauge.value(figure))
            )
    quality = [({"name": name}, float(value)) for name, value in metrics.quality.items() if value is not None]
    own_samples = [
        ({"name": name, "unit": metric.unit}, float(metric.value))
        for name, metric in metrics.own.items()
        if metric.value is not None
    ]
    return _labels(metrics, trial, levels), samples | {QUALITY: quality, OWN: own_samples}


def _marks(metrics: TrialMetrics, each: Exposed) -> Labels:
    """Return the label of a statistic that is a lower bound, or a mean of the answered requests alone."""
    group, statistic = metrics.at(each.path.partition(".")[0]), each.labels.get("statistic", "")
    if not isinstance(group, Times):
        return {}
    if statistic == "mean":
        return {"of": "answered"} if group.is_conditional else {}
    return {"bound": "lower"} if group.is_range(statistic) else {}


@dataclass(frozen=True)
class _Figures(Collector):
    """Metrics of trials as prometheus_client collects them: each name once, and all trials under it."""

    trials: Sequence[TrialFigures]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name in ORDER:
            metric = GaugeMetricFamily(name, HELPS[name])
            for labels, samples in self.trials:
                for sample_labels, value in samples.get(name, ()):
                    metric.add_sample(name, {**labels, **sample_labels}, value)
            if metric.samples:
                yield metric


def text_of(trials: Sequence[TrialFigures]) -> str:
    """Return trials in the text form."""
    return generate_latest(_Figures(trials)).decode()


def write_figures(path: Path, trials: Sequence[TrialFigures]) -> None:
    """Write trials to one file, atomically: a collector never reads a partial one."""
    with replacing(path) as temporary:
        temporary.write_text(text_of(trials), encoding="utf-8")


def write_trial(folder: TrialFolder, root: Path, trial: Trial, levels: Mapping[str, Value]) -> list[Path]:
    """Write a trial's metrics to `<root>/<scenario>/<trial>.prom`, its telemetry to `<trial>.<node>.csv` beside it.

    Returns the files. A file of a node that this measurement did not use is removed.
    """
    metrics = read(folder.metrics, TrialMetrics)
    target = root / metrics.scenario
    telemetry = dict(telemetry_by_node(folder))
    files = {node: target / f"{trial.id}.{node}.csv" for node in telemetry}
    for node, path in files.items():
        with replacing(path) as temporary:
            pa.csv.write_csv(telemetry[node], temporary, pa.csv.WriteOptions(quoting_style="needed"))
    for old in target.glob(f"{trial.id}.*.csv"):
        if old not in files.values():
            old.unlink(missing_ok=True)
    figures = target / f"{trial.id}.prom"
    write_figures(figures, [figures_of(metrics, trial, levels)])
    return [figures, *files.values()]


def telemetry_by_node(folder: TrialFolder) -> Iterable[tuple[str, pa.Table]]:
    """Yield each node of a trial with its telemetry, in the columns of telemetry.csv; sources lose their `@node`.

    Sources without a node are those of the load's node. Empty for a trial without telemetry.
    """
    if not folder.telemetry.exists():
        return
    with pq.ParquetFile(regular(folder.telemetry)) as file:
        table = file.read(use_threads=False)
    own_node = read(folder.load, LoadRecord).node or "local"
    places = [str(source).rpartition("@") for source in table.column("source").to_pylist()]
    nodes = [node if at else own_node for _, at, node in places]
    bare = pa.array([source if at else node for source, at, node in places], pa.string())
    table = table.set_column(table.column_names.index("source"), "source", bare)
    for node in dict.fromkeys(nodes):
        yield node, table.filter(pa.array([row_node == node for row_node in nodes]))


def _info(metrics: TrialMetrics) -> Labels:
    """Return the labels of a trial's info metric; what is not known is left out."""
    words = {name: getattr(metrics, name) for name in ("trial_id", "component", "status", "category", "verdict")}
    words["unit"] = metrics.throughput.unit.removesuffix("_per_s")
    words["energy_scope"] = metrics.energy and metrics.energy.scope
    return {name: word for name, word in words.items() if word is not None}


def _labels(metrics: TrialMetrics, trial: Trial, levels: Mapping[str, Value]) -> Labels:
    # a valid label: letters other than a to z become their numbers
    names = {name: re.sub(r"[^A-Za-z0-9_]", lambda letter: f"_u{ord(letter[0]):04x}", name) for name in levels}
    factors = {
        f"factor_{names[name]}": str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in levels.items()
        if value is not None
    }
    return {
        "scenario": metrics.scenario,
        "service": metrics.service,
        "workload": trial.group,
        "trial": trial.id,
        "deployment": trial.deployment,
        "repetition": str(trial.repetition),
        **({"origin": metrics.origin} if metrics.virtual_clock else {}),
        **factors,
    }
