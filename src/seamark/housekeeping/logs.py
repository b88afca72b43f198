"""Collects the logs of a scenario or a persistent server: each line as JSON, with time, component and trial."""

import json
import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from seamark.config.secrets import secrets_of
from seamark.errors import UserError, did_you_mean
from seamark.model.results.load_record import LoadRecord
from seamark.planning.identity import trial_uuid
from seamark.storage.documents import read_or_none, replacing
from seamark.storage.redaction import redacted, without

ENDINGS = (".log", ".jsonl", ".out", ".err")
STAMP = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)\s?(Z|UTC|GMT|[+-]\d\d:?\d\d)?")
LONG_STAMP = re.compile(r"\[?([A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4})\]?")
STAMP_WITHIN = 80
"""A timestamp is searched in this many first characters of a line."""
TIME_KEYS = ("at", "time", "timestamp", "ts")


@dataclass(frozen=True, kw_only=True)
class LogFile:
    """One log file and its component. `trial` and `deployment` are ids, None where it belongs to none. `loads` has
    the trials that were measured on the deployment, with begin and end of their load."""

    path: Path
    name: str
    component: str
    scenario: str
    deployment: str | None = None
    trial: str | None = None
    loads: Sequence[tuple[str, float, float]] = ()

    def trial_at(self, at: datetime) -> str | None:
        """Return the trial that a line of this log belongs to."""
        under_load = (trial for trial, begin, end in self.loads if begin <= at.timestamp() <= end)
        return self.trial or next(under_load, None)


START = re.compile(r"(\.r\d+)?(\.replica\d+)?(@.*)?$")
"""What a start of a server adds to its name: block, replica, party."""


def sources(folder: Path, scenario: str) -> list[LogFile]:
    """Return every log file below a results folder, by name."""
    paths = (path for path in sorted(folder.rglob("*")) if path.suffix in ENDINGS and path.is_file())
    spans = {trial.parent.name: load.span_s for trial in folder.glob("*--*/load.json") if (load := _load(trial))}
    loads = [(trial, *span) for trial, span in sorted(spans.items()) if span]

    def on(deployment: str) -> Sequence[tuple[str, float, float]]:
        name = START.sub("", deployment)
        return [load for load in loads if START.sub("", load[0].split("--")[0]) == name]

    found = [_source(path, folder, scenario) for path in paths]
    return [replace(log, loads=on(log.deployment)) if log.deployment and not log.trial else log for log in found]


def _load(path: Path) -> LoadRecord | None:
    return read_or_none(path, LoadRecord)


def batch_sources(logs: Path, scenario: str) -> list[LogFile]:
    """Return the output files of a scenario's batch jobs in the study's `logs/`, matched by name."""
    paths = (path for path in sorted(logs.rglob("*")) if path.suffix in ENDINGS and path.is_file())
    return [
        LogFile(path=path, name=f"logs/{path.relative_to(logs)}", component="job", scenario=scenario)
        for path in paths
        if re.search(rf"(?<![A-Za-z0-9]){re.escape(scenario)}(?![A-Za-z0-9])", str(path.relative_to(logs)))
    ]


def _source(path: Path, folder: Path, scenario: str) -> LogFile:
    """Return a log file with its component, derived from its path; docs/architecture.md lists the paths."""
    parts = path.relative_to(folder).parts
    deployment = trial = None
    if parts[0] == "deployments":
        deployment, parts = parts[1], parts[2:]
    elif "--" in parts[0]:
        trial, parts = parts[0], parts[1:]
    component = "supervisor" if parts[0] == ".keeper" else "load" if trial else "server"
    if parts[0] == "logs":
        component = parts[1] if len(parts) > 2 else "run" if parts[-1].startswith("submit-") else "job"
        whole = path.name.removesuffix(path.suffix)
        trial = whole if "--" in whole else None
        deployment = whole if len(parts) > 2 and trial is None else None
    if trial is not None:
        deployment = trial.split("--")[0]
    return LogFile(
        path=path,
        name=str(path.relative_to(folder)),
        component=component,
        scenario=scenario,
        deployment=deployment,
        trial=trial,
    )


