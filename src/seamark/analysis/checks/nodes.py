"""Checks whether compared trials ran on equal machines, and lists the differences with their nodes."""

from collections.abc import Collection, Mapping
from operator import attrgetter

from seamark.model.results.trial_meta import Machine
from seamark.model.results.trial_metrics import VerdictReason

Seen = dict[str, dict[str, set[str]]]
"""Differing fact -> its value -> the nodes with it."""

FACTS: Mapping[str, str] = {
    "CPU model": "cpu_model",
    "microcode": "cpu.microcode",
    "cores": "cpus_physical",
    "hardware threads (SMT)": "cpu.smt",
    "governor": "governor",
    "frequency driver": "cpu.driver",
    "energy preference": "cpu.preference",
    "least CPU clock (Hz)": "cpu.least_hz",
    "greatest CPU clock (Hz)": "cpu.most_hz",
    "turbo": "cpu.turbo",
    "kernel options": "cpu.kernel_options",
    "kernel": "kernel",
    "transparent huge pages": "transparent_hugepages",
    "NUMA balancing": "memory.numa_balancing",
    "clock source": "clock.source",
    "GPU driver": "gpu.driver",
    "CUDA": "gpu.cuda",
}
OF_GPU: Mapping[str, str] = {
    "GPU": "name",
    "GPU memory (bytes)": "memory_bytes",
    "GPU power cap (W)": "power_cap_w",
    "greatest GPU clock (Hz)": "most_sm_hz",
    "set GPU clock (Hz)": "set_sm_hz",
    "ECC": "ecc",
    "MIG": "mig",
    "persistence mode": "persistence",
}
OF_PORT: Mapping[str, str] = {
    "InfiniBand firmware": "firmware",
    "InfiniBand rate (bit/s)": "rate_bit_per_s",
    "InfiniBand state": "state",
}
MOST_NODES = 4


def add_machine(seen: Seen, node: str, machine: Machine) -> None:
    """Record the facts of one machine; an unknown one is not a difference."""
    for what, path in FACTS.items():
        _note(seen, what, node, attrgetter(path)(machine))
    gib = machine.memory_bytes
    _note(seen, "memory (GiB)", node, None if gib is None else round(gib / 2**30))
    for names, parts in ((OF_GPU, machine.gpu.devices), (OF_PORT, machine.network.infiniband)):
        for what, name in names.items():
            values = {_shown(value) for part in parts if (value := getattr(part, name)) is not None}
            _note(seen, what, node, " and ".join(sorted(values)) or None)
    for role, mount in machine.mounts.items():
        _note(seen, f"file system of {role}", node, mount.type)


def nodes_differ(seen: Seen) -> VerdictReason | None:
    """A difference between treatments measured on different nodes may be one between machines."""
    differing = [f"{what}: {_spread(values)}" for what, values in seen.items() if len(values) > 1]
    if not differing:
        return None
    return VerdictReason(
        code="nodes_differ",
        severity="suspect",
        text=f"trials that are compared ran on nodes that differ in {'; '.join(differing)}",
        remedy="Ask Slurm for nodes of one kind (a partition, a constraint or a node list), set them alike, "
        "and measure all trials of the comparison again.",
    )


def _note(seen: Seen, what: str, node: str, value: object) -> None:
    if value is not None and value != "":
        seen.setdefault(what, {}).setdefault(_shown(value), set()).add(node)


def _shown(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _spread(values: Mapping[str, Collection[str]]) -> str:
    """Return each value with its nodes, of many with the first ones."""
    shown = []
    for value, nodes in values.items():
        more = f" and {len(nodes) - MOST_NODES} more" if len(nodes) > MOST_NODES else ""
        shown.append(f"{value} ({', '.join(sorted(nodes)[:MOST_NODES])}{more})")
    return ", ".join(shown)
