"""Kind of trial that puts several services under load at the same time: its parties, on one clock.

Each party has files of its own, like a trial's. All are measured over one window: the time in which every one of them
was sending, after the warm-ups. A party that fails ends no other.
"""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadError, LoadJob, NamedLoad, run_loads
from seamark.model.parties import servers_named, with_servers
from seamark.model.results.deployment_record import Endpoint
from seamark.model.results.load_record import EnergyRecord, LoadRecord, NodeEnergy, PackageCounters
from seamark.model.trial import PARTY, Trial
from seamark.storage.documents import read
from seamark.telemetry import provenance
from seamark.trials.caches import reset_caches
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.kept_place import KeptPlace
from seamark.trials.kinds.timed_load import (
    count_failures,
    end_strays,
    kept,
    measured_with_retries,
    others_before,
)
from seamark.trials.measure import LoadFailure, MeasuredLoad, failure_of, measured_load
from seamark.trials.members import given_threads, place_of, placed
from seamark.trials.server_start import living_endpoint
from seamark.trials.trial_record import finish, publish, record_of, write_config

PARTY_FAILED = "party_failed"
"""Category of a party that was not measured because another could not begin."""
SHARED = "the parties share the machine, whose energy cannot be divided among them"
EARLY = 0.01
"""Part of the planned length by which a window may end before its time without being named."""


@dataclass(kw_only=True)
class _Party:
    """One party at work. `ended` is its load, or why it did not begin."""

    context: DeploymentContext
    trial: Trial
    before: provenance.Nodes
    endpoint: Endpoint
    others: float | None = None
    restarted: str | None = None
    job: LoadJob | None = None
    place: KeptPlace | None = None
    ended: MeasuredLoad | LoadFailure | None = None

    @property
    def name(self) -> str:
        return str(self.trial.party)

    @property
    def measured(self) -> MeasuredLoad | None:
        return self.ended if isinstance(self.ended, MeasuredLoad) else None


def measure_trial(context: DeploymentContext, trial: Trial, parent_pid: int, *, max_retries: int = 0) -> None:
    """Measure the parties of a trial and write the load.json of each, and that of the whole. The caller holds the
    lock of the node."""
    measured_with_retries(context, trial, parent_pid, max_retries, _attempt)


def _attempt(context: DeploymentContext, trial: Trial, attempt: int, parent_pid: int) -> LoadRecord:
    """Measure all parties once. A failure is a result, not an exception."""
    started_at, folder = provenance.now(), context.results.trial(trial.id)
    folder.own_parts.mkdir(parents=True)  # the trial is at work
    parties = [_begun(context.of(context.study, context.scenario, part.deployment), part) for part in trial.parties]
    try:
        _bring_up(context, parties, parent_pid)
        if not any(party.ended for party in parties):
            _run(context, trial, parties, folder.own_parts, parent_pid)
    except (LoadError, OSError, ValueError, UserError) as error:
        _note_failure(parties, error)
    _blame(parties)
    window_s, early = _window(parties)
    silent = _silent(parties, window_s)
    records = [_kept(party, parties, window_s, early, silent, attempt, started_at) for party in parties]
    shutil.rmtree(folder.parts, ignore_errors=True)
    whole = _record_of_whole(context, trial, parties, records)
    whole = replace(whole, attempt=attempt, started_at=started_at, window_s=window_s, ended_early=early)
    return publish(context, trial, whole)


def _begun(context: DeploymentContext, trial: Trial) -> _Party:
    folder = context.results.trial(trial.id)
    shutil.rmtree(folder.root, ignore_errors=True)  # of an attempt that was killed; a finished one lies in `attempts`
    folder.root.mkdir(parents=True)
    write_config(context, trial)
    return _Party(context=context, trial=trial, before=provenance.survey(), endpoint=Endpoint(status="failed"))


def _bring_up(context: DeploymentContext, parties: Sequence[_Party], parent_pid: int) -> None:
    """Start again what has died of the members, also those that are idle in this trial."""
    context.abandoned(parent_pid)  # a lease that runs out after this look would end a server that is seen alive
    for party in parties:
        party.endpoint, party.restarted = living_endpoint(party.context, party.trial, parent_pid)
        end_strays(party.context, party.endpoint, party.trial)
        if not party.endpoint.ok:
            party.ended = LoadFailure.of(party.endpoint)
    loaded = {party.context.deployment.id for party in parties}
    for member in context.members:
        trials = context.study.whole.trials_of(context.scenario, member.deployment.id)
        if member.deployment.id not in loaded and trials:
            endpoint, _ = living_endpoint(member, trials[0], parent_pid)
            for party in parties if not endpoint.ok else ():
                if str(trials[0].party) in servers_named(party.trial.settings):
                    party.ended = party.ended or LoadFailure.of(endpoint)


def _addresses(context: DeploymentContext) -> dict[str, str]:
    """Return the address of each server of the members by the name of its party."""
    endpoints = {member.deployment.id: read(member.folder.endpoint, Endpoint) for member in context.members}
    return {
        id.partition(PARTY)[2]: f"{endpoint.host}:{next(iter(endpoint.ports.values()))}"
        for id, endpoint in endpoints.items()
        if endpoint.ok and endpoint.ports
    }


