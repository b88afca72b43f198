"""What each metric is called in Prometheus's text form: base units, one name for all quantiles of a time."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from seamark.analysis.metrics.metric import Metric
from seamark.analysis.metrics.table import METRICS, STATISTICS

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
"""Unit in metrics.json -> base unit as a name ends in it, and how many of ours one of it is."""

OWN_UNIT = re.compile(r"(_mb_per_s|_mib_per_s|_per_s|_rps|_ms|_mb|_s|_j|_w)$")
ONE_OF_SEVERAL = re.compile(r"^(?:(?:p\d+|mean|min|max) of|median|greatest) ")


@dataclass(frozen=True, kw_only=True)
class Exposed:
    """One metric as Prometheus has it. `help` says what all metrics of that name are.

    `per_base` of the unit in metrics.json are one of the base unit: 1000 where that has milliseconds.
    """

    name: str
    help: str
    labels: Mapping[str, str]
    path: str
    per_base: float

    def value(self, figure: float | bool) -> float:
        """Return a figure of metrics.json in the base unit, with the digits that it has."""
        return float(f"{figure / self.per_base:.15g}")


def exposed(metrics: Iterable[Metric] = METRICS) -> tuple[Exposed, ...]:
    """Return the metrics in their order; of two that are the same in different units only the first."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], Exposed] = {}
    for metric in metrics:
        each = _exposed(metric)
        found.setdefault((each.name, tuple(each.labels.items())), each)
    return tuple(found.values())


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
    """Join words and unit: the unit that the words end in goes, and no word of what is counted is said twice."""
    said = OWN_UNIT.sub("", words).replace("_ms_", "_").removesuffix("_value").split("_")
    counted, *rest = unit.split("_")
    return "_".join([PREFIX, *said, *(rest if counted in said else [counted, *rest] if counted else [])])
