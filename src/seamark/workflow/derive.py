"""Telemetry, metrics, summary and report derived from measured trials.

The same files as those of Snakemake's rules, by the same functions; only missing and outdated ones.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from seamark.analysis.prometheus_text import TrialFigures, figures_of, write_trial
from seamark.analysis.summary import write_summary
from seamark.analysis.trial_view import is_older
from seamark.model.results.summary import Summary
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.service import Value
from seamark.model.trial import Trial, levels_of
from seamark.planning.study import Study
from seamark.report.page.render import write_report
from seamark.storage.documents import read
from seamark.storage.paths import TrialFolder
from seamark.trials.derive_trial import can_be_newer, derive_trial, is_derived
from seamark.trials.judge import judge_trial, needs_judging


def derive(study: Study, say: Callable[[str], object] = lambda _: None) -> list[str]:
    """Update everything derived from the study's scenario; return the ids of its trials that were tried.

    Without any, nothing is written. A damaged load.json is a failed trial in the summary, not an error. `say` gets
    the progress of the report.
    """
    name = study.scenario.name
    folder = study.folder(name)
    tried = [trial for trial in study.plan.trials if folder.trial(trial.id).load.exists()]
    if tried:
        study.refresh_plan(name)
        for trial in tried:
            if needs_judging(study, trial, folder.trial(trial.id)):
                judge_trial(study, trial, folder.trial(trial.id))
            if not is_derived(folder.trial(trial.id), trial):
                derive_trial(folder, trial, study.deployment(name, trial.deployment))
        if study.metrics:
            write_expositions(study, study.metrics)
        write_summary(study.plan, folder)
        write_report(folder.root, study.reports, say)
    return [trial.id for trial in tried]


def has_older_figures(study: Study) -> bool:
    """Return whether the scenario's summary, or figures of a trial that can be derived again, are of an older version
    of the metrics."""
    folder = study.folder(study.scenario.name)
    made = [folder.trial(trial.id) for trial in study.plan.measured]
    return (folder.summary.exists() and is_older(folder.summary, Summary)) or any(map(can_be_newer, made))


def measured_trials(study: Study) -> list[TrialFigures]:
    """Return the metrics of the study's measured trials in Prometheus's form."""
    return [
        figures_of(read(folder.metrics, TrialMetrics), trial, levels) for folder, trial, levels in _measured(study)
    ]


def write_expositions(study: Study, root: Path) -> int:
    """Write the study's trials with metrics to `root` in Prometheus's text form, with their telemetry; return their
    number."""
    found = list(_measured(study))
    for folder, trial, levels in found:
        write_trial(folder, root, trial, levels)
    return len(found)


def _measured(study: Study) -> Iterator[tuple[TrialFolder, Trial, Mapping[str, Value]]]:
    """Yield each measured trial with its folder and its levels of the scenario's factors."""
    folder, levels = study.folder(study.scenario.name), levels_of(study.plan)
    for trial in study.plan.measured:
        if (own := folder.trial(trial.id)).metrics.exists():
            yield own, trial, levels[trial.treatment]
