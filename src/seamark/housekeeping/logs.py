"""Logs of a scenario or a persistent server, collected: every line as JSON, with time, component and trial."""

import json
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from seamark.errors import UserError, did_you_mean
from seamark.planning.identity import trial_uuid
from seamark.storage.paths import replacing
from seamark.storage.redaction import redacted

ENDINGS = (".log", ".jsonl", ".out", ".err")
STAMP = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)\s?(Z|UTC|GMT|[+-]\d\d:?\d\d)?")
LONG_STAMP = re.compile(r"\[?([A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4})\]?")
STAMP_WITHIN = 80
"""In the first so many letters of a line stands its time, if anywhere."""
TIME_KEYS = ("at", "time", "timestamp", "ts")


@dataclass(frozen=True, kw_only=True)
class Source:
    """One log file: whose it is. `trial` and `deployment` are ids where it belongs to one."""

    path: Path
    name: str
    component: str
    scenario: str
    deployment: str | None = None
    trial: str | None = None


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Which lines are wanted: of these components (none: all), written between two times (UTC)."""

    components: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None

    def times(self, at: datetime) -> bool:
        """Return whether a line of that time is wanted."""
        return (self.since is None or at >= self.since) and (self.until is None or at <= self.until)


@dataclass
class Collected:
    """What was put into an archive: lines by component."""

    path: Path
    lines: dict[str, int] = field(default_factory=dict)


def sources(folder: Path, scenario: str) -> list[Source]:
    """Return every log file below a folder of results, in the order of their names."""
    paths = (path for path in sorted(folder.rglob("*")) if path.suffix in ENDINGS and path.is_file())
    return [_source(path, folder, scenario) for path in paths]


def batch_sources(logs: Path, scenario: str) -> list[Source]:
    """Return the output of batch jobs in the study's `logs/` that belong to a scenario, by their names."""
    paths = (path for path in sorted(logs.rglob("*")) if path.suffix in ENDINGS and path.is_file())
    return [
        Source(path=path, name=f"logs/{path.relative_to(logs)}", component="job", scenario=scenario)
        for path in paths
        if re.search(rf"(?<![A-Za-z0-9]){re.escape(scenario)}(?![A-Za-z0-9])", str(path.relative_to(logs)))
    ]


def _source(path: Path, folder: Path, scenario: str) -> Source:
    """Say whose a file is by where it lies: see docs/architecture.md for the places."""
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
    return Source(
        path=path,
        name=str(path.relative_to(folder)),
        component=component,
        scenario=scenario,
        deployment=deployment,
        trial=trial,
    )


def check_components(wanted: Sequence[str], found: Sequence[Source]) -> None:
    """Raise UserError for a component that no log is of."""
    known = sorted({source.component for source in found})
    for name in wanted:
        if name not in known:
            raise UserError(
                f"--component {name}: no log of that component. There are: {', '.join(known) or 'none'}."
                f"{did_you_mean(name, known)}"
            )


def collect(found: Sequence[Source], chosen: Chosen, target: Path, name: str) -> Collected:
    """Write a .tar.gz with one file of JSON lines a component; return what is in it.

    A line without a time of its own has that of the last one above it; lines above the first time in a file have
    that one, and a file without any was written when it was last changed. Such a line has `at` null.
    """
    done = Collected(path=target)
    with tempfile.TemporaryDirectory() as place:
        files: dict[str, TextIO] = {}
        try:
            for source in found:
                if chosen.components and source.component not in chosen.components:
                    continue
                for line in _lines(source, chosen):
                    if source.component not in files:
                        files[source.component] = (Path(place) / source.component).open("w", encoding="utf-8")
                    files[source.component].write(json.dumps(line, ensure_ascii=False) + "\n")
                    done.lines[source.component] = done.lines.get(source.component, 0) + 1
        finally:
            for file in files.values():
                file.close()
        with replacing(target) as temporary, tarfile.open(temporary, "w:gz") as archive:
            for component in sorted(files):
                archive.add(Path(place) / component, f"{name}/{component}.jsonl")
    return done


def _lines(source: Source, chosen: Chosen) -> Iterator[Mapping[str, Any]]:
    facts = {
        "component": source.component,
        "scenario": source.scenario,
        "deployment": source.deployment,
        "trial": source.trial,
        "trial_id": trial_uuid(source.scenario, source.trial) if source.trial else None,
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
                if chosen.times(last):
                    stamp = at.isoformat(timespec="milliseconds") if at else None
                    kept = {key: value for key, value in content.items() if key != "at"}
                    yield {"at": stamp, **facts, **redacted(kept)}


def _content(text: str) -> dict[str, Any]:
    """Return a line that is a JSON object as it is, any other as its text."""
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
    """Return the time that a line of a log begins with, None without one; a time without a zone is this machine's."""
    beginning = text[:STAMP_WITHIN]
    with suppress(ValueError):
        if match := STAMP.search(beginning):
            zone = {"Z": "+00:00", "UTC": "+00:00", "GMT": "+00:00", None: ""}.get(match[2], match[2])
            return datetime.fromisoformat(match[1].replace(",", ".") + zone).astimezone(UTC)
        if match := LONG_STAMP.search(beginning):
            return datetime.strptime(match[1], "%a %b %d %H:%M:%S %Y").astimezone(UTC)
    return None


def _first_time(path: Path) -> datetime:
    """Return the first time in a file; that of its last change where there is none."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        found = next((at for text in lines if (at := _time_of(_content(text)))), None)
    return found or datetime.fromtimestamp(path.stat().st_mtime, UTC)
