"""Time that the rest of a run takes, from loads of the same scenario that were measured."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from seamark.config.lanes import lanes_at_once
from seamark.model.results.deployment_record import DeploymentRecord
from seamark.model.trial import Plan
from seamark.planning.plan_text import duration
from seamark.planning.plan_time import time_of
from seamark.planning.study import Study
from seamark.storage.documents import read_or_none
from seamark.storage.paths import ScenarioFolder
from seamark.trials.progress import Progress
from seamark.trials.trial_files import finite_lengths_s


@dataclass(frozen=True, kw_only=True)
class TimeLeft:
    """Least, typical and most seconds until the last trial is measured, and the hours for which devices are then
    held: GPUs of the deployments, and one device for each that has none in a lane."""

    least_s: float
    typical_s: float
    most_s: float
    device_hours: float

    def text(self, *, hours: bool = True) -> str:
        """Return it in words, with the hours of devices or without."""
        held = f", {self.device_hours:.2g} device-hours" if hours else ""
        return f"about {duration(self.typical_s)} left ({duration(self.least_s)} to {duration(self.most_s)}){held}"


def time_left(study: Study, now: Progress) -> TimeLeft | None:
    """Return the time that is left of a scenario; None where nothing is.

    Lanes run deployments side by side, but each of them alone. A finite load takes as long as another repetition did,
    else as the median load of its service; a start as long as the median start of its service.
    """
    plan = study.plan
    pending = {state.trial for state in now.states if state.state in ("planned", "running")}
    trials = tuple(trial for trial in plan.trials if trial.id in pending)
    if not trials:
        return None
    names = {trial.deployment for trial in trials}
    deployments = tuple(deployment for deployment in plan.deployments if deployment.id in names)
    rest = replace(plan, trials=trials, deployments=deployments)
    folder = study.folder(now.scenario)
    measured_s = _lengths_s(plan, finite_lengths_s(plan, folder))
    times = time_of(rest, study.services, measured_s=measured_s, started_s=_starts_s(plan, folder))
    lanes = min(lanes_at_once(study.site), len(deployments))
    spans = times.deployments
    held_s = sum(spans[deployment.id].typical * max(1, deployment.gpus) for deployment in deployments)
    return TimeLeft(
        least_s=max(times.whole.least / lanes, max(span.least for span in spans.values())),
        typical_s=max(times.whole.typical / lanes, max(span.typical for span in spans.values())),
        most_s=max(times.whole.most / lanes, max(span.most for span in spans.values())),
        device_hours=held_s / 3600,
    )


def _starts_s(plan: Plan, folder: ScenarioFolder) -> Mapping[str, float]:
    """Return the median time to service of each service of which a deployment has ended."""
    services: dict[str, list[float]] = {}
    for deployment in plan.deployments:
        record = read_or_none(folder.deployment(deployment.id).record, DeploymentRecord)
        if record is not None and (total_s := record.time_to_service_s.get("total_s")) is not None:
            services.setdefault(deployment.service, []).append(total_s)
    return {name: median(starts_s) for name, starts_s in services.items()}


def _lengths_s(plan: Plan, measured_s: Mapping[str, float]) -> Mapping[str, float]:
    """Return lengths of finite loads for every treatment of a service of which one was measured."""
    services: dict[str, list[float]] = {}
    for trial in plan.trials:
        if trial.treatment in measured_s:
            services.setdefault(trial.service, []).append(measured_s[trial.treatment])
    typical_s = {name: median(lengths_s) for name, lengths_s in services.items()}
    return {
        trial.treatment: measured_s.get(trial.treatment, typical_s[trial.service])
        for trial in plan.trials
        if trial.service in typical_s
    }
