"""Measured trials as inputs of a fit: which take part, and why others stay out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from seamark.analysis.metrics.samples import DamagedError, open_samples
from seamark.analysis.summary.trial_result import TrialResult, read_trial_result
from seamark.fit import ReplicaLimits, ReplicaTrial, StationTrial
from seamark.model.results.deployment_record import DeploymentRecord
from seamark.model.results.fitted_model import FitSource
from seamark.model.results.load_record import LoadRecord
from seamark.model.sample import MISSING_NS
from seamark.model.service import Value
from seamark.model.trial import Plan, Trial, levels_of
from seamark.patterns.table import LOAD_SETTINGS
from seamark.storage.documents import read_or_none
from seamark.storage.paths import ScenarioFolder, TrialFolder
from seamark.trials.simulation.fitted_server import ServedTrial, gpu_of
from seamark.trials.simulation.replica_inputs import OF_REQUESTS, is_streamed, replica_limits, replica_trial

UNFIT = {
    "saturated": "saturated",
    "over_saturated": "saturated",
    "schedule_lag": "the client was late",
    "client_stalled": "the client was late",
    "rate_not_sent": "the client was late",
    "client_bound": "the client was the limit",
    "client_underdriven": "the client was the limit",
    "outage": "the server was away",
    "server_restarted": "the server was started anew in it",
    "unfinished": "requests were not finished",
}
"""Reasons of verdicts for which a trial says nothing about its server as it usually is."""
OF_A_LOAD = frozenset(setting.name for setting in LOAD_SETTINGS)
FAILED = 0.001
"""Largest share of failed requests: they kept the server busy, and for how long is not known."""
T = TypeVar("T", StationTrial, ReplicaTrial)


@dataclass(frozen=True, kw_only=True)
class FitGroup(Generic[T]):
    """Trials of one server, at several loads. `name` tells it from the others; `limits` are those of a replica.
    `served` says on which server each trial was."""

    name: str
    service: str
    trials: list[T] = field(default_factory=list)
    sources: list[FitSource] = field(default_factory=list)
    limits: list[ReplicaLimits] = field(default_factory=list)
    served: list[ServedTrial] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class ServerStarts:
    """Times in seconds from starting the processes of equal servers until they were healthy."""

    name: str
    service: str
    times_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class FitInputs:
    """Groups of trials, and those that stay out."""

    stations: list[FitGroup[StationTrial]] = field(default_factory=list)
    replicas: list[FitGroup[ReplicaTrial]] = field(default_factory=list)
    starts: list[ServerStarts] = field(default_factory=list)
    left_out: list[FitSource] = field(default_factory=list)
    machines: set[str] = field(default_factory=set)


Key = tuple[object, ...]


def fit_inputs(results: Iterable[tuple[Plan, ScenarioFolder]]) -> FitInputs:
    """Read the trials of some scenarios. Trials of equal servers and requests are one group, in all scenarios.

    Trials with streamed replies of several tokens are those of LLM replicas, whose requests may differ in length;
    all others are those of stations.
    """
    found = FitInputs()
    stations: dict[Key, FitGroup[StationTrial]] = {}
    replicas: dict[Key, FitGroup[ReplicaTrial]] = {}
    starts: dict[Key, ServerStarts] = {}
    for plan, folder in results:
        levels = levels_of(plan)
        for trial in plan.measured:
            files = folder.trial(trial.id)
            result, load = read_trial_result(trial, files), read_or_none(files.load, LoadRecord)
            taken = _taken(result, load, files)
            source = FitSource(
                scenario=plan.scenario,
                trial=trial.id,
                trial_id=trial.trial_id,
                config_hash=trial.config_hash,
                why=taken if isinstance(taken, str) else None,
            )
            varied = levels[trial.treatment]
            gpu = gpu_of(plan, folder, trial)
            if isinstance(taken, StationTrial):
                group = _add(stations, found.stations, trial, varied, OF_A_LOAD, taken, source, gpu)
                group.served.append(ServedTrial(plan=plan, folder=folder, trial=trial, gpu=gpu))
            elif isinstance(taken, ReplicaTrial):
                of_replicas = OF_A_LOAD | OF_REQUESTS
                served = ServedTrial(plan=plan, folder=folder, trial=trial, gpu=gpu)
                replica = _add(replicas, found.replicas, trial, varied, of_replicas, taken, source, gpu)
                replica.served.append(served)
                record = read_or_none(folder.deployment(trial.deployment).record, DeploymentRecord)
                replica.limits.append(replica_limits(trial, taken, record))
            else:
                found.left_out.append(source)
                continue
            if load is not None and load.node:
                found.machines.add(load.node)
        _add_starts(starts, plan, folder, levels)
    found.starts.extend(starts.values())
    return found


def _add(
    known: dict[Key, FitGroup[T]],
    groups: list[FitGroup[T]],
    trial: Trial,
    varied: Mapping[str, Value],
    besides: frozenset[str],
    taken: T,
    source: FitSource,
    gpu: str | None,
) -> FitGroup[T]:
    """Add a trial to the group of its settings and kind of GPU, settings of the load and of the requests left
    out."""
    key = (*_key(trial, besides), gpu)
    if key not in known:
        name = _name(trial, varied, besides)
        known[key] = FitGroup(name=name if gpu is None else f"{name} on {gpu}", service=trial.service)
        groups.append(known[key])
    known[key].trials.append(taken)
    known[key].sources.append(source)
    return known[key]


def _key(trial: Trial, besides: frozenset[str]) -> Key:
    kept = sorted((name, repr(value)) for name, value in trial.settings.items() if name not in besides)
    return (trial.service, *kept)


def _name(trial: Trial, varied: Mapping[str, Value], besides: frozenset[str]) -> str:
    shown = [f"{name}={value}" for name, value in varied.items() if name in trial.settings and name not in besides]
    return " ".join([trial.service, *shown])


def _add_starts(
    starts: dict[Key, ServerStarts], plan: Plan, folder: ScenarioFolder, levels: Mapping[str, Mapping[str, Value]]
) -> None:
    """Add the time of each start of a plan; a server that was never healthy has none."""
    first = {trial.deployment: trial for trial in reversed(plan.measured)}
    for deployment, trial in first.items():
        record = read_or_none(folder.deployment(deployment).record, DeploymentRecord)
        started_s = None if record is None else record.time_to_service_s.get("start")
        if started_s is not None:
            key = _key(trial, OF_A_LOAD | OF_REQUESTS)
            name = _name(trial, levels[trial.treatment], OF_A_LOAD | OF_REQUESTS)
            known = starts.setdefault(key, ServerStarts(name=name, service=trial.service))
            known.times_s.append(float(started_s))


def _taken(result: TrialResult, load: LoadRecord | None, files: TrialFolder) -> StationTrial | ReplicaTrial | str:
    """Return what a model sees of a trial, or why it stays out."""
    if result.good is None:
        return f"it {'is not measured' if result.status == 'missing' else 'failed'}"
    if result.good.origin != "measured":
        return "simulated itself"
    streamed = is_streamed(result.trial, files)
    if result.trial.load.closed and not streamed:
        return "a closed loop: its rate follows from the server"
    if why := next((UNFIT[each.code] for each in result.reasons if each.code in UNFIT), None):
        return why
    if load is None:
        return "its load.json is missing"
    try:
        return (replica_trial if streamed else _station_trial)(result.trial, load, files)
    except DamagedError as damage:
        return str(damage)


def _station_trial(trial: Trial, load: LoadRecord, folder: TrialFolder) -> StationTrial | str:
    """Return what a station sees of a trial, or why it cannot take part. Raises DamagedError."""
    if load.warmup_s is None or load.duration_s is None:
        return "its load.json has no times"
    until_s = load.warmup_s + load.duration_s
    due, last, failed = [], [], 0
    for batch in open_samples(folder.samples, trial.config_hash).batches():
        chosen = (batch.due >= 0) & (batch.due < until_s * 1e9)
        good = chosen & batch.good & (batch.last != MISSING_NS)
        failed += int((chosen & ~good).sum())
        due.append(batch.due[good])
        last.append(batch.last[good])
    due_ns, last_ns = (
        np.concatenate(due or [np.array([], np.int64)]),
        np.concatenate(last or [np.array([], np.int64)]),
    )
    if len(due_ns) < 2:
        return "it has no good requests"
    if failed > FAILED * (len(due_ns) + failed):
        return f"{failed / (len(due_ns) + failed):.1%} of its requests failed"
    order = np.argsort(due_ns, kind="stable")
    return StationTrial(
        id=trial.id,
        treatment=trial.treatment,
        arrival_s=due_ns[order] / 1e9,
        end_s=last_ns[order] / 1e9,
        warmup_s=load.warmup_s,
        until_s=until_s,
    )
