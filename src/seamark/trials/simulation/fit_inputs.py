"""Measured trials as inputs of a fit: which take part, and why others stay out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from seamark.analysis.metrics.samples import DamagedError, open_samples
from seamark.analysis.summary.trial_result import TrialResult, read_trial_result
from seamark.fit import StationTrial
from seamark.model.results.fitted_model import FitSource
from seamark.model.results.load_record import LoadRecord
from seamark.model.sample import MISSING_NS
from seamark.model.service import Value
from seamark.model.trial import Plan, Trial, levels_of
from seamark.patterns.table import LOAD_SETTINGS
from seamark.storage.paths import ScenarioFolder, TrialFolder, read_or_none

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


@dataclass(frozen=True, kw_only=True)
class FitGroup:
    """Trials of one server under one kind of request, at several loads. `name` tells it from the others."""

    name: str
    service: str
    trials: list[StationTrial] = field(default_factory=list)
    sources: list[FitSource] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class FitInputs:
    """Groups of trials, and those that stay out."""

    groups: list[FitGroup] = field(default_factory=list)
    left_out: list[FitSource] = field(default_factory=list)
    machines: set[str] = field(default_factory=set)


def fit_inputs(results: Iterable[tuple[Plan, ScenarioFolder]]) -> FitInputs:
    """Read the trials of some scenarios. Trials of equal servers and requests are one group, in all scenarios."""
    found, known = FitInputs(), dict[tuple[object, ...], FitGroup]()
    for plan, folder in results:
        levels = levels_of(plan)
        for trial in plan.measured:
            result = read_trial_result(trial, folder.trial(trial.id))
            load = read_or_none(folder.trial(trial.id).load, LoadRecord)
            why = _why_out(result)
            taken = None if why or load is None else _station_trial(trial, load, folder.trial(trial.id))
            source = FitSource(
                scenario=plan.scenario,
                trial=trial.id,
                trial_id=trial.trial_id,
                config_hash=trial.config_hash,
                why=why
                or (taken if isinstance(taken, str) else None)
                or (None if load else "its load.json is missing"),
            )
            if not isinstance(taken, StationTrial):
                found.left_out.append(source)
                continue
            key = (trial.service, *sorted((name, repr(value)) for name, value in _of_server(trial).items()))
            if key not in known:
                known[key] = FitGroup(name=_name(trial, levels[trial.treatment]), service=trial.service)
                found.groups.append(known[key])
            known[key].trials.append(taken)
            known[key].sources.append(source)
            if load is not None and load.node:
                found.machines.add(load.node)
    return found


def _of_server(trial: Trial) -> Mapping[str, Value]:
    """Return the settings that are not of the load: of the server, and of what is asked."""
    return {name: value for name, value in trial.settings.items() if name not in OF_A_LOAD}


def _name(trial: Trial, levels: Mapping[str, Value]) -> str:
    of_server = _of_server(trial)
    shown = [f"{name}={value}" for name, value in levels.items() if name in of_server]
    return " ".join([trial.service, *shown])


def _why_out(result: TrialResult) -> str | None:
    """Return why a trial stays out by its verdict; None if it may take part."""
    if result.good is None:
        return f"it {'is not measured' if result.status == 'missing' else 'failed'}"
    if result.trial.load.closed:
        return "a closed loop: its rate follows from the server"
    if result.good.origin != "measured":
        return "simulated itself"
    return next((UNFIT[each.code] for each in result.reasons if each.code in UNFIT), None)


def _station_trial(trial: Trial, load: LoadRecord, folder: TrialFolder) -> StationTrial | str:
    """Return what a station sees of a trial, or why it cannot take part."""
    if load.warmup_s is None or load.duration_s is None:
        return "its load.json has no times"
    until_s = load.warmup_s + load.duration_s
    due, last, failed = [], [], 0
    try:
        for batch in open_samples(folder.samples, trial.config_hash).batches():
            chosen = (batch.due >= 0) & (batch.due < until_s * 1e9)
            good = chosen & batch.good & (batch.last != MISSING_NS)
            failed += int((chosen & ~good).sum())
            due.append(batch.due[good])
            last.append(batch.last[good])
    except DamagedError as damage:
        return str(damage)
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
