"""Sections that make a run repeatable: configuration, software, commands, deployments, nodes."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from seamark.config.forms.table import is_structured, text_of
from seamark.model.plurals import counted
from seamark.model.results.summary import SummaryRow
from seamark.model.results.trial_meta import Clock, Gpus, Machine
from seamark.model.service import Value
from seamark.report.numbers import ABSENT, duration, level, size
from seamark.report.page.content import Block, Code, Facts, Section, Table, Text, column, named
from seamark.report.source import Results, slug
from seamark.report.tables.summary import origin_columns
from seamark.storage.redaction import redacted, redacted_text

MOST_ROWS = 200
UNSET = "not a setting here, or not known of a treatment without a result"


def configuration_section(results: Results) -> Section:
    """Return the scenario's file, and the effective settings of each treatment as differences."""
    block: Block = Text(text="No copy of the scenario's file was kept; the settings below are what was run.")
    if results.folder.scenario.is_file():
        text = redacted_text(results.folder.scenario.read_text(encoding="utf-8", errors="replace"))
        block = Code(text=text, language="yaml", caption=f"{results.source} as it was planned")
    sections = [
        Section(
            id=f"settings-{slug(service)}-{slug(workload.name)}",
            title=service if workload.name == service else f"{service}: {workload.name}",
            blocks=_settings(workload.treatments, results.names),
        )
        for service, workloads in results.services.items()
        for workload in workloads
    ]
    return Section(id="configuration", title="Configuration", blocks=(block,), sections=tuple(sections))


def _settings(treatments: Sequence[SummaryRow], names_of: Mapping[str, str]) -> tuple[Block, ...]:
    """Return the settings that all treatments share, and a table of those that differ."""
    configs = [redacted(row.config) for row in treatments]
    changed = {name for row in treatments for name in row.changed}
    names = list(dict.fromkeys(name for config in configs for name in config))
    values = {name: [config[name] for config in configs if name in config] for name in names}  # one failed lacks some
    varying = [name for name in names if len(set(map(repr, values[name]))) > 1]
    shared = {name: values[name][0] for name in names if name not in varying}
    left = [name for name in shared if name not in changed and shared[name] is not None]
    pairs = (
        ("Set by the scenario", _listed([name for name in shared if name in changed], shared)),
        ("Left at defaults", _listed(left, shared)),
    )
    blocks = [Facts(pairs=pairs, long=True)] if shared else []
    shown = configs[:MOST_ROWS]
    columns = (
        column("treatment", named([row.treatment for row in treatments[:MOST_ROWS]], names_of)),
        *origin_columns(treatments[:MOST_ROWS]),
        *(column(n, [level(c[n], n) if n in c else None for c in shown], why=UNSET) for n in varying),
    )
    left_out = len(configs) - len(shown)
    notes = (f"In plan.json: {counted(left_out, 'more treatment')}.",) if left_out else ()
    return (*blocks, Table(columns=columns, footnotes=notes))


def _listed(names: Sequence[str], config: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_whole(config[name], name)}" for name in names) or "nothing"


def _whole(value: Value, name: str) -> str:
    """Return a setting's value; a structure in full."""
    return f"[{text_of(name, str(value))}]" if is_structured(name) and value is not None else level(value, name)


def reproduce_section(results: Results) -> Section:
    """Return the commands that repeat the scenario, one trial, and this page."""
    commit = results.meta.software.git_commit or results.meta.git_commit
    source = results.source
    lines = [
        *(["# the code as it was", f"git checkout {shlex.quote(commit)}", ""] if commit else []),
        "# everything; what is already measured is not measured again",
        f"bench submit -c {shlex.quote(source)}",
        "",
    ]
    if results.trials:
        trial = results.trials[0]
        target = shlex.quote(f"{results.folder.root.parent.name}/{results.scenario}/{trial.id}/metrics.json")
        config = shlex.quote(f"scenario={source}")
        lines += ["# one trial", f"snakemake {target} --config {config}", ""]
    lines += ["# this page, from the results as they are", f"bench report -c {shlex.quote(source)}"]
    blocks: list[Block] = [Code(text="\n".join(lines), language="sh")]
    if results.metas:
        blocks.append(_software(results))
    return Section(id="reproduce", title="How to reproduce", blocks=tuple(blocks))


def _software(results: Results) -> Table:
    """Return version, runtime, lock with its digest, and licence of each service."""
    services = dict(sorted(results.metas.items()))
    every = list(services.values())
    facts = {
        "version": [meta.service_version for meta in every],
        "runtime": [meta.runtime for meta in every],
        "lock": [meta.software.lock for meta in every],
        "SHA-256 of the lock": [meta.software.lock_sha256 for meta in every],
        "container digest": [meta.container_digest for meta in every],
        "licence": [meta.licence for meta in every],
    }
    known = {head: [str(value or ABSENT) for value in values] for head, values in facts.items() if any(values)}
    return Table(columns=(column("service", services), *(column(*fact, "code") for fact in known.items())))


