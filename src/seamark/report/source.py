"""Reader of a scenario's results for a report: records and one tidy frame of its trials, no samples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from seamark.analysis.checks import worst
from seamark.analysis.summary import marked
from seamark.model.origin import MEASURED, HasOrigin, Origin
from seamark.model.results.deployment_record import DeploymentRecord
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.model.results.stages import Stages
from seamark.model.results.summary import Summary, SummaryRow
from seamark.model.results.times import BoundedDistribution, Ranged
from seamark.model.results.trial_meta import TrialMeta
from seamark.model.results.trial_metrics import TrialMetrics, Verdict, VerdictReason
from seamark.model.trial import Plan, Trial
from seamark.report.numbers import levels_text
from seamark.report.ordering import in_order
from seamark.storage.documents import read, read_or_none
from seamark.storage.paths import ScenarioFolder, TrialFolder
from seamark.storage.redaction import redacted, redacted_text

Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TrialRecord(HasOrigin):
    """One trial without its samples. An unknown figure is None."""

    id: str
    treatment: str
    workload: str
    service: str
    deployment: str
    repetition: int
    block: int
    position: int
    status: str
    category: str | None
    reason: str | None
    log_tail: tuple[str, ...]
    started_at: str | None
    finished_at: str | None
    warmup_s: float | None
    load_s: float | None
    """Length of the load with its warm-up."""
    throughput: float | None = None
    unit: str = ""
    latency_ms: BoundedDistribution = field(default_factory=BoundedDistribution)
    errors: Ranged = field(default_factory=Ranged)
    origin: Origin = MEASURED
    verdict: Verdict = "INVALID"
    reasons: tuple[VerdictReason, ...]
    window_s: tuple[float, float] | None = None
    stages: Stages | None = None
    schedule: ScheduleMetrics | None = None
    device: str | None = None
    folder: TrialFolder

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(reason.code for reason in self.reasons)


@dataclass(frozen=True, kw_only=True)
class Results:
    """Results of one scenario."""

    folder: ScenarioFolder
    plan: Plan
    summary: Summary
    treatments: tuple[SummaryRow, ...]
    trials: tuple[TrialRecord, ...]
    by_treatment: Mapping[str, tuple[TrialRecord, ...]]
    deployments: Mapping[str, DeploymentRecord]
    metas: Mapping[str, TrialMeta]
    """The meta.json of one trial of each service."""

    @property
    def scenario(self) -> str:
        return self.plan.scenario

    @property
    def source(self) -> str:
        """The scenario's file as one names it from the study's folder, which holds the folder of results."""
        path = Path(self.plan.source)
        study = self.folder.root.absolute().parent.parent
        return str(path.relative_to(study) if path.is_relative_to(study) else path)

    @property
    def meta(self) -> TrialMeta:
        """Machine and software of the first trial that recorded them."""
        return next(iter(self.metas.values()), TrialMeta())

    @property
    def ok(self) -> tuple[TrialRecord, ...]:
        return tuple(trial for trial in self.trials if trial.ok)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each trial in the order of the run: the fields of TrialRecord, `ok`, its response times `p50` and
        `p99`, which of them are lower ends (`bounds`), and `factor_NAME` for each factor of its treatment."""
        factors = {
            row.treatment: {f"factor_{name}": value for name, value in row.factors.items()} for row in self.treatments
        }
        rows = [
            {
                **vars(trial),
                "ok": trial.ok,
                **{name: trial.latency_ms.statistic(name) for name in ("p50", "p99")},
                "bounds": [name for name in ("p50", "p99") if trial.latency_ms.is_range(name)],
                **factors.get(trial.treatment, {}),
            }
            for trial in self.trials
        ]
        frame = pd.DataFrame(rows, dtype=object).astype({"ok": bool, "throughput": float, "p50": float, "p99": float})
        return frame.sort_values(["started_at", "block", "position"], ignore_index=True)

    def services(self) -> Iterator[tuple[str, tuple[tuple[str, tuple[SummaryRow, ...]], ...]]]:
        """Yield each service with its workloads and their treatments, in the order of `ordering`."""
        groups: dict[str, dict[str, tuple[SummaryRow, ...]]] = {}
        for row in self.treatments:
            own = groups.setdefault(row.service, {})
            own[row.workload] = (*own.get(row.workload, ()), row)
        for service, workloads in groups.items():
            yield service, tuple(workloads.items())

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The name of each treatment and each trial by its id: its workload where there are several, what varies, and
        of a trial the repetition."""
        several = len({row.workload for row in self.treatments}) > 1
        found = {}
        for row in self.treatments:
            levels = levels_text(row.factors)
            name = f"{row.workload}: {levels}" if several and levels else levels or row.workload
            found[row.treatment] = name
            found |= {trial.id: f"{name}, repetition {trial.repetition}" for trial in self.trials_of(row)}
        return found

    def trials_of(self, treatment: SummaryRow) -> tuple[TrialRecord, ...]:
        """Return the trials of one treatment by repetition, failed ones too."""
        return self.by_treatment.get(treatment.treatment, ())


def read_results(root: Path) -> Results:
    """Read the records of a scenario's folder; raises ValueError for a damaged plan or summary.

    A damaged record of one trial or deployment is a finding about that one and not an error.
    """
    folder = ScenarioFolder(root=root)
    plan, summary = read(folder.plan, Plan), read(folder.summary, Summary)
    levels = {name: values for role in plan.factors.values() for name, values in role.items()}
    by_twins = {name: reasons for row in summary.treatments for name, reasons in row.by_twins.items()}
    trials = tuple(
        _trial(planned, folder.trial(planned.id), by_twins.get(planned.id, ())) for planned in plan.measured
    )
    by_treatment: dict[str, tuple[TrialRecord, ...]] = {}
    for trial in sorted(trials, key=lambda trial: trial.repetition):
        by_treatment[trial.treatment] = (*by_treatment.get(trial.treatment, ()), trial)
    deployments = {
        planned.id: record
        for planned in plan.served
        if (record := read_or_none(folder.deployment(planned.id).record, DeploymentRecord)) is not None
    }
    metas: dict[str, TrialMeta] = {}
    for trial in trials:
        if trial.service not in metas and (meta := read_or_none(trial.folder.meta, TrialMeta)) is not None:
            metas[trial.service] = meta
    return Results(
        folder=folder,
        plan=plan,
        summary=summary,
        treatments=tuple(in_order(summary, levels)),
        trials=trials,
        by_treatment=by_treatment,
        deployments=deployments,
        metas=metas,
    )


def _trial(planned: Trial, folder: TrialFolder, by_twins: Sequence[VerdictReason]) -> TrialRecord:
    load = read_or_none(folder.load, LoadRecord) or LoadRecord(status="failed")
    damaged = folder.metrics.is_file()
    record = TrialRecord(
        id=planned.id,
        treatment=planned.treatment,
        workload=planned.workload,
        service=planned.service,
        deployment=planned.deployment,
        repetition=planned.repetition,
        block=planned.block,
        position=planned.position,
        status="failed" if damaged else "not run",
        category="damaged_file" if damaged else "not_run",
        reason="metrics.json cannot be read: remove it and run again"
        if damaged
        else "no metrics.json: this trial was not measured",
        origin=load.origin,
        log_tail=tuple(redacted_text(line) for line in load.log_tail),
        started_at=load.started_at,
        finished_at=load.finished_at,
        warmup_s=load.warmup_s,
        load_s=(load.warmup_s or 0.0) + load.duration_s if load.duration_s else None,
        reasons=tuple(by_twins),
        device=f"{load.device.kind} {load.device.id}" if load.device else None,
        folder=folder,
    )
    metrics = read_or_none(folder.metrics, TrialMetrics)
    if metrics is None:
        return record
    metrics = marked(metrics)
    start_s, end_s = metrics.window.start_s, metrics.window.end_s
    return replace(
        record,
        status=metrics.status,
        category=metrics.category,
        reason=redacted(metrics.reason),
        origin=metrics.origin,
        warmup_s=start_s if metrics.warmup_auto else load.warmup_s,
        throughput=metrics.throughput.value,
        unit=metrics.throughput.unit,
        latency_ms=metrics.latency_ms,
        errors=metrics.errors,
        stages=metrics.stages,
        schedule=metrics.schedule,
        verdict=worst([metrics.verdict, *(reason.verdict for reason in by_twins)]),
        reasons=(*metrics.reasons, *by_twins),
        window_s=None if start_s is None or end_s is None else (start_s, end_s),
    )
