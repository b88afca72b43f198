"""What is needed to trust or repeat a run: its configuration, its software, and the commands."""

import shlex
from collections.abc import Sequence

from seamark.config.mix import MIX, mix_text
from seamark.model.plurals import counted
from seamark.model.service import Value
from seamark.report.content import Block, Cell, Code, Column, Facts, Section, Table, Text, absent
from seamark.report.header import flattened
from seamark.report.numbers import ABSENT, duration, level
from seamark.report.overview import slug
from seamark.report.source import Document, Results
from seamark.storage.redaction import redacted, redacted_text

MOST_ROWS = 200
UNSET = "not a setting here, or not known of a treatment without a result"


def configuration_section(results: Results) -> Section:
    """Return the scenario as written, and every treatment's effective settings as differences."""
    blocks: list[Block] = []
    if results.folder.scenario.is_file():
        text = redacted_text(results.folder.scenario.read_text(encoding="utf-8", errors="replace"))
        blocks.append(Code(text=text, language="yaml", caption=f"{results.source} as it was planned"))
    else:
        blocks.append(Text(text="No copy of the scenario's file was kept; the settings below are what was run."))
    sections = [
        Section(
            id=f"settings-{slug(service)}-{slug(name)}",
            title=service if name == service else f"{service}: {name}",
            blocks=_settings(own),
        )
        for service, workloads in results.services()
        for name, own in workloads
    ]
    return Section(id="configuration", title="Configuration", blocks=tuple(blocks), sections=tuple(sections))


def _settings(treatments: Sequence[Document]) -> tuple[Block, ...]:
    """Return what all treatments share, and a table of what differs between them."""
    configs = [redacted({**(t.get("config") or {})}) for t in treatments]
    changed = {name for t in treatments for name in (t.get("changed") or {})}
    names = list(dict.fromkeys(name for config in configs for name in config))
    values = {name: [config[name] for config in configs if name in config] for name in names}  # one failed lacks some
    varying = [name for name in names if len(set(map(repr, values[name]))) > 1]
    shared = {name: values[name][0] for name in names if name not in varying}
    blocks: list[Block] = []
    if shared:
        blocks.append(
            Facts(
                pairs=(
                    ("Set by the scenario", _listed([n for n in shared if n in changed], shared)),
                    (
                        "Left at defaults",
                        _listed([n for n in shared if n not in changed and shared[n] is not None], shared),
                    ),
                ),
                long=True,
            )
        )
    columns = (Column(name="treatment"), *(Column(name=name) for name in varying))
    rows = tuple(
        (
            Cell(text=str(treatment["treatment"]), kind="code"),
            *(Cell(text=level(config[n], n)) if n in config else absent(UNSET) for n in varying),
        )
        for treatment, config in list(zip(treatments, configs, strict=True))[:MOST_ROWS]
    )
    left_out = len(treatments) - len(rows)
    notes = (f"In plan.json: {counted(left_out, 'more treatment')}.",) if left_out else ()
    return (*blocks, Table(columns=columns, rows=rows, footnotes=notes))


def _listed(names: Sequence[str], config: Document) -> str:
    return ", ".join(f"{name} = {_whole(config[name], name)}" for name in names) or "nothing"


def _whole(value: Value, name: str) -> str:
    """Return a setting's value; of a mix, all that its classes are."""
    return f"[{mix_text(str(value))}]" if name == MIX and value is not None else level(value, name)


def reproduce_section(results: Results) -> Section:
    """Return the exact commands for the whole scenario, for one trial, and for this page alone."""
    commit = next(
        (str(v) for k, v in flattened(results.meta) if k.split(".")[-1] in ("git_commit", "commit") and v), None
    )
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
    """Return what each service was, down to the digest of the lock that its environment was made from."""
    heads = {
        "version": "service_version",
        "runtime": "runtime",
        "lock": "lock",
        "SHA-256 of the lock": "lock_sha256",
        "container digest": "container_digest",
        "licence": "licence",
    }
    found = []
    for service, meta in sorted(results.metas.items()):
        flat = {key.split(".")[-1]: value for key, value in flattened(meta)}
        found.append((service, {head: flat.get(key) for head, key in heads.items()}))
    known = [head for head in heads if any(values[head] for _, values in found)]
    rows = tuple(
        (Cell(text=service), *(Cell(text=str(values[h] or ABSENT), kind="code") for h in known))
        for service, values in found
    )
    return Table(columns=(Column(name="service"), *(Column(name=head) for head in known)), rows=rows)


def deployments_table(results: Results) -> Table:
    """Return how each deployment ended, how long it lived, how many trials it served, where, and in which job."""
    columns = (
        Column(name="deployment"),
        Column(name="started"),
        Column(name="uptime"),
        Column(name="end"),
        Column(name="trials", unit="ok of n"),
        Column(name="node"),
        Column(name="Slurm job"),
    )
    rows = []
    for name, record in list(results.deployments.items())[:MOST_ROWS]:
        ended, trials = record.get("ended") or {}, record.get("trials") or {}
        rows.append(
            (
                Cell(text=name, kind="code"),
                Cell(text=str(record.get("started_at") or ABSENT).replace("T", " ")[:19], kind="time"),
                Cell(text=duration(record.get("uptime_s"))),
                Cell(text=str(ended.get("why") or ABSENT)),
                Cell(text=f"{trials.get('ok', ABSENT)} of {trials.get('n', ABSENT)}" if trials else ABSENT),
                Cell(text=str(record.get("node") or ABSENT), kind="code"),
                Cell(text=str(record.get("slurm_job_id") or ABSENT), kind="code"),
            )
        )
    return Table(columns=columns, rows=tuple(rows))
