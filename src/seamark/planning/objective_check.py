"""Checks before a run that objectives are on metrics that their service can have. Starts no server."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from seamark.errors import Mistake, UserError
from seamark.load.driver import Target, hooks_of, make_of
from seamark.model.objectives import REQUEST_OBJECTIVES
from seamark.model.scenario import Scenario, filled
from seamark.model.service import Service
from seamark.model.trial import Plan, Trial

OF_STREAMS = ("ttft_", "ttfo_", "tpot_")


def require_objectives(scenario: Scenario, plan: Plan, services: Mapping[str, Service]) -> None:
    """Raise UserError with a mistake for each objective that no trial of its workload can ever have."""
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in plan.measured:
        if trial.slos:
            groups.setdefault((trial.group, trial.service), []).append(trial)
    mistakes = [
        Mistake.at(_place(scenario, group, index), f"{service} never has {slo.metric}: {why}.", "conflict")
        for (group, service), trials in groups.items()
        for index, slo in enumerate(trials[0].slos)
        if (why := _why_never(slo.metric, services[service], trials)) is not None
    ]
    if mistakes:
        raise UserError(*dict.fromkeys(mistakes))


def _why_never(metric: str, service: Service, trials: Sequence[Trial]) -> str | None:
    """Return why no trial can have a metric, None where one can, or where only a run can tell."""
    if metric in service.qualities:
        return None
    if metric.startswith(OF_STREAMS) and not service.virtual_clock and not _may_stream(service, trials):
        return "its replies are not streamed token by token. Use latency_* or service_time_*"
    if metric.startswith("recall_at_"):
        depths = sorted({depth for trial in trials if isinstance(depth := trial.settings.get("k"), int)})
        if not _may_have_recall(service):
            return "its replies are not compared with known neighbours. Remove the objective"
        if depths and metric not in (known := [f"recall_at_{depth}" for depth in depths]):
            return f"its searches are for 'k' neighbours. Write {' or '.join(known)}"
    if metric.startswith("schedule_lag_") and all(trial.settings.get("pattern") == "closed" for trial in trials):
        return "a closed loop has no schedule. Remove the objective, or choose another pattern"
    if metric == "goodput_ratio" and not any(slo.metric in REQUEST_OBJECTIVES for slo in trials[0].slos):
        return f"no objective is on a single request. Add one, such as '{REQUEST_OBJECTIVES[0]} <= 0.1'"
    if metric.startswith("sessions_") and all(trial.settings.get("turns") in (None, 1) for trial in trials):
        return "its sessions have one request. Set 'turns'"
    return None


def _may_stream(service: Service, trials: Sequence[Trial]) -> bool:
    """Return whether a reply may come in parts; so may one of a driver that cannot be made before a run."""
    ports = dict.fromkeys(service.server.ports if service.server else (), 1)
    tried = {str(trial.settings.get("stream")): trial for trial in trials}
    with TemporaryDirectory(prefix="seamark-driver-") as data:
        for trial in tried.values():
            target = Target(settings=filled(trial.settings), data=Path(data), ports=ports)
            try:
                driver = make_of(service.driver)(target)
                if driver.speaks == "wire":
                    may = bool(driver.decoder().streams)
                else:
                    may = driver.unit == "token" or service.component in ("inference", "evaluation")
            except Exception:  # its library, model or server is not here, or it has a mix
                may = service.component in ("inference", "evaluation")
            if may or target.load.mix:
                return True
    return False


def _may_have_recall(service: Service) -> bool:
    """Return whether replies may be compared with neighbours: of vectors, or by a driver with a setting `k`."""
    if service.component == "vectordb" or service.setting("k") is None:
        return service.component == "vectordb"
    try:
        return hooks_of(service.driver).quality is not None
    except Exception:  # a library of it is in its own environment alone
        return True


def _place(scenario: Scenario, group: str, index: int) -> str:
    """Return where an objective was written, else its workload."""
    at = next((workload.path for workload in scenario.workloads if workload.name == group), "workload")
    paths = [f"{at}{end}" for end in (f".slos[{index}]", ".slos", "")]
    return next((scenario.lines[path] for path in (*paths, "") if path in scenario.lines), str(scenario.path))
