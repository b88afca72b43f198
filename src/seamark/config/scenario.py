"""Decoder of a scenario's top level: Items of a merged file into a Scenario. Files are read in read.py."""

import re
from collections.abc import Callable, Mapping, Sequence
from os.path import expandvars
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from seamark.config.decode import SMALL_NAME, WRONG, decode, decode_field, is_mapping, known_keys
from seamark.config.forms.table import PresetFolder
from seamark.config.levels import levels
from seamark.config.workload import NAME, WORKLOAD_KEYS, workloads_of
from seamark.config.yaml_source import Item, Mistakes
from seamark.dispatch.order import order_of
from seamark.model.dotted import Form, is_dotted, resolved
from seamark.model.scenario import (
    NO_COMMAND,
    RESOURCE_SETTINGS,
    Artifacts,
    Notify,
    Prediction,
    Resources,
    Restarts,
    Scenario,
    Workload,
)
from seamark.model.service import Service
from seamark.patterns.table import LOAD_SETTINGS
from seamark.storage.paths import HISTORY

TEXT_KEYS = ("site", "partition", "account", "qos", "gres")
TOP_KEYS = (
    *("scenario", "schema_version", "extends", *TEXT_KEYS, "repetitions", "restarts", "replicas", "max_retries"),
    *("defaults", "workload", "workloads", "artifacts", "binds", "metrics", "checks", "compare", "metadata"),
    *("resources", "capacity_check", "order", "prediction", "notify", "ntasks"),
)
COUNTS = ("repetitions", "max_retries", "replicas", "ntasks")


def scenario_of(
    tree: Item, path: Path, services: Mapping[str, Service], mistakes: Mistakes, preset_folder: PresetFolder
) -> Scenario | None:
    """Return the scenario in a merged tree, or None after noting at least one mistake."""
    before = mistakes.count
    of_a_workload = (*WORKLOAD_KEYS, *(setting.name for setting in LOAD_SETTINGS))
    for key, entry in tree.items():
        if key not in TOP_KEYS:
            mistakes.unknown_key(entry, TOP_KEYS, " It belongs under 'workload:'." if key in of_a_workload else "")
    fields: dict[str, Any] = {"name": _name(tree, mistakes), "path": path}
    for key in TEXT_KEYS:
        if key in tree.value:
            fields[key] = decode_field(tree.value[key], Scenario, key, mistakes)
            if fields[key] is None:
                mistakes.add(tree.value[key], "has no value. Write one, or remove the line.", "no_value")
    if isinstance(account := fields.get("account"), str):
        fields["account"] = _from_environment(tree.value["account"], account, mistakes)
    readers: dict[str, Callable[[Item, Mistakes], Any]] = {
        "restarts": lambda item, mistakes: decode(item, Restarts, mistakes),
        "capacity_check": _capacity_check,
        "order": _order,
        "resources": _resources,
        "artifacts": _artifacts,
        "binds": _binds,
    }
    for key in filter(tree.value.__contains__, (*COUNTS, *readers, "metadata")):
        item = tree.value[key]
        fields[key] = readers[key](item, mistakes) if key in readers else decode_field(item, Scenario, key, mistakes)
    own: tuple[str, ...] = ()
    if "metrics" in tree.value:
        fields["metrics"], own = _metrics(tree.value["metrics"], mistakes)
    if "checks" in tree.value:
        fields["checks"] = tuple(_own_objects(tree.value["checks"], FunctionType, mistakes))
    resources = fields.get("resources", Resources())
    noted = mistakes.count
    fields["workloads"] = workloads_of(tree, resources, services, mistakes, preset_folder, own)
    if "repetitions" not in tree.value and _repeats_itself(fields["workloads"], services):
        fields["repetitions"] = 1
    if "compare" in tree.value:
        from seamark.config.compare import comparing_of  # few scenarios have it

        fields["compare"] = comparing_of(
            tree.value["compare"], fields["workloads"], resources, services, own, mistakes, mistakes.count == noted
        )
    if "prediction" in tree.value:
        fields["prediction"] = prediction_of(tree.value["prediction"], fields["workloads"], mistakes)
    if "notify" in tree.value:
        fields["notify"] = _notify(tree.value["notify"], mistakes)
    fields["lines"] = lines_of(tree)
    return Scenario(**fields) if mistakes.count == before else None


def _repeats_itself(workloads: tuple[Workload, ...], services: Mapping[str, Service]) -> bool:
    """Return whether a scenario is about answers of likeliest tokens alone, which are the same each time: no
    objective is on a time or a rate."""
    return bool(workloads) and all(
        workload.component == "evaluation"
        and set(workload.levels.get("temperature", (0.0,))) == {0.0}
        and all(slo.metric in services[workload.service].qualities for slo in workload.slos)
        for workload in workloads
    )


def _name(tree: Item, mistakes: Mistakes) -> str:
    item = tree.value.get("scenario")
    if item is None:
        text = "the key 'scenario' is missing: the name of this scenario and of its folder in results."
        mistakes.add(tree, text, "missing")
        return ""
    name = decode(item, str, mistakes)
    if name is not WRONG and not NAME.fullmatch(name):
        text = f"'{name}' cannot name a folder: use letters, digits, '.', '_' and '-', at most 64."
        mistakes.add(item, text, "wrong_form")
    elif name is not WRONG and "--" in name:
        text = f"'{name}' holds '--', which separates the parts of a trial's name. Use one '-'."
        mistakes.add(item, text, "wrong_form")
    elif name == HISTORY:
        text = f"'{name}' is the folder of kept runs (`bench keep`). Give the scenario another name."
        mistakes.add(item, text, "conflict")
    return str(name)


