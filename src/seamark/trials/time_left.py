"""Time that the rest of a run takes, from loads of the same scenario that were measured."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from seamark.model.trial import Plan
from seamark.planning.plan_text import duration
from seamark.planning.plan_time import time_of
from seamark.planning.study import Study
from seamark.trials.progress import Progress
from seamark.trials.trial_files import finite_lengths_s


@dataclass(frozen=True, kw_only=True)
class TimeLeft:
    """Least and most seconds until the last trial is measured, and the hours for which devices are then held: GPUs
    of the deployments, and one device for each that has none in a lane."""

    least_s: float
    most_s: float
    device_hours: float

    def text(self) -> str:
        """Return it as a sentence."""
        return (
            f"About {duration(self.least_s)} to {duration(self.most_s)} left, {self.device_hours:.2g} device-hours."
        )


def time_left(study: Study, now: Progress) -> TimeLeft | None:
    """Return the time that is left of a scenario; None where nothing is.

    Lanes run deployments side by side, but each of them alone. A finite load takes as long as another repetition did,
    else as the median load of its service.
    """
    plan = study.plan
    pending = {state.trial for state in now.states if state.state in ("planned", "running")}
    trials = tuple(trial for trial in plan.trials if trial.id in pending)
    if not trials:
        return None
    names = {trial.deployment for trial in trials}
    deployments = tuple(each for each in plan.deployments if each.id in names)
    rest = replace(plan, trials=trials, deployments=deployments)
    times = time_of(
        rest, study.services, measured_s=_lengths_s(plan, finite_lengths_s(plan, study.folder(now.scenario)))
    )
    lanes = min(study.site.parallel, len(deployments))
    spans = times.deployments
    held_s = sum((spans[each.id].least + spans[each.id].most) / 2 * max(1, each.gpus) for each in deployments)
    return TimeLeft(
        least_s=max(times.whole.least / lanes, max(span.least for span in spans.values())),
        most_s=max(times.whole.most / lanes, max(span.most for span in spans.values())),
        device_hours=held_s / 3600,
    )


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
