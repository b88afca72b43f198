"""Retention: finds and removes old logs, attempts, persistent servers and, only on request, samples."""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from seamark.housekeeping.logs import ENDINGS
from seamark.model.results.load_record import SamplesRecord
from seamark.model.site import Retention
from seamark.services.persistent.instance import STANDING, instances
from seamark.services.supervisor.deployment import alive
from seamark.storage.documents import amend
from seamark.storage.paths import HISTORY, DeploymentFolder, ScenarioFolder, TrialFolder

DAY_S = 86400.0


@dataclass(frozen=True, kw_only=True)
class Removable:
    """A file or folder to remove; `kind` is logs, attempts, standing (persistent servers) or samples."""

    kind: str
    path: Path
    size_bytes: int
    changed: datetime


def removable(results: Path, keep: Retention, now: datetime, scenarios: Sequence[str] = ()) -> list[Removable]:
    """Return files older than their retention, of some scenarios; without any, of all and of persistent servers. Kept
    runs of a scenario are among its results.

    Files of a running server are never included; samples only of trials with derived metrics.
    """
    folders = [(path.parent.name, path.parent) for path in sorted(results.glob("*/plan.json"))]
    kept = sorted(results.glob(f"{HISTORY}/*/*/plan.json"))
    folders += [(path.parent.parent.name, path.parent) for path in kept]
    removables: list[Removable] = []
    for scenario, folder in folders:
        if scenarios and scenario not in scenarios:
            continue
        removables += _old("logs", _logs(folder), keep.logs_days, now)
        removables += _old("attempts", folder.glob("*--*/attempts"), keep.attempts_days, now)
        removables += _old("samples", _samples(folder), keep.samples_days, now)
    if not scenarios:
        standing = (instance.root for instance in instances(results) if not instance.is_live())
        aside = (path for path in (results / STANDING).glob(".*") if path.is_dir())
        removables += _old("standing", [*standing, *aside], keep.standing_days, now)
    return removables


def remove(removables: Iterable[Removable], now: datetime) -> int:
    """Remove files; return their bytes. A trial without its samples stays measured: samples.json notes it."""
    freed = 0
    for item in removables:
        if item.kind == "samples":
            record = TrialFolder(root=item.path.parent).record
            amend(record, record, SamplesRecord, pruned_at=now.isoformat(timespec="seconds"))
        if item.path.is_dir():
            shutil.rmtree(item.path)
        else:
            item.path.unlink(missing_ok=True)
        freed += item.size_bytes
    return freed


def _old(kind: str, paths: Iterable[Path], days: float | None, now: datetime) -> Iterator[Removable]:
    if days is None:
        return
    for path in paths:
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        times = [file.stat().st_mtime for file in files] or [path.stat().st_mtime]
        changed = datetime.fromtimestamp(max(times), UTC)
        if (now - changed).total_seconds() > days * DAY_S:
            size = sum(file.stat().st_size for file in files)
            yield Removable(kind=kind, path=path, size_bytes=size, changed=changed)


def _logs(folder: Path) -> Iterator[Path]:
    """Yield output of jobs and of ended servers. A trial's log.jsonl is part of its record and stays."""
    yield from (path for path in sorted((folder / "logs").rglob("*")) if path.is_file())
    for deployment in sorted(folder.glob("deployments/*/")):
        if not alive(DeploymentFolder(root=deployment)):
            yield from (path for path in sorted(deployment.rglob("*")) if path.suffix in ENDINGS and path.is_file())


def _samples(folder: Path) -> Iterator[Path]:
    for trial in ScenarioFolder(root=folder).trials_with("samples.json"):
        if trial.metrics.exists() and trial.load.exists():
            raw = (trial.samples, trial.chunks, trial.replies, trial.events, trial.executions)
            yield from (path for path in raw if path.exists())
