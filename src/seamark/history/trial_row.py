"""One trial as the index has it: where and when it was measured, of what, and each figure with unit and direction."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from seamark.analysis.metrics.metric import Better
from seamark.analysis.metrics.table import METRICS
from seamark.analysis.trial_view import marked
from seamark.history.runs import Run
from seamark.model.objectives import quality_direction
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.trial_meta import TrialMeta
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.server_identity import ServerRecord
from seamark.model.service import Quality, Value
from seamark.model.trial import Plan, levels_of
from seamark.storage.documents import read, read_or_none
from seamark.storage.paths import TrialFolder

QUALITY, OWN = "quality.", "own."
"""Beginnings of the names of figures of quality, and of metrics of the user's own."""
UNKNOWN = "an unknown machine"


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
    component: str = ""
    service: str = ""
    service_version: str | None = None
    repetition: int = 1
    status: str = "damaged"
    verdict: str = "INVALID"
    reasons: str = ""
    started_at: datetime
    commit: str | None
    study_commit: str | None = None
    dirty: bool | None = None
    seamark: str | None = None
    metrics_version: int = 0
    site: str | None = None
    machine: str = UNKNOWN
    server: str | None = None


@dataclass(frozen=True, kw_only=True)
class ValueRow:
    """One figure of one trial, by its path in metrics.json; `quality.NAME` and `own.NAME` are those of the reply's
    quality and of the user. A `lower_bound` is the lower end of a range, as requests had no answer; `most` is its
    upper end, None where nothing limits it."""

    folder: str
    metric: str
    unit: str
    better: Better
    value: float
    lower_bound: bool = False
    most: float | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """Workload and factors of a treatment, as the plan of a run has them, the treatment of each trial, and the
    qualities that its recipes declare."""

    workload: Mapping[str, str] = field(default_factory=dict)
    levels: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    treatments: Mapping[str, str] = field(default_factory=dict)
    qualities: Mapping[str, Quality] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> "PlannedRun":
        """Read plan.json of a run; without one, a trial is described by its own settings."""
        plan = read_or_none(run.folder.plan, Plan)
        if plan is None:
            return cls()
        return cls(
            workload={trial.treatment: trial.group for trial in plan.measured},
            levels=levels_of(plan),
            treatments={trial.id: trial.treatment for trial in plan.measured},
            qualities=plan.qualities,
        )


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


def row_of(run: Run, folder: TrialFolder, planned: PlannedRun) -> tuple[TrialRow, tuple[ValueRow, ...], str | None]:
    """Read a trial's row and figures. Of damaged metrics return a row without figures, as the trial was measured, and
    what is wrong; a damaged or missing load.json or meta.json leaves the fields unknown that come from it."""
    load, trial = read_or_none(folder.load, LoadRecord), folder.root.name
    try:
        metrics = marked(read(folder.metrics, TrialMetrics))
    except (OSError, ValueError) as damage:
        treatment = planned.treatments.get(trial) or trial.rsplit("--r", 1)[0]
        row = _row(run, folder, planned, trial, treatment, load.started_at if load is not None else None)
        return row, (), " ".join(str(damage).removeprefix(f"{folder.metrics}: ").split())
    load, meta = load or LoadRecord(status=metrics.status), read_or_none(folder.meta, TrialMeta) or TrialMeta()
    server = meta.server_identity or load.server_identity
    treatment = metrics.treatment or metrics.trial.rsplit("--r", 1)[0]
    row = _row(run, folder, planned, metrics.trial, treatment, load.started_at or metrics.timestamp)
    given = row.commit
    row = replace(
        row,
        workload=planned.workload.get(treatment, metrics.service),
        levels=_text_of(planned.levels.get(treatment, metrics.changed)),
        component=metrics.component,
        service=metrics.service,
        service_version=meta.service_version,
        repetition=metrics.repetition,
        status=metrics.status,
        verdict=metrics.verdict,
        reasons=" ".join(reason.code for reason in metrics.reasons),
        commit=given or meta.scenario_commit or meta.git_commit,
        study_commit=meta.git_commit,
        dirty=None if given or meta.scenario_commit else meta.software.git_dirty,
        seamark=meta.software.seamark,
        metrics_version=metrics.metrics_version,
        site=server.site if server else None,
        machine=machine_of(meta, load),
        server=server.digest if server else None,
    )
    return row, tuple(_values(str(folder.root), metrics, planned.qualities)) if metrics.ok else (), None


def _row(
    run: Run, folder: TrialFolder, planned: PlannedRun, trial: str, treatment: str, started_at: str | None
) -> TrialRow:
    """Return what is known of a trial without its metrics."""
    return TrialRow(
        folder=str(folder.root),
        run_folder=str(run.folder.root),
        scenario=run.scenario,
        run=run.name,
        kept=run.kept,
        trial=trial,
        treatment=treatment,
        workload=planned.workload.get(treatment, ""),
        levels=_text_of(planned.levels.get(treatment, {})),
        started_at=_utc(started_at, folder),
        commit=run.note.commit if run.note else None,
    )


def _text_of(levels: Mapping[str, object]) -> str:
    return json.dumps(dict(levels), sort_keys=True, default=str)


def machine_of(meta: TrialMeta, load: LoadRecord) -> str:
    """Return the machine whose runs are one series: where the server was, else where the load was sent from."""
    return _place(meta.server_identity or load.server_identity) or meta.node or load.node or UNKNOWN


def _place(server: ServerRecord | None) -> str | None:
    """Return where a server was: its machine, with the partition of a cluster; of one that was there, its address."""
    if server is None or server.machine is None:
        return None
    if server.runtime == "external" and server.address:
        return f"{server.address} from {server.machine}"
    return f"{server.machine}, partition {server.partition}" if server.partition else server.machine


def _utc(moment: str | None, folder: TrialFolder) -> datetime:
    """Return a moment in UTC without its zone, as the index has it; where none is known, when metrics.json was
    written."""
    at = datetime.fromisoformat(moment) if moment else datetime.fromtimestamp(folder.metrics.stat().st_mtime, UTC)
    return at.astimezone(UTC).replace(tzinfo=None)


def _values(folder: str, metrics: TrialMetrics, qualities: Mapping[str, Quality]) -> Iterator[ValueRow]:
    for metric in METRICS:
        value, found = metrics.figure(metric.path), metrics.range_of(metric.path)
        if value is not None and found is not None:
            unit = metrics.throughput.unit.replace("_per_", "/") if metric.path == "throughput.value" else metric.unit
            yield ValueRow(
                folder=folder,
                metric=metric.path,
                unit=unit,
                better=metric.better,
                value=value if found.is_narrow else found.low,
                lower_bound=not found.is_narrow,
                most=found.high,
            )
    for name, figure in metrics.quality.items():
        if figure is not None:
            known = qualities.get(name)
            ops = (slo.op for slo in metrics.slos if slo.metric == name)
            better: Better = known.better if known is not None else quality_direction(name, ops)
            yield ValueRow(folder=folder, metric=f"{QUALITY}{name}", unit="", better=better, value=float(figure))
    for name, gauge in metrics.own.items():
        if gauge.value is not None:
            better = gauge.better if gauge.better in ("higher", "lower") else "neither"  # type: ignore[assignment]
            yield ValueRow(
                folder=folder, metric=f"{OWN}{name}", unit=gauge.unit, better=better, value=float(gauge.value)
            )
