"""What is derived from the trials that are there: telemetry, metrics, summary, report. Measures nothing.

The same files as Snakemake's rules make, by the same functions, and only those that are missing or out of date.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from seamark.analysis.metrics import is_older
from seamark.analysis.prometheus_text import TrialFigures, figures_of, write_trial
from seamark.analysis.summary import write_metrics, write_summary
from seamark.analysis.summary.treatments import levels_of
from seamark.model.service import Value
from seamark.model.trial import Trial
from seamark.planning.study import Study
from seamark.report.pages import write_report
from seamark.storage.paths import ScenarioFolder, TrialFolder, read_json
from seamark.telemetry.cut import cut_telemetry
from seamark.trials.calibration import ceiling_of
from seamark.trials.search.probe import found_trial


def derive(study: Study) -> list[str]:
    """Bring everything derived from the study's scenario up to date; return the ids of its trials that were tried.

    Without one nothing is written. A damaged load.json is a failed trial in the summary, not an error.
    """
    name = study.scenario.name
    folder = study.folder(name)
    tried = [trial for trial in study.plan.trials if folder.trial(trial.id).load.exists()]
    if tried:
        study.refresh_plan(name)
        for trial in tried:
            derive_trial(study, folder, trial)
        if study.metrics:
            write_expositions(study, study.metrics)
        write_summary(study.plan, folder)
        write_report(folder.root, study.reports)
    return [trial.id for trial in tried]


def has_older_figures(study: Study) -> bool:
    """Return whether an older version of the metrics made the scenario's summary, or figures of a trial that can be
    made again."""
    folder = study.folder(study.scenario.name)
    made = [folder.trial(trial.id) for trial in study.plan.trials]
    return (folder.summary.exists() and _is_older(folder.summary)) or any(map(can_be_newer, made))


def can_be_newer(folder: TrialFolder) -> bool:
    """Return whether an older version made a trial's metrics, and its samples are there to make them again."""
    return folder.metrics.exists() and folder.samples.exists() and _is_older(folder.metrics)


def _is_older(path: Path) -> bool:
    try:
        return is_older(read_json(path))
    except ValueError:
        return False


def derive_trial(study: Study, folder: ScenarioFolder, trial: Trial) -> None:
    """Make a trial's telemetry and metrics where they are missing, older than what they are made from, or made by an
    older version of the metrics."""
    own = folder.trial(trial.id)
    try:
        load = read_json(own.load)
    except ValueError:
        load = {}
    if not _newer(own.telemetry, own.load):
        cut_telemetry(folder.deployment(trial.deployment).telemetry, own.client_telemetry, load, own)
    if not _newer(own.metrics, own.telemetry) or not _same_objectives(own, trial) or can_be_newer(own):
        write_metrics(
            found_trial(trial, load),
            own,
            study.deployment(study.scenario.name, trial.deployment),
            client_is_server=bool(load.get("in_client")),
            ceiling=ceiling_of(study.results, load),
        )


def measured_trials(study: Study) -> list[TrialFigures]:
    """Return the figures of the study's trials that have metrics, as Prometheus has them."""
    return [figures_of(read_json(folder.metrics), trial, levels) for folder, trial, levels in _measured(study)]


def write_expositions(study: Study, root: Path) -> int:
    """Write the study's trials that have metrics to `root` in Prometheus's text form, their telemetry beside them.

    Returns how many there are.
    """
    found = list(_measured(study))
    for folder, trial, levels in found:
        write_trial(folder, root, trial, levels)
    return len(found)


def _measured(study: Study) -> Iterator[tuple[TrialFolder, Trial, Mapping[str, Value]]]:
    """Give each trial that has metrics with its folder and its levels of the scenario's factors."""
    folder, levels = study.folder(study.scenario.name), levels_of(study.plan)
    for trial in study.plan.trials:
        if (own := folder.trial(trial.id)).metrics.exists():
            yield own, trial, levels[trial.treatment]


def _newer(made: Path, source: Path) -> bool:
    return made.is_file() and made.stat().st_mtime_ns >= source.stat().st_mtime_ns


def _same_objectives(folder: TrialFolder, trial: Trial) -> bool:
    """Whether a trial was judged by the objectives that it has now."""
    try:
        known = read_json(folder.metrics)
        judged = [(each["metric"], each["op"], each["limit"]) for each in known["slos"]]
    except (ValueError, KeyError, TypeError):
        return False
    return known.get("status") != "ok" or judged == [(slo.metric, slo.op, slo.limit) for slo in trial.slos]