def _from_environment(item: Item, text: str, mistakes: Mistakes) -> str:
    """Return text with environment variables expanded, so that user-specific names can stay out of the file."""
    expanded = expandvars(text)
    if missing := re.search(r"\$\{?(\w+)", expanded):
        mistakes.add(item, f"{missing[1]} is not set. Set it (export {missing[1]}=p200000), or write the name here.")
    return expanded


def _capacity_check(item: Item, mistakes: Mistakes) -> Any:
    if item.value is False and (item.text or "").lower() == "off":  # YAML 1.1 reads `off` as false
        return "off"
    return decode_field(item, Scenario, "capacity_check", mistakes)


def _order(item: Item, mistakes: Mistakes) -> str:
    try:
        return order_of(item.plain).text
    except ValueError as mistake:
        mistakes.add(item, str(mistake), "wrong_form")
        return ""


def _notify(item: Item, mistakes: Mistakes) -> Notify | None:
    notify = decode(item, Notify, mistakes)
    if notify is WRONG:
        return None
    if notify.command and not notify.command[0].strip():
        mistakes.add(item.value["command"], NO_COMMAND, "no_value")
    return cast(Notify, notify)


def _resources(item: Item, mistakes: Mistakes) -> Resources:
    if not is_mapping(item, mistakes):
        return Resources()
    known = {setting.name: setting for setting in RESOURCE_SETTINGS}
    known_keys(item, known, mistakes)
    entries = {key: levels(entry, known[key], mistakes) for key, entry in item.items() if key in known}
    return Resources(
        **{key: cast("tuple[int, ...]", values) for key, values in entries.items() if values is not None}
    )


def _artifacts(item: Item, mistakes: Mistakes) -> Artifacts:
    artifacts = decode(item, Artifacts, mistakes)
    if artifacts is WRONG:
        return Artifacts()
    dataset = artifacts.dataset
    if dataset is not None and not dataset.strip():
        mistakes.add(item.value["dataset"], "the path is empty. Write one, or remove the line.", "no_value")
    return cast(Artifacts, artifacts)


def _binds(item: Item, mistakes: Mistakes) -> tuple[str, ...]:
    binds = decode(item, tuple[str, ...], mistakes)
    if binds is WRONG:
        return ()
    for bind in item.value:
        parts = bind.value.split(":")
        if len(parts) not in (2, 3) or not all(parts) or not parts[1].startswith("/"):
            text = f"'{bind.value}' is not of the form 'outside:/inside' or 'outside:/inside:ro'."
            mistakes.add(bind, text, "wrong_form")
        elif len(parts) == 3 and parts[2] not in ("ro", "rw"):
            mistakes.add(bind, f"'{parts[2]}' is neither ro nor rw.", "not_a_choice")
    return cast("tuple[str, ...]", binds)


def _metrics(item: Item, mistakes: Mistakes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the dotted paths of a user's own metrics, and their names; both without those that cannot be used."""
    from seamark.analysis.metrics.metric import Metric  # few scenarios have any
    from seamark.analysis.metrics.table import METRICS

    entries: dict[str, str] = {}
    taken = {metric.column for metric in METRICS}

    def note_name(path: str, metric: Metric) -> None:
        if not SMALL_NAME.fullmatch(metric.path):
            raise ValueError(f"its path '{metric.path}' is no name: use small letters, digits and '_'")
        if metric.path in taken or metric.path in entries:
            raise ValueError(f"there is a metric '{metric.path}' already. Choose another name")
        entries[metric.path] = path

    _own_objects(item, Metric, mistakes, note_name)
    return tuple(entries.values()), tuple(entries)


def _own_objects(
    item: Item, form: type[Form], mistakes: Mistakes, check: Callable[[str, Form], None] = lambda path, target: None
) -> list[str]:
    """Return the dotted paths of objects of the user's own, without those that cannot be used: `check` raises
    ValueError for one."""
    good = []
    for entry in item.value if decode(item, tuple[str, ...], mistakes) is not WRONG else ():
        try:
            if not is_dotted(entry.value):
                raise ValueError(f"'{entry.value}' is not of the form 'module:name'")
            check(entry.value, resolved(entry.value, form))
            good.append(entry.value)
        except ValueError as error:
            mistakes.add(entry, f"{error}.")
    return good


def lines_of(tree: Item) -> dict[str, str]:
    """Return the place of each part of a document, by its dotted path."""
    entries = {tree.path: tree.where}
    parts = tree.value
    for child in parts.values() if isinstance(parts, dict) else parts if isinstance(parts, list) else ():
        entries |= lines_of(child)
    return entries


PARTS = 3


def prediction_of(item: Item, workloads: Sequence[Workload], mistakes: Mistakes) -> Prediction | None:
    """Return the prediction of a scenario, or None after noting at least one mistake."""
    before = mistakes.count
    prediction = decode(item, Prediction, mistakes)
    if prediction is WRONG:
        return None
    rates = {level for workload in workloads for level in workload.levels.get("rate_rps", ())}
    for part, load in zip(item.value["loads"].value, prediction.loads, strict=True):
        if load.rate_rps not in rates:
            known = ", ".join(f"{rate:g}" for rate in sorted(rates, key=str)) or "none"
            mistakes.add(part.value["rate_rps"], f"{load.rate_rps:g} is no rate_rps of a workload. Rates: {known}.")
        for name, numbers in load.figures.items():
            if len(numbers) != PARTS or not numbers[1] <= numbers[0] <= numbers[2]:
                at = part.value["figures"].value[name]
                mistakes.add(at, "needs three numbers: value, low and high, the value between the others.")
    assert isinstance(prediction, Prediction)
    return prediction if mistakes.count == before else None
