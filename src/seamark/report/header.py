"""The first things a reader looks for: whether it is complete and can be trusted, what was run, and where."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from seamark.model.design import factors_of_starts, why_no_p
from seamark.model.plurals import counted
from seamark.report.content import Facts, Text
from seamark.report.numbers import ABSENT, duration, size
from seamark.report.servers import about_servers
from seamark.report.source import Document, Results

MOST_PLACES = 8


def headline(results: Results) -> Text:
    """Return the one sentence that says whether the scenario is complete and can be trusted."""
    planned, ok = len(results.trials), len(results.ok)
    counts = {word: sum(1 for t in results.ok if t.verdict == word) for word in ("VALID", "SUSPECT", "INVALID")}
    text = f"{ok} of {counted(planned, 'trial')} ok"
    if ok:
        text += f": {counts['VALID']} valid, {counts['SUSPECT']} suspect, {counts['INVALID']} invalid"
    if ok < planned:
        return Text(text=f"{text}. {planned - ok} without a result: see Failed trials.", kind="warning")
    doubtful = counts["SUSPECT"] + counts["INVALID"]
    return Text(text=f"{text}.{' See Verdicts.' if doubtful else ''}", kind="note" if doubtful else "good")


def about(results: Results) -> Facts:
    """Return what was run, when, and on what machine."""
    started = sorted(t.started_at for t in results.trials if t.started_at)
    finished = sorted(t.finished_at for t in results.trials if t.finished_at)
    pairs: list[tuple[str, str]] = [
        ("Scenario", f"`{results.source}`"),
        ("Services", ", ".join(dict.fromkeys(t.service for t in results.trials)) or ABSENT),
        ("Design", _design(results)),
        ("Measured", _between(started[0], finished[-1]) if started and finished else ABSENT),
        *about_servers(results.summary),
        *({**dict(machine(results.meta)), **_places(results)}.items()),
    ]
    if names := factors_of_starts(results.plan.get("factors") or {}):
        pairs.append(("Comparisons", f"Of {', '.join(names)}: {why_no_p(names)}."))
    if results.plan.get("notes"):
        pairs.append(("Notes", str(results.plan["notes"])))
    return Facts(pairs=tuple(pairs))


def _design(results: Results) -> str:
    """Return how many trials there are and in which order they ran: blocks lie within one start of a server."""
    treatments = len(dict.fromkeys(trial.treatment for trial in results.trials))
    starts = len(dict.fromkeys(trial.deployment for trial in results.trials))
    within = f", within each of {starts} starts that follow one another" if starts > 1 else ""
    several = treatments > starts
    order = f"in randomised blocks{within}" if several else _starts(starts)
    return f"{counted(treatments, 'treatment')} × {_repetitions(results)} {order}, seed {results.plan.get('seed')}"


def _starts(number: int) -> str:
    return "in one start" if number == 1 else f"in {number} starts, one after the other"


def _repetitions(results: Results) -> str:
    planned = results.plan.get("repetitions")
    return f"{ABSENT} repetitions" if planned is None else counted(int(planned), "repetition")


def _places(results: Results) -> dict[str, str]:
    """Return nodes and jobs of all deployments, where they were several: one trial's meta.json knows its own."""
    found = {}
    for name, key in (("Host", "node"), ("Slurm job", "slurm_job_id")):
        seen = sorted({str(record[key]) for record in results.deployments.values() if record.get(key)}, key=_number)
        if len(seen) > 1:
            found[name] = ", ".join(seen[:MOST_PLACES]) + (", ..." if len(seen) > MOST_PLACES else "")
    return found


def _number(text: str) -> tuple[int, str]:
    return (int(text) if text.isdigit() else 0, text)


def _between(started: str, finished: str) -> str:
    try:
        took_s = (datetime.fromisoformat(finished) - datetime.fromisoformat(started)).total_seconds()
        first, last = (datetime.fromisoformat(at).replace(microsecond=0) for at in (started, finished))
    except ValueError:
        return f"{started} to {finished}"
    return f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S %Z} ({duration(took_s)})"


def machine(meta: Document) -> list[tuple[str, str]]:
    """Return what meta.json says of machine and software, whatever of it there is."""
    flat = dict(flattened(meta))

    def first(*names: str) -> Any:
        return next((flat[key] for name in names for key in flat if key.split(".")[-1] == name and flat[key]), None)

    memory = first("ram_bytes", "memory_bytes", "ram_total_bytes", "mem_total_bytes")
    processors = first("cpus", "cpu_count", "logical_cpus", "cores", "cpus_logical")
    model = first("cpu_model", "cpu_name", "processor")
    pairs = [
        ("Host", first("hostname", "host", "node")),
        ("CPU", f"{model or ''}{f' ({processors} logical CPUs)' if processors else ''}".strip() or None),
        ("RAM", size(float(memory)) if isinstance(memory, int | float) else None),
        ("GPUs", first("gpus", "gpu_names")),
        ("Kernel", first("kernel", "kernel_release", "release")),
        ("Operating system", first("os", "distribution", "platform")),
        ("Python", first("python", "python_version")),
        ("Seamark", first("seamark", "seamark_version")),
        ("Git commit", _commit(first("git_commit", "commit"), first("git_dirty", "dirty"))),
        ("Slurm job", first("slurm_job_id", "job_id")),
        ("Partition", first("partition")),
        ("Container digest", first("container_digest", "image_digest")),
    ]
    return [(name, str(value)) for name, value in pairs if value not in (None, "", [], {})]


def _commit(commit: Any, dirty: Any) -> str | None:
    return f"{commit}{' with uncommitted changes' if dirty is True else ''}" if commit else None


def flattened(document: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return a nested document as pairs of a dotted name and a value."""
    pairs: list[tuple[str, Any]] = []
    for name, value in document.items():
        if isinstance(value, Mapping):
            pairs += flattened(value, f"{prefix}{name}.")
        else:
            pairs.append((f"{prefix}{name}", value))
    return pairs