def deployments_table(results: Results) -> Table:
    """Return start, uptime, end, trials, node and batch job of each deployment."""
    records = dict(list(results.deployments.items())[:MOST_ROWS])
    every = list(records.values())
    columns = (
        column("deployment", records, kind="code"),
        column("started", [(record.started_at or ABSENT).replace("T", " ")[:19] for record in every], kind="time"),
        column("uptime", [duration(record.uptime_s) for record in every]),
        column("end", [(record.ended and record.ended.why) or ABSENT for record in every]),
        column("trials", [f"{t.ok} of {t.n}" if (t := r.trials) else ABSENT for r in every], unit="ok of n"),
        column("node", [record.node or ABSENT for record in every], kind="code"),
        column("Slurm job", [record.slurm_job_id or ABSENT for record in every], kind="code"),
    )
    return Table(columns=columns)


MOST_NODES = 100
UNKNOWN = "this node does not say"


def nodes_section(results: Results) -> Section | None:
    """Return hardware and load of each node, from its last trial with a result; None without any."""
    seen = [
        (name, node.machine, state and max(state.load_average or [0.0]), state and state.others.processes)
        for view in results.ok
        if (meta := view.meta) is not None
        for name, node in meta.all_nodes().items()
        if node.machine is not None
        for state in (node.before, node.after)
    ]
    if not seen:
        return None
    frame = pd.DataFrame(seen, columns=["node", "machine", "load", "others"]).astype({"load": float, "others": float})
    by_node = frame.groupby("node", sort=False)
    nodes = by_node.agg({"machine": "last", "load": "max", "others": "max"}).assign(trials=by_node.size() // 2)
    shown = nodes.head(MOST_NODES)
    facts = zip(*map(_facts, shown["machine"]), strict=True)
    heads = ("CPU", "clock", "memory", "kernel", "GPUs", "InfiniBand", "time")
    loads = [None if pd.isna(load) else f"{load:.2f}" for load in shown["load"]]
    others = [None if pd.isna(count) else f"{count:.0f}" for count in shown["others"]]
    columns = (
        column("node", shown.index, "code"),
        column("trials", map(str, shown["trials"]), "number"),
        *(column(head, texts, why=UNKNOWN) for head, texts in zip(heads, facts, strict=True)),
        column("load", loads, "number", why=UNKNOWN),
        column("others", others, "number", why=UNKNOWN),
    )
    more = len(nodes) - len(shown)
    explained = Text(
        text="What each node says of itself; everything else is in `meta.json` of a trial. `load` is the greatest "
        "load average, `others` the most processes of other users, before a trial or after it.",
    )
    notes = (f"In the trials' meta.json: {counted(more, 'more node')}.",) if more > 0 else ()
    table = Table(columns=columns, footnotes=notes)
    return Section(id="nodes", title="Nodes", blocks=(explained, table))


def _facts(machine: Machine) -> tuple[str | None, ...]:
    cpu = machine.cpu
    cores = machine.cpus_physical or machine.cpus_logical
    threads = f", SMT {cpu.smt}" if cpu.smt in ("on", "off") else ""
    ports = (f"{port.adapter} {port.rate} {port.state}" for port in machine.network.infiniband)
    return (
        f"{machine.cpu_model}, {cores} cores{threads}" if machine.cpu_model else None,
        _clock(machine),
        size(float(machine.memory_bytes)) if machine.memory_bytes else None,
        machine.kernel,
        _gpus(machine.gpu),
        ", ".join(ports) or None,
        _time(machine.clock),
    )


def _clock(machine: Machine) -> str | None:
    most, turbo = machine.cpu.most_hz, machine.cpu.turbo
    words = [
        machine.governor,
        f"up to {most / 1e9:g} GHz" if isinstance(most, int | float) else most,
        None if turbo is None else f"turbo {'on' if turbo else 'off'}",
    ]
    return ", ".join(str(word) for word in words if word) or None


def _gpus(gpus: Gpus) -> str | None:
    names = Counter(
        f"{device.name}{f' at {device.power_cap_w:g} W' if device.power_cap_w else ''}" for device in gpus.devices
    )
    counts = ", ".join(f"{count} × {name}" for name, count in names.items())
    return f"{counts}; driver {gpus.driver}, CUDA {gpus.cuda}" if names else None


def _time(clock: Clock) -> str | None:
    if clock.chrony and clock.chrony.offset_s is not None:
        return f"{clock.source}, chrony, {clock.chrony.offset_s * 1e6:+.3g} µs"
    if clock.kernel:
        return f"{clock.source}, {'kept' if clock.kernel.synchronised else 'not kept by NTP'}"
    return clock.source
