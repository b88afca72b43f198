"""One trial as the index has it: where and when it was measured, of what, and each figure with unit and direction."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from seamark.analysis.metrics import METRICS
from seamark.analysis.metrics.metric import Better
from seamark.analysis.summary.trial_result import marked
from seamark.history.runs import Run
from seamark.model.objectives import quality_direction
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.trial_meta import TrialMeta
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.service import Value
from seamark.model.trial import Plan, levels_of
from seamark.storage.documents import read, read_or_none
from seamark.storage.paths import TrialFolder

QUALITY, OWN = "quality.", "own."
"""Beginnings of the names of figures of quality, and of metrics of the user's own."""


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """One trial of one run. `folder` is its key. `levels` is a JSON object of its factors; `started_at` is in UTC;
    `study_commit` is that of the study's checkout, `commit` the one that `bench keep` was given, else the scenario's
    `metadata.git_commit` at the time of the load, else the study's, which is `dirty` if it had changes."""

    folder: str
    run_folder: str
    scenario: str
    run: str
    kept: bool
    trial: str
    treatment: str
    workload: str
    levels: str
    component: str
    service: str
    service_version: str | None
    repetition: int
    status: str
    verdict: str
    reasons: str
    started_at: datetime
    commit: str | None
    study_commit: str | None
    dirty: bool | None
    seamark: str | None
    metrics_version: int
    site: str | None
    machine: str
    server: str | None


@dataclass(frozen=True, kw_only=True)
class ValueRow:
    """One figure of one trial, by its path in metrics.json; `quality.NAME` and `own.NAME` are those of the reply's
    quality and of the user."""

    folder: str
    metric: str
    unit: str
    better: Better
    value: float


@dataclass(frozen=True, kw_only=True)
class Planned:
    """Workload and factors of a treatment, as the plan of a run has them."""

    workload: Mapping[str, str]
    levels: Mapping[str, Mapping[str, Value]]

    @classmethod
    def of(cls, run: Run) -> "Planned":
        """Read plan.json of a run; without one, a trial is described by its own settings."""
        plan = read_or_none(run.folder.plan, Plan)
        if plan is None:
            return cls(workload={}, levels={})
        return cls(workload={trial.treatment: trial.group for trial in plan.measured}, levels=levels_of(plan))


def stamp(run: Run, folder: TrialFolder) -> str:
    """Return sizes and times of the files that a row is read from; equal ones need not be read again."""
    files = (folder.metrics, folder.load, folder.meta, run.folder.plan, run.folder.run_note)
    return f"{run.name} " + " ".join(map(_stamp, files))


def _stamp(path: Path) -> str:
    try:
        state = path.stat()
    except OSError:
        return "-"
    return f"{state.st_size}:{state.st_mtime_ns}"


def row_of(run: Run, folder: TrialFolder, planned: Planned) -> tuple[TrialRow, tuple[ValueRow, ...]]:
    """Read a trial's row and figures. Raises DamagedFileError for damaged metrics; a damaged or missing load.json or
    meta.json leaves the fields unknown that come from it."""
    metrics = marked(read(folder.metrics, TrialMetrics))
    load = read_or_none(folder.load, LoadRecord) or LoadRecord(status=metrics.status)
    meta = read_or_none(folder.meta, TrialMeta) or TrialMeta()
    server = meta.server_identity or load.server_identity
    treatment = metrics.treatment or metrics.trial.rsplit("--r", 1)[0]
    levels = planned.levels.get(treatment, metrics.changed)
    started = load.started_at or metrics.timestamp
    given = run.note.commit if run.note else None
    row = TrialRow(
        folder=str(folder.root),
        run_folder=str(run.folder.root),
        scenario=run.scenario,
        run=run.name,
        kept=run.kept,
        trial=metrics.trial,
        treatment=treatment,
        workload=planned.workload.get(treatment, metrics.service),
        levels=json.dumps(dict(levels), sort_keys=True, default=str),
        component=metrics.component,
        service=metrics.service,
        service_version=meta.service_version,
        repetition=metrics.repetition,
        status=metrics.status,
        verdict=metrics.verdict,
        reasons=" ".join(reason.code for reason in metrics.reasons),
        started_at=_utc(started),
        commit=given or meta.scenario_commit or meta.git_commit,
        study_commit=meta.git_commit,
        dirty=None if given or meta.scenario_commit else meta.software.git_dirty,
        seamark=meta.software.seamark,
        metrics_version=metrics.metrics_version,
        site=server.site if server else None,
        machine=(server.machine if server else None) or meta.node or load.node or "an unknown machine",
        server=server.digest if server else None,
    )
    return row, tuple(_values(str(folder.root), metrics)) if metrics.ok else ()


def _utc(moment: str | None) -> datetime:
    """Return a moment in UTC without its zone, as the index has it; the first of 1970 where none is known."""
    at = datetime.fromisoformat(moment) if moment else datetime(1970, 1, 1, tzinfo=UTC)
    return at.astimezone(UTC).replace(tzinfo=None)


def _values(folder: str, metrics: TrialMetrics) -> Iterator[ValueRow]:
    for metric in METRICS:
        value = metrics.figure(metric.path)
        if value is not None:
            unit = metrics.throughput.unit.replace("_per_", "/") if metric.path == "throughput.value" else metric.unit
            yield ValueRow(folder=folder, metric=metric.path, unit=unit, better=metric.better, value=value)
    for name, figure in metrics.quality.items():
        if figure is not None:
            better: Better = quality_direction(name, (slo.op for slo in metrics.slos if slo.metric == name))
            yield ValueRow(folder=folder, metric=f"{QUALITY}{name}", unit="", better=better, value=float(figure))
    for name, own in metrics.own.items():
        if own.value is not None:
            better = own.better if own.better in ("higher", "lower") else "neither"  # type: ignore[assignment]
            yield ValueRow(folder=folder, metric=f"{OWN}{name}", unit=own.unit, better=better, value=float(own.value))
