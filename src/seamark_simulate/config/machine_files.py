"""Reader of machine files: hosts, kinds of GPU, rules of placement, failures. YAML or JSON, by their content."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seamark.config.decode import WRONG, decode
from seamark.config.json_source import load_document
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import UserError, did_you_mean
from seamark.model.annotations import limited
from seamark_simulate.simulation.machine import (
    SWITCH_OVERHEAD_S,
    Change,
    ColdLoad,
    Failures,
    GpuKind,
    Host,
    Layout,
    Machine,
    Preemption,
    Transfers,
    Windows,
)
from seamark_simulate.simulation.system import MOST_GPUS, System


@dataclass(frozen=True, kw_only=True)
class _HostKeys:
    name: str
    kind: str
    gpus: int = limited(above=0)
    count: int = limited(1, above=0)
    nvlink_gb_per_s: float | None = limited(None, above=0)
    network_gb_per_s: float | None = limited(None, above=0)
    disk_gb_per_s: float | None = limited(None, above=0)


@dataclass(frozen=True, kw_only=True)
class _MachineKeys:
    gpu_kinds: Mapping[str, GpuKind]
    hosts: tuple[_HostKeys, ...]
    windows: Windows = "consecutive"
    span_hosts: bool = False
    several_models: bool = False
    switch_overhead_s: float = limited(SWITCH_OVERHEAD_S, minimum=0)
    preemption: Preemption = "never"
    transfers: Transfers = "occupy"
    failures: Failures | None = None
    changes: tuple[Change, ...] = ()


def read_machine(path: Path, cold_load: ColdLoad = "charged") -> Machine:
    """Return the machine of a file. Raises UserError with every mistake."""
    mistakes = Mistakes()
    layout = None
    if (tree := load_document(path, mistakes)) is not None:
        layout = _layout(tree, mistakes)
    mistakes.raise_any()
    assert layout is not None
    return Machine(
        gpus=layout.gpus,
        cold_load=cold_load,
        pcie_gb_per_s=layout.hosts[0].kind.pcie_gb_per_s,
        switch_overhead_s=layout.switch_overhead_s,
        layout=layout,
    )


def require_speeds(place: str, machine: Machine, system: System) -> None:
    """Raise UserError for each model in `speeds` that the system does not have."""
    kinds = {host.kind.name: host.kind for host in machine.layout.hosts} if machine.layout is not None else {}
    lines = [
        f"{place}: gpu_kinds.{kind.name}.speeds.{model}: no model has the id '{model}'."
        + (did_you_mean(model, system.models) or f" Known: {', '.join(system.models)}.")
        for kind in kinds.values()
        for model in kind.speeds
        if model not in system.models
    ]
    if lines:
        raise UserError(*lines)


def _layout(tree: Item, mistakes: Mistakes) -> Layout | None:
    for _, kind in tree.at(("gpu_kinds",)).items():
        if (
            isinstance(kind.value, dict)
            and kind.value.get("speeds") is not None
            and kind.value["speeds"].value is None
        ):
            del kind.value["speeds"]
    keys: Any = decode(tree, _MachineKeys, mistakes)
    if keys is WRONG:
        return None
    _check_hosts(tree, keys, mistakes)
    if mistakes.count:
        return None
    kinds = {name: replace(kind, name=name) for name, kind in keys.gpu_kinds.items()}
    rules = {name: value for name, value in vars(keys).items() if name not in ("gpu_kinds", "hosts")}
    layout = Layout(hosts=tuple(host for entry in keys.hosts for host in _hosts(entry, kinds)), **rules)
    _check_changes(tree, layout, mistakes)
    return layout


def _hosts(keys: _HostKeys, kinds: Mapping[str, GpuKind]) -> Iterator[Host]:
    for number in range(1, keys.count + 1):
        yield Host(
            **{key: value for key, value in vars(keys).items() if key not in ("name", "kind", "count")},
            name=keys.name if keys.count == 1 else f"{keys.name}-{number}",
            kind=kinds[keys.kind],
        )


def _check_hosts(tree: Item, keys: _MachineKeys, mistakes: Mistakes) -> None:
    hosts = tree.value["hosts"]
    if not keys.hosts:
        mistakes.add(hosts, "the list is empty. Write one host or more.")
    names = Counter[str]()
    several = len(keys.hosts) > 1 or any(host.count > 1 for host in keys.hosts)
    for host, item in zip(keys.hosts, hosts.value, strict=True):
        names[host.name] += 1
        if names[host.name] == 2:
            mistakes.add(item.value["name"], f"the host '{host.name}' is there already. Give each a name of its own.")
        kind = keys.gpu_kinds.get(host.kind)
        if kind is None:
            guess = did_you_mean(host.kind, keys.gpu_kinds) or f" Known: {', '.join(keys.gpu_kinds)}."
            mistakes.add(item.value["kind"], f"no kind of GPU has the name '{host.kind}'.{guess}")
        elif keys.several_models and kind.memory_gb is None:
            text = "'several_models' needs the memory of each kind. Give 'memory_gb'."
            mistakes.add(tree.value["gpu_kinds"].value[host.kind], text)
        if several and host.network_gb_per_s is None:
            mistakes.add(item, "the key 'network_gb_per_s' is missing: data go to other hosts over the network.")
    count = sum(host.gpus * host.count for host in keys.hosts)
    if count > MOST_GPUS:
        mistakes.add(hosts, f"{count} GPUs: {MOST_GPUS} at most.")


def _check_changes(tree: Item, layout: Layout, mistakes: Mistakes) -> None:
    """Note GPUs that the machine does not have, and those that leave or come where they are gone or there."""
    gone: set[int] = set()
    items = tree.value["changes"].value if layout.changes else []
    for change, item in sorted(zip(layout.changes, items, strict=True), key=lambda pair: pair[0].at_s):
        if not change.remove and not change.add:
            mistakes.add(item, "neither 'remove' nor 'add' has a GPU. Name the ids of GPUs, or remove this.")
        for key, gpus in (("remove", change.remove), ("add", change.add)):
            for gpu, at in zip(gpus, item.value[key].value if gpus else (), strict=True):
                if gpu >= layout.gpus:
                    mistakes.add(at, f"there is no GPU {gpu}. The machine has 0 to {layout.gpus - 1}.")
                elif (gpu in gone) == (key == "remove"):
                    state = "is gone already" if key == "remove" else "is there already"
                    mistakes.add(at, f"GPU {gpu} {state} at {change.at_s:g} s. Remove it here.")
                gone = gone | {gpu} if key == "remove" else gone - {gpu}