def _run(context: DeploymentContext, trial: Trial, parties: Sequence[_Party], parts: Path, parent_pid: int) -> None:
    loads, others = [], others_before([(party.context, party.trial, party.endpoint) for party in parties])
    threads = given_threads(parties[0].context, {party.name for party in parties})
    for party in parties:
        place = place_of(party.context)
        assert place is not None
        party.others, party.place = others, KeptPlace(place, party.endpoint, threads)
        job = placed(party.context.load_job(party.trial, party.endpoint), place)
        settings = with_servers(job.settings, _addresses(context)) if servers_named(job.settings) else job.settings
        reset_caches(party.context.service, party.endpoint, settings, party.name)
        party.job = replace(job, keep_busy=trial.keep_busy, settings=settings)
        loads.append(
            NamedLoad(
                name=party.name,
                job=party.job,
                parts=parts / party.name,
                python=party.context.client_python(party.endpoint),
                launcher=party.context.launcher(parent_pid, party.endpoint),
                on_tick=party.context.on_tick(parent_pid),
                on_sample=party.place.look,
            )
        )
    outcomes = run_loads(loads, parent_pid)
    for party in parties:
        assert party.job is not None
        party.ended = measured_load(party.job, outcomes[party.name], party.context)


def _note_failure(parties: Sequence[_Party], error: Exception) -> None:
    """Note why the loads did not begin: of the party that the error names, else of the first."""
    named = error.load if isinstance(error, LoadError) else None
    party = next((candidate for candidate in parties if candidate.name == named), parties[0])
    party.ended = failure_of(error, party.context)


def _blame(parties: Sequence[_Party]) -> None:
    """Give a failure to each party that did not begin because another one could not."""
    first = next((party for party in parties if isinstance(party.ended, LoadFailure)), None)
    for party in parties:
        if first is not None and party.ended is None:
            reason = f"not measured: the party '{first.name}' could not begin"
            party.ended = LoadFailure(category=PARTY_FAILED, reason=reason)


def _window(parties: Sequence[_Party]) -> tuple[tuple[float, float] | None, str | None]:
    """Return the time, in seconds from the start of load, in which all parties were sending after their warm-ups, and
    the party that ended it before its time; None for either that there is not."""
    ends = {party.name: party.measured.outcome.sent_until_s for party in parties if party.measured}
    if not ends:
        return None, None
    loads = [party.trial.load for party in parties]
    start_s = max((load.warmup_s for load in loads if not load.finite), default=0.0)
    first = min(ends, key=lambda name: ends[name])
    planned_s = min((load.length_s for load in loads if not load.finite), default=None)
    if planned_s is None:
        planned_s = min(ends.values())  # all end with their work
    early = first if ends[first] < planned_s * (1 - EARLY) else None
    return (start_s, max(start_s, ends[first])), early


def _silent(parties: Sequence[_Party], window_s: tuple[float, float] | None) -> tuple[str, ...]:
    """Return the parties that never got going: under load, and without a good reply to any request that was under way
    in the window. A program is one request, whose reply comes with its end: it works until then."""
    if window_s is None:
        return ()
    found = []
    for party in parties:
        if party.measured and party.job and party.job.kind != "program":
            with suppress(OSError, ValueError):  # damaged samples fail the party's own load
                if not party.measured.replied_in(window_s):
                    found.append(party.name)
    return tuple(found)


def _kept(
    party: _Party,
    parties: Sequence[_Party],
    window_s: tuple[float, float] | None,
    early: str | None,
    silent: tuple[str, ...],
    attempt: int,
    started_at: str,
) -> LoadRecord:
    """Keep what one party has measured, and write its load.json; return that."""
    context, measured = party.context, party.measured
    if measured and measured.failure is None and window_s is not None and window_s[1] <= window_s[0]:
        reason = f"the party '{early}' ended before the warm-up of all had: there is nothing to measure"
        party.ended = measured = replace(measured, failure=LoadFailure(category="no_samples", reason=reason))
    load = replace(
        record_of(context, party.trial, party.ended, party.endpoint),
        attempt=attempt,
        started_at=started_at,
        server_restarted=party.restarted,
        others_before=party.others,
        energy=EnergyRecord(package=PackageCounters(reason=SHARED), node=NodeEnergy(reason=SHARED)),
        beside=tuple(other.name for other in parties if other is not party),
        used=tuple(sorted({name for other in parties for name in servers_named(other.trial.settings)})),
        window_s=window_s,
        ended_early=early,
        silent=silent,
        moved=tuple(other.name for other in parties if other.place and other.place.record().departures),
        place=party.place.record() if party.place else None,
    )
    end_strays(context, party.endpoint, party.trial)
    if measured is not None:
        folder, job = context.results.trial(party.trial.id), context.load_job(party.trial, party.endpoint)
        load = kept(folder, load, measured, job, measured.outcome.client_csv.parent)
    finish(context, party.trial, load, party.before, party.endpoint)
    count_failures(context, party.trial, load)
    return load


def _record_of_whole(
    context: DeploymentContext, trial: Trial, parties: Sequence[_Party], records: Sequence[LoadRecord]
) -> LoadRecord:
    """Return the record of the whole: it failed if a party did, with the cause of the first."""
    failed = {party.name: load for party, load in zip(parties, records, strict=True) if not load.ok}
    causes = {name: load for name, load in failed.items() if load.category != PARTY_FAILED} or failed
    failure = None
    if failed:
        reasons = "; ".join(f"{party}: {cause.reason}" for party, cause in causes.items())
        failure = replace(LoadFailure.of(next(iter(causes.values()))), reason=reasons)
    begun = [party.measured for party in parties if party.measured]
    record = record_of(context, trial, failure)
    return replace(
        record,
        finished_at=begun[0].finished_at if begun else record.finished_at,
        epoch_unix_ns=begun[0].outcome.epoch_unix_ns if begun else None,
        scheduled=sum(load.scheduled or 0 for load in records),
        sent=sum(load.sent or 0 for load in records),
        completed=sum(load.completed or 0 for load in records),
        samples_bytes=sum(load.samples_bytes or 0 for load in records),
        parties=tuple(party.name for party in parties),
    )
