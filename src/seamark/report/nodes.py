"""The nodes that the trials ran on: what each is, and what else went on there."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seamark.analysis.checks.nodes import machines_of
from seamark.model.plurals import counted
from seamark.report.content import Cell, Column, Section, Table, Text, absent
from seamark.report.numbers import size
from seamark.report.source import Document, Results
from seamark.storage.paths import read_json

MOST_NODES = 100
UNKNOWN = "this node does not say"


def nodes_section(results: Results) -> Section | None:
    """Return a row for each node of the trials that have a result, as its last trial saw it; None without any."""
    machines: dict[str, Document] = {}
    trials: dict[str, int] = {}
    load: dict[str, float] = {}
    others: dict[str, int] = {}
    for meta in _metas(results):
        for name, machine in machines_of(meta):
            machines[name] = machine
            trials[name] = trials.get(name, 0) + 1
            for moment in _moments(meta, name):
                load[name] = max(load.get(name, 0.0), *(moment.get("load_average") or [0.0]))
                seen = (moment.get("others") or {}).get("processes")
                others[name] = max(others.get(name, 0), seen) if seen is not None else others.get(name, 0)
    if not machines:
        return None
    heads = ("node", "trials", "CPU", "clock", "memory", "kernel", "GPUs", "InfiniBand", "time", "load", "others")
    rows = [
        (
            Cell(text=name, kind="code"),
            Cell(text=str(trials[name]), kind="number"),
            *(_cell(text) for text in _facts(machine)),
            Cell(text=f"{load[name]:.2f}", kind="number") if name in load else absent(UNKNOWN),
            Cell(text=str(others[name]), kind="number") if name in others else absent(UNKNOWN),
        )
        for name, machine in list(machines.items())[:MOST_NODES]
    ]
    more = len(machines) - len(rows)
    explained = Text(
        text="What each node says of itself; everything else is in `meta.json` of a trial. `load` is the greatest "
        "load average, `others` the most processes of other users, before a trial or after it.",
    )
    table = Table(
        columns=tuple(Column(name=head) for head in heads),
        rows=tuple(rows),
        footnotes=(f"In the trials' meta.json: {counted(more, 'more node')}.",) if more > 0 else (),
    )
    return Section(id="nodes", title="Nodes", blocks=(explained, table))


def _metas(results: Results) -> Iterator[Document]:
    for trial in results.ok:
        with contextlib.suppress(OSError, ValueError):
            yield read_json(trial.folder.meta)


def _moments(meta: Document, name: str) -> list[Mapping[str, Any]]:
    node = (meta.get("nodes") or {}).get(name) or meta
    return [moment for when in ("before", "after") if isinstance(moment := node.get(when), Mapping)]


def _facts(machine: Document) -> tuple[str | None, ...]:
    cpu, memory = machine.get("cpu") or {}, machine.get("memory_bytes")
    cores = machine.get("cpus_physical") or machine.get("cpus_logical")
    threads = f", SMT {cpu['smt']}" if cpu.get("smt") in ("on", "off") else ""
    return (
        f"{machine.get('cpu_model')}, {cores} cores{threads}" if machine.get("cpu_model") else None,
        _clock(machine, cpu),
        size(float(memory)) if memory else None,
        machine.get("kernel"),
        _gpus(machine.get("gpu") or {}),
        _ports((machine.get("network") or {}).get("infiniband") or ()),
        _time(machine.get("clock") or {}),
    )


def _clock(machine: Document, cpu: Document) -> str | None:
    most, turbo = cpu.get("most_hz"), cpu.get("turbo")
    words = [
        machine.get("governor"),
        f"up to {most / 1e9:g} GHz" if isinstance(most, int | float) else most,
        None if turbo is None else f"turbo {'on' if turbo else 'off'}",
    ]
    return ", ".join(str(word) for word in words if word) or None


def _gpus(gpu: Document) -> str | None:
    devices = gpu.get("devices") or ()
    if not devices:
        return None
    names: dict[str, int] = {}
    for device in devices:
        cap = device.get("power_cap_w")
        name = f"{device.get('name')}{f' at {cap:g} W' if cap else ''}"
        names[name] = names.get(name, 0) + 1
    each = ", ".join(f"{count} × {name}" for name, count in names.items())
    return f"{each}; driver {gpu.get('driver')}, CUDA {gpu.get('cuda')}"


def _ports(ports: Sequence[Document]) -> str | None:
    return ", ".join(f"{port.get('adapter')} {port.get('rate')} {port.get('state')}" for port in ports) or None


def _time(clock: Document) -> str | None:
    chrony, kernel = clock.get("chrony"), clock.get("kernel")
    source = clock.get("source")
    if chrony:
        return f"{source}, chrony, {chrony['offset_s'] * 1e6:+.3g} µs"
    if kernel:
        return f"{source}, {'kept' if kernel.get('synchronised') else 'not kept by NTP'}"
    return source


def _cell(text: str | None) -> Cell:
    return absent(UNKNOWN) if text is None else Cell(text=text)