def check_components(components: Sequence[str], logs: Sequence[LogFile]) -> None:
    """Raise UserError for a component without a log."""
    known = sorted({source.component for source in logs})
    for name in components:
        if name not in known:
            raise UserError(
                f"--component {name}: no log of that component. Known: {', '.join(known) or 'none'}."
                f"{did_you_mean(name, known)}"
            )


def collect(
    logs: Sequence[LogFile],
    target: Path,
    name: str,
    *,
    components: Sequence[str],
    since: datetime | None,
    until: datetime | None,
) -> dict[str, int]:
    """Write a .tar.gz with one file of JSON lines per component (none: of all); return their numbers of lines.

    Each line has the time `at` (`since` and `until` are UTC). One without a timestamp has that of the last line above
    with one; lines above the first timestamp have the first; a file without any has its modification time. `at_from`
    says which: `line`, `file`.
    """
    counts: dict[str, int] = Counter()
    secrets = secrets_of()  # a server that still runs may have written them
    with tempfile.TemporaryDirectory() as place:
        files: dict[str, TextIO] = {}
        try:
            for source in logs:
                if components and source.component not in components:
                    continue
                for line in _lines(source, since, until, secrets):
                    if source.component not in files:
                        files[source.component] = (Path(place) / source.component).open("w", encoding="utf-8")
                    files[source.component].write(json.dumps(line, ensure_ascii=False) + "\n")
                    counts[source.component] += 1
        finally:
            for file in files.values():
                file.close()
        with replacing(target) as temporary, tarfile.open(temporary, "w:gz") as archive:
            for component in sorted(files):
                archive.add(Path(place) / component, f"{name}/{component}.jsonl")
    return counts


def _lines(
    source: LogFile, since: datetime | None, until: datetime | None, secrets: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    facts = {
        "component": source.component,
        "scenario": source.scenario,
        "deployment": source.deployment,
        "file": source.name,
    }
    with suppress(FileNotFoundError):
        last = _first_time(source.path)
        with source.path.open(encoding="utf-8", errors="replace") as lines:
            for text in lines:
                if not text.strip():
                    continue
                content = _content(text)
                at = _time_of(content)
                last = at or last
                if (since is None or last >= since) and (until is None or last <= until):
                    trial = source.trial_at(last)
                    kept = {key: value for key, value in content.items() if key != "at"}
                    yield {
                        "at": last.isoformat(timespec="milliseconds"),
                        "at_from": "line" if at else "file",
                        **facts,
                        "trial": trial,
                        "trial_id": trial_uuid(source.scenario, trial) if trial else None,
                        **redacted(without(kept, secrets)),
                    }


def _content(text: str) -> dict[str, Any]:
    """Return a line that is a JSON object as that object, any other as text."""
    if text.startswith("{"):
        with suppress(ValueError):
            document = json.loads(text)
            if isinstance(document, dict):
                return document
    return {"text": text.rstrip("\n")}


def _time_of(content: Mapping[str, Any]) -> datetime | None:
    if "text" in content:
        return time_in(str(content["text"]))
    return next((at for key in TIME_KEYS if (at := time_in(str(content.get(key))))), None)


def time_in(text: str) -> datetime | None:
    """Return the timestamp at the start of a log line, None without one; one without a zone is local time."""
    beginning = text[:STAMP_WITHIN]
    with suppress(ValueError):
        if match := STAMP.search(beginning):
            zone = {"Z": "+00:00", "UTC": "+00:00", "GMT": "+00:00", None: ""}.get(match[2], match[2])
            return datetime.fromisoformat(match[1].replace(",", ".") + zone).astimezone(UTC)
        if match := LONG_STAMP.search(beginning):
            return datetime.strptime(match[1], "%a %b %d %H:%M:%S %Y").astimezone(UTC)
    return None


def _first_time(path: Path) -> datetime:
    """Return the first timestamp in a file, its modification time without one."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        found = next((at for text in lines if (at := _time_of(_content(text)))), None)
    return found or datetime.fromtimestamp(path.stat().st_mtime, UTC)
