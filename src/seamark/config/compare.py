"""Decoder of a scenario's key `compare`: baseline, metrics, margins, family and costs, against what it varies."""

from collections.abc import Mapping, Sequence
from typing import Any

from seamark.analysis.metrics.table import METRICS
from seamark.config.decode import WRONG, decode, is_mapping, known_keys
from seamark.config.forms.table import directed_figures, is_structured, label_of
from seamark.config.levels import show
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import did_you_mean
from seamark.model.annotations import hints, limits_of
from seamark.model.objectives import PROGRAM_QUALITIES, SEARCH_FOUND
from seamark.model.scenario import Comparing, Resources, Workload, compared_services
from seamark.model.service import Service, Value
from seamark.model.trial import SERVICE


def comparing_of(
    item: Item,
    workloads: Sequence[Workload],
    resources: Resources,
    services: Mapping[str, Service],
    own: Sequence[str],
    mistakes: Mistakes,
    whole: bool = True,
) -> Comparing | None:
    """Return what a scenario declares to compare, None after noting a mistake. `own` are its own metrics. Where
    `workloads` are not the `whole` ones, as after a mistake in them, names are not looked up in what they vary."""
    if not is_mapping(item, mistakes):
        return None
    before = mistakes.count
    known_keys(item, hints(Comparing), mistakes)
    factors = _factors(workloads, resources)
    metrics = _metrics(workloads, services, own)
    given: dict[str, Any] = {}
    if whole and "baseline" in item.value:
        given["baseline"] = _baseline(item.value["baseline"], factors, mistakes)
    lists = {"metrics": metrics, "family": (*factors, *metrics), "costs": metrics}
    for key in ("metrics", "family", "margin", "quality_margin", "costs", "carry_over"):
        if key in item.value and key not in lists:
            kind = bool if key == "carry_over" else float
            given[key] = decode(item.value[key], kind, mistakes, limits=limits_of(Comparing)[key])
        elif key in item.value and whole:
            noun = "factor or metric" if key == "family" else "metric"
            given[key] = _names(item.value[key], lists[key], noun, mistakes)
    return Comparing(**given) if mistakes.count == before else None


def _factors(workloads: Sequence[Workload], resources: Resources) -> dict[str, tuple[Value, ...]]:
    """Return the levels of everything that varies in some workload. What a service alone is given varies within it
    or not at all: it is no level of the others."""
    found: dict[str, list[Value]] = {}
    for workload in workloads:
        settings = [item for item in workload.levels.items() if len(item[1]) > 1 or item[0] not in workload.own]
        settings += [(name, level) for more in workload.include for name, only in more.items() for level in [(only,)]]
        for name, levels in (*settings, *vars(resources).items()):
            found.setdefault(name, []).extend(level for level in levels if level not in found.get(name, []))
    for workload in workloads:
        compared = compared_services(workload, workloads)
        found.setdefault(SERVICE, []).extend(compared if len(compared) > 1 else ())
    return {name: tuple(dict.fromkeys(levels)) for name, levels in found.items() if len({*levels}) > 1}


def _metrics(workloads: Sequence[Workload], services: Mapping[str, Service], own: Sequence[str]) -> tuple[str, ...]:
    """Return the names of all metrics that have a direction, and those that only a measurement can tell."""
    table = (metric.path.removesuffix(".value") for metric in METRICS if metric.better != "neither")
    named = (
        name
        for workload in workloads
        if workload.service in services
        for name in services[workload.service].qualities
    )
    judged = (slo.metric for workload in workloads for slo in workload.slos)
    figures = directed_figures(workloads)
    return tuple(dict.fromkeys((*table, SEARCH_FOUND, *PROGRAM_QUALITIES, *own, *named, *judged, *figures)))


def _baseline(item: Item, factors: Mapping[str, tuple[Value, ...]], mistakes: Mistakes) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for name, entry in item.items() if is_mapping(item, mistakes) else ():
        if name not in factors:
            known = ", ".join(factors) or "nothing"
            text = f"'{name}' does not vary.{did_you_mean(name, factors)} What varies: {known}."
            mistakes.add(entry, text, "unknown_name")
        else:
            named = {
                label_of(name, str(level)) if is_structured(name) and level else level: level
                for level in factors[name]
            }
            if isinstance(entry.value, (list, dict)) or entry.value not in named:
                levels = ", ".join(map(show, named))
                guess = did_you_mean(entry.text or "", [str(level) for level in named])
                mistakes.add(entry, f"{entry.shown} is no level of {name}: {levels}.{guess}", "unknown_name")
            else:
                found[name] = named[entry.value]
    return found


def _names(item: Item, known: Sequence[str], noun: str, mistakes: Mistakes) -> tuple[str, ...]:
    given = decode(item, tuple[str, ...], mistakes)
    if given is WRONG:
        return ()
    if not given:
        mistakes.add(item, f"an empty list names no {noun}. Name one, or remove the line.", "no_value")
    names: list[str] = []
    for word in item.value:
        name = word.value if word.value in known else _short(word.value)
        if name not in known and not name.startswith("recall"):
            text = f"'{word.value}' is no {noun} that can be compared.{did_you_mean(word.value, known)}"
            mistakes.add(word, text, "unknown_name")
        elif name in names:
            mistakes.add(word, f"'{word.value}' stands twice in the list. Remove one.", "written_twice")
        names.append(name)
    return tuple(names)


def _short(name: str) -> str:
    """Return the name of a metric whose path in metrics.json is given: `score` for `quality.score`."""
    return name.removeprefix("quality.").removeprefix("own.").removesuffix(".value")
