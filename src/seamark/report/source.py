"""A scenario's results for a report: records, views of its trials and one tidy frame of them, no samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from seamark.analysis.trial_view import TrialView
from seamark.model.results.deployment_record import DeploymentRecord
from seamark.model.results.summary import Summary, SummaryRow
from seamark.model.results.times import BoundedDistribution
from seamark.model.results.trial_meta import TrialMeta
from seamark.model.trial import Plan
from seamark.report.numbers import levels_text
from seamark.report.ordering import headings_of, in_order
from seamark.storage.documents import read, read_or_none
from seamark.storage.paths import ScenarioFolder

PLACE = ("treatment", "service", "deployment", "block", "position")


@dataclass(frozen=True, kw_only=True)
class Results:
    """Results of one scenario. A damaged record of one trial or deployment is a finding about that one."""

    folder: ScenarioFolder
    plan: Plan
    summary: Summary

    @cached_property
    def treatments(self) -> tuple[SummaryRow, ...]:
        """The treatments in the order of a report."""
        levels = {name: values for role in self.plan.factors.values() for name, values in role.items()}
        return tuple(in_order(self.summary, levels))

    @cached_property
    def trials(self) -> tuple[TrialView, ...]:
        """All planned trials, each with the reasons of the summary."""
        by_twins = {name: reasons for row in self.summary.treatments for name, reasons in row.by_twins.items()}
        views = (TrialView.of(trial, self.folder) for trial in self.plan.measured)
        return tuple(view.with_reasons(by_twins.get(view.id, ())) for view in views)

    @cached_property
    def by_treatment(self) -> Mapping[str, tuple[TrialView, ...]]:
        """The trials of each treatment by repetition, failed ones too."""
        groups: dict[str, tuple[TrialView, ...]] = {}
        for view in sorted(self.trials, key=lambda view: view.trial.repetition):
            groups[view.treatment] = (*groups.get(view.treatment, ()), view)
        return groups

    @cached_property
    def deployments(self) -> Mapping[str, DeploymentRecord]:
        """The records of deployments that have one."""
        records = ((deployment.id, self.folder.deployment(deployment.id).record) for deployment in self.plan.served)
        read_ones = ((name, read_or_none(path, DeploymentRecord)) for name, path in records)
        return {name: record for name, record in read_ones if record is not None}

    @cached_property
    def metas(self) -> Mapping[str, TrialMeta]:
        """The meta.json of one trial of each service."""
        metas: dict[str, TrialMeta] = {}
        for view in self.trials:
            if view.trial.service not in metas and (meta := view.meta) is not None:
                metas[view.trial.service] = meta
        return metas

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
    def ok(self) -> tuple[TrialView, ...]:
        return tuple(view for view in self.trials if view.ok)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each trial in the order of the run: where and when it ran, `ok`, `verdict`, its throughput and
        response times `p50` and `p99`, which of these are lower ends (`bounds`), and `factor_NAME` for each factor of
        its treatment."""
        factors = {
            row.treatment: {f"factor_{name}": value for name, value in row.factors.items()} for row in self.treatments
        }
        rows = []
        for view in self.trials:
            metrics = view.metrics
            times = metrics.latency_ms if metrics else BoundedDistribution()
            rows.append(
                {
                    **{name: getattr(view.trial, name) for name in PLACE},
                    "started_at": view.started_at,
                    "finished_at": view.load and view.load.finished_at,
                    "ok": view.ok,
                    "verdict": view.verdict,
                    "throughput": metrics and metrics.throughput.value,
                    "unit": metrics.throughput.unit if metrics else "",
                    **{name: times.statistic(name) for name in ("p50", "p99")},
                    "bounds": [name for name in ("p50", "p99") if times.is_range(name)],
                    **factors.get(view.treatment, {}),
                }
            )
        frame = pd.DataFrame(rows, dtype=object).astype({"ok": bool, "throughput": float, "p50": float, "p99": float})
        return frame.sort_values(["started_at", "block", "position"], ignore_index=True)

    @cached_property
    def services(self) -> Mapping[str, Sequence["ShownWorkload"]]:
        """The workloads of each service, or of the services that are compared in one, in the order of `ordering`."""
        groups: dict[str, dict[str, list[SummaryRow]]] = {}
        headings = headings_of(self.treatments)
        for row in self.treatments:
            groups.setdefault(headings[row.treatment], {}).setdefault(row.workload, []).append(row)
        return {
            service: [
                ShownWorkload(results=self, service=service, name=name, treatments=tuple(rows))
                for name, rows in workloads.items()
            ]
            for service, workloads in groups.items()
        }

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The name of each treatment and each trial by its id: its workload where there are several, what varies, and
        of a trial the repetition."""
        several = len({row.workload for row in self.treatments}) > 1
        names = {}
        for row in self.treatments:
            levels = levels_text(row.factors)
            name = f"{row.workload}: {levels}" if several and levels else levels or row.workload
            names[row.treatment] = name
            names |= {view.id: f"{name}, repetition {view.trial.repetition}" for view in self.trials_of(row)}
        return names

    def trials_of(self, treatment: SummaryRow) -> tuple[TrialView, ...]:
        """Return the trials of one treatment by repetition, failed ones too."""
        return self.by_treatment.get(treatment.treatment, ())


@dataclass(frozen=True, kw_only=True)
class ShownWorkload:
    """The treatments of one workload of a service."""

    results: Results
    service: str
    name: str
    treatments: tuple[SummaryRow, ...]

    @property
    def stem(self) -> str:
        """The begin of the names of its figures, and its anchor."""
        return slug(f"{self.service} {self.name}" if self.service not in self.name else self.name)


def slug(text: str) -> str:
    """Return an anchor or file stem: letters, digits and single hyphens."""
    kept = "".join(c if c.isalnum() and c.isascii() else "-" for c in text.lower())
    return "-".join(part for part in kept.split("-") if part) or "x"


def read_results(root: Path) -> Results:
    """Read plan and summary of a scenario's folder; raises ValueError for a damaged one."""
    folder = ScenarioFolder(root=root)
    return Results(folder=folder, plan=read(folder.plan, Plan), summary=read(folder.summary, Summary))
