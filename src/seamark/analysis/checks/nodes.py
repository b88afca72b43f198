"""Whether trials that are compared ran on machines that are alike. What differs is named, with who has what."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from seamark.analysis.checks.findings import Reason

Facts = Mapping[str, Any]
Seen = dict[str, dict[str, set[str]]]
"""What differs -> its value -> the nodes that have it."""

WORDS: Mapping[str, tuple[str, ...]] = {
    "CPU model": ("cpu_model",),
    "microcode": ("cpu", "microcode"),
    "cores": ("cpus_physical",),
    "hardware threads (SMT)": ("cpu", "smt"),
    "governor": ("governor",),
    "frequency driver": ("cpu", "driver"),
    "energy preference": ("cpu", "preference"),
    "least CPU clock (Hz)": ("cpu", "least_hz"),
    "greatest CPU clock (Hz)": ("cpu", "most_hz"),
    "turbo": ("cpu", "turbo"),
    "kernel options": ("cpu", "kernel_options"),
    "kernel": ("kernel",),
    "transparent huge pages": ("transparent_hugepages",),
    "NUMA balancing": ("memory", "numa_balancing"),
    "clock source": ("clock", "source"),
    "GPU driver": ("gpu", "driver"),
    "CUDA": ("gpu", "cuda"),
}
GPU_WORDS: Mapping[str, str] = {
    "GPU": "name",
    "GPU memory (bytes)": "memory_bytes",
    "GPU power cap (W)": "power_cap_w",
    "greatest GPU clock (Hz)": "most_sm_hz",
    "set GPU clock (Hz)": "set_sm_hz",
    "ECC": "ecc",
    "MIG": "mig",
    "persistence mode": "persistence",
}
PORT_WORDS: Mapping[str, str] = {
    "InfiniBand firmware": "firmware",
    "InfiniBand rate (bit/s)": "rate_bit_per_s",
    "InfiniBand state": "state",
}
MOST_NODES = 4


def machines_of(meta: Facts) -> Iterator[tuple[str, Facts]]:
    """Yield name and facts of each node that a meta.json tells of; one of an older form has the load's own only."""
    nodes = meta.get("nodes") or {str(meta.get("node")): {"machine": meta.get("machine")}}
    for name, node in nodes.items() if isinstance(nodes, Mapping) else ():
        machine = node.get("machine") if isinstance(node, Mapping) else None
        if isinstance(machine, Mapping):
            yield name, machine


def add_machine(seen: Seen, node: str, machine: Facts) -> None:
    """Note what one machine says; what it does not know is no difference."""
    for what, path in WORDS.items():
        value: Any = machine
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        _note(seen, what, node, value)
    gib = machine.get("memory_bytes")
    _note(seen, "memory (GiB)", node, round(gib / 2**30) if isinstance(gib, (int, float)) else None)
    for words, found in (
        (GPU_WORDS, (machine.get("gpu") or {}).get("devices")),
        (PORT_WORDS, (machine.get("network") or {}).get("infiniband")),
    ):
        for what, name in words.items():
            values = {_said(each[name]) for each in found or () if each.get(name) is not None}
            _note(seen, what, node, " and ".join(sorted(values)) or None)
    for role, mount in (machine.get("mounts") or {}).items():
        _note(seen, f"file system of {role}", node, mount.get("type"))


def nodes_differ(seen: Seen) -> Reason | None:
    """A difference between treatments that stems from their nodes is one between machines."""
    differing = [f"{what}: {_spread(values)}" for what, values in seen.items() if len(values) > 1]
    if not differing:
        return None
    return Reason(
        code="nodes_differ",
        severity="suspect",
        text=f"trials that are compared ran on nodes that differ in {'; '.join(differing)}",
        remedy="Ask Slurm for nodes of one kind (a partition, a constraint or a node list), set them alike, "
        "and measure all trials of the comparison again.",
    )


def _note(seen: Seen, what: str, node: str, value: Any) -> None:
    if value is not None and value != "":
        seen.setdefault(what, {}).setdefault(_said(value), set()).add(node)


def _said(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _spread(values: Mapping[str, Iterable[str]]) -> str:
    return ", ".join(f"{value} ({_names(nodes)})" for value, nodes in values.items())


def _names(nodes: Iterable[str]) -> str:
    ordered = sorted(nodes)
    more = len(ordered) - MOST_NODES
    return ", ".join(ordered[:MOST_NODES]) + (f" and {more} more" if more > 0 else "")
