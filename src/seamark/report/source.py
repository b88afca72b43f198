"""Reader of a scenario's results for a report: small records only, samples are read by the figures."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from seamark.analysis.checks import verdict_of, worst
from seamark.analysis.metrics import marked, with_present_codes
from seamark.model.results.deployment_record import DeploymentRecord
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.trial_meta import TrialMeta
from seamark.model.trial import Plan, Trial
from seamark.report.ordering import in_order
from seamark.storage.paths import ScenarioFolder, TrialFolder, read, read_json, read_or_none
from seamark.storage.redaction import redacted, redacted_text

Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
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
    throughput: float | None
    unit: str
    latency_ms: Document
    error_rate: float | None
    verdict: str
    reasons: tuple[Document, ...]
    window_s: tuple[float, float] | None
    folder: TrialFolder

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(str(reason.get("code")) for reason in self.reasons)


@dataclass(frozen=True, kw_only=True)
class Results:
    """Results of one scenario."""

    folder: ScenarioFolder
    plan: Plan
    summary: Document
    treatments: tuple[Document, ...]
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
        `p99`, which statistics are lower `bounds`, and `factor_NAME` for each factor of its treatment."""
        factors = {
            str(t["treatment"]): {f"factor_{name}": value for name, value in t["factors"].items()}
            for t in self.treatments
        }
        rows = [
            {
                **vars(trial),
                "ok": trial.ok,
                **{name: trial.latency_ms.get(name) for name in ("p50", "p99")},
                "bounds": trial.latency_ms.get("lower_bounds") or (),
                **factors.get(trial.treatment, {}),
            }
            for trial in self.trials
        ]
        frame = pd.DataFrame(rows, dtype=object).astype({"ok": bool, "throughput": float, "p50": float, "p99": float})
        return frame.sort_values(["started_at", "block", "position"], ignore_index=True)

    def services(self) -> Iterator[tuple[str, tuple[tuple[str, tuple[Document, ...]], ...]]]:
        """Yield each service with its workloads and their treatments, in the order of `ordering`."""
        groups: dict[str, dict[str, tuple[Document, ...]]] = {}
        for treatment in self.treatments:
            own = groups.setdefault(str(treatment["service"]), {})
            name = str(treatment["workload"])
            own[name] = (*own.get(name, ()), treatment)
        for service, workloads in groups.items():
            yield service, tuple(workloads.items())

    def trials_of(self, treatment: Document) -> tuple[TrialRecord, ...]:
        """Return the trials of one treatment by repetition, failed ones too."""
        return self.by_treatment.get(str(treatment["treatment"]), ())


def read_results(root: Path) -> Results:
    """Read the records of a scenario's folder; raises ValueError for a damaged plan or summary.

    A damaged record of one trial or deployment is a finding about that one and not an error.
    """
    folder = ScenarioFolder(root=root)
    plan, summary = read(folder.plan, Plan), dict(read_json(folder.summary))
    summary["treatments"] = [with_present_codes(treatment) for treatment in summary["treatments"]]
    levels = {name: values for role in plan.factors.values() for name, values in role.items()}
    by_twins = {name: why for each in summary["treatments"] for name, why in (each.get("by_twins") or {}).items()}
    trials = tuple(_trial(planned, folder.trial(planned.id), by_twins.get(planned.id, ())) for planned in plan.trials)
    by_treatment: dict[str, tuple[TrialRecord, ...]] = {}
    for trial in sorted(trials, key=lambda trial: trial.repetition):
        by_treatment[trial.treatment] = (*by_treatment.get(trial.treatment, ()), trial)
    deployments = {
        planned.id: record
        for planned in plan.deployments
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


def _optional(path: Path) -> Document | None:
    if not path.is_file():
        return None
    try:
        return read_json(path)
    except ValueError:
        return None


def _marked(path: Path) -> Document | None:
    document = _optional(path)
    return document and marked(dict(document))


def _trial(planned: Trial, folder: TrialFolder, by_twins: Sequence[Document]) -> TrialRecord:
    metrics = _marked(folder.metrics)
    load = read_or_none(folder.load, LoadRecord) or LoadRecord(status="failed")
    if metrics is None:
        damaged = folder.metrics.is_file()
        metrics = {
            "status": "failed" if damaged else "not run",
            "category": "damaged_file" if damaged else "not_run",
            "reason": "metrics.json cannot be read: remove it and run again"
            if damaged
            else "no metrics.json: this trial was not measured",
        }
    throughput = metrics.get("throughput") or {}
    window = metrics.get("window") or {}
    start_s, end_s = window.get("start_s"), window.get("end_s")
    return TrialRecord(
        id=planned.id,
        treatment=planned.treatment,
        workload=planned.workload,
        service=planned.service,
        deployment=planned.deployment,
        repetition=planned.repetition,
        block=planned.block,
        position=planned.position,
        status=str(metrics.get("status")),
        category=metrics.get("category"),
        reason=redacted(metrics.get("reason")),
        log_tail=tuple(redacted_text(line) for line in load.log_tail),
        started_at=load.started_at,
        finished_at=load.finished_at,
        warmup_s=start_s if metrics.get("warmup_auto") else load.warmup_s,
        load_s=(load.warmup_s or 0.0) + load.duration_s if load.duration_s else None,
        throughput=throughput.get("value"),
        unit=str(throughput.get("unit") or ""),
        latency_ms=metrics.get("latency_ms") or {},
        error_rate=(metrics.get("errors") or {}).get("rate"),
        verdict=worst([str(metrics.get("verdict") or "INVALID"), *map(verdict_of, by_twins)]),
        reasons=(*(metrics.get("reasons") or ()), *by_twins),
        window_s=(float(start_s), float(end_s)) if start_s is not None and end_s is not None else None,
        folder=folder,
    )
