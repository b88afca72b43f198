"""Where the rooms meet: one deployment is served and warmed up, one trial is measured. Ten readable steps."""

import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from seamark.errors import SiteError, UserError
from seamark.load.coordinator.coordinator import LoadError, LoadOutcome, run_load
from seamark.model.results.load_record import LoadRecord
from seamark.model.server_identity import ServerIdentity
from seamark.model.trial import SCHEMA_VERSION, Trial
from seamark.services.images.study_images import StudyImages
from seamark.services.runtimes.environments import damage_hint
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.node_locks import locked, node_folder
from seamark.storage import paths
from seamark.storage.codec import encode
from seamark.storage.paths import TrialFolder, read_json
from seamark.telemetry import provenance
from seamark.telemetry.energy import after_load, before_load, idle_power_w
from seamark.telemetry.provenance.software import container_around_us
from seamark.trials.deployment_context import (
    Bench,
    abandoned,
    death,
    job_of,
    launcher_for,
    python_of,
    server_tail,
    taken_away,
    watch,
)
from seamark.trials.permissions import user_named
from seamark.trials.progress import held_by
from seamark.trials.repeated_failures import NOT_TRIED, note_death, note_life, run_of, why_not_tried
from seamark.trials.trial_files import keep_samples, put_aside, record_of, samples_complete, write_config, write_meta

WARM_UP_S = 0.3
DEATH_SEEN_S = 1.0
"""How long after a load has failed as a whole its server may be found dead: a client sees a refused connection before
the keeper has recorded the end, and the failure is the server's."""
UNCOUNTED = (NOT_TRIED, "interrupted", "disk_full", "port_taken")
"""Ends that say nothing of the service: the next may go well."""
WAITING_ANEW_S = 1.0
"""How old waiting.json gets before it is written again; readers take one that is much older for left behind."""


def serve(bench: Bench) -> None:
    """Start the deployment's server; endpoint.json says whether that went well. Never raises for the service."""
    run = run_of(os.environ)
    if why := why_not_tried(bench.results, bench.service.name, run):
        servers.leave_out(bench.deployment, bench.service, bench.site, bench.folder, category=NOT_TRIED, reason=why)
        return
    plan = bench.study.plan_of(bench.scenario)
    trials = bench.study.whole.trials_of(bench.scenario, bench.deployment.id)
    images = StudyImages(study=bench.study)
    answer = servers.serve(
        bench.deployment,
        bench.service,
        bench.site,
        bench.folder,
        scenario=bench.scenario,
        seed=plan.seed,
        locks=bench.study.locks,
        image=images.of_server(bench.service, plan.container),
        part_images=images.of_parts(bench.service),
        client=images.of_client(bench.service),
        binds=plan.binds,
        shards=max(int(trial.settings["shards"] or 1) for trial in trials),
        identity=encode(bench.server.record()),
    )
    if answer["status"] != "ok" and answer["category"] not in UNCOUNTED:
        note_death(
            bench.results,
            bench.service.name,
            run,
            kind="deployment",
            name=bench.deployment.id,
            said=f"{answer['category']}: {answer['reason']}",
            tail=answer.get("log_tail") or (),
        )


def warm_up(bench: Bench, trial: Trial, parent_pid: int) -> None:
    """Send the first requests a server gets, from the first trial's load, and forget their times."""
    with alone_on_this_node(bench, parent_pid):
        paths.write_json(bench.folder.warmup, _first_requests(bench, trial, parent_pid))


def measure(bench: Bench, trial: Trial, parent_pid: int, *, max_retries: int = 0) -> None:
    """Measure one trial, unless its samples are there; load.json says what came of it, whatever that is."""
    with alone_on_this_node(bench, parent_pid), ended_by_signals():
        if not republished(bench.results.trial(trial.id), trial, bench.server):
            measure_here(bench, trial, parent_pid, max_retries=max_retries)


def republished(folder: TrialFolder, trial: Trial, server: ServerIdentity | None = None) -> bool:
    """Whether the trial's samples are all there, of `server` if it is given; load.json is written again then."""
    if not samples_complete(folder, trial.config_hash, server):
        return False
    paths.amend(folder.record, folder.load, republished=True)
    return True


def measure_here(bench: Bench, trial: Trial, parent_pid: int, *, max_retries: int = 0) -> None:
    """Measure one trial and write its load.json. The caller sees to it that no other load runs on this node.

    What an earlier measurement left goes to `attempts` first: no raw sample is ever overwritten.
    """
    folder = bench.results.trial(trial.id)
    if why := taken_away(bench):
        raise SystemExit(why)
    clear(folder)
    put_aside(folder)
    if why := why_not_tried(bench.results, bench.service.name, run_of(os.environ)):
        write_config(folder, trial, bench)
        paths.write(folder.load, replace(record_of(bench, trial, None, (NOT_TRIED, why)), attempt=0))
        return
    for attempt in range(1, max_retries + 2):
        write_config(folder, trial, bench)
        load = _attempt(bench, trial, folder, attempt, parent_pid)
        if load.ok or attempt > max_retries:
            break
        put_aside(folder)
        _pause(bench, 2 ** (attempt - 1), parent_pid)
    paths.write(folder.load, load)
    _count(bench, trial, load)


def _count(bench: Bench, trial: Trial, load: LoadRecord) -> None:
    """Note that a load has sent requests, or how it ended before the first though its server was well."""
    if load.ok or load.sent:
        note_life(bench.results, bench.service.name)
    elif load.category not in UNCOUNTED and read_json(bench.folder.endpoint)["status"] == "ok":
        note_death(
            bench.results,
            bench.service.name,
            run_of(os.environ),
            kind="trial",
            name=trial.id,
            said=f"{load.category}: {load.reason}",
            tail=load.log_tail,
        )


def _attempt(bench: Bench, trial: Trial, folder: TrialFolder, attempt: int, parent_pid: int) -> LoadRecord:
    """Measure once. A failure is a result, not an exception."""
    before, started_at = provenance.survey(), provenance.now()
    energy_before = before_load()
    outcome: LoadOutcome | None = None
    failure: tuple[str, str] | None = None
    restarted: str | None = None
    tail: list[str] = []
    try:
        endpoint, restarted = _living_endpoint(bench, trial, parent_pid)
        if endpoint["status"] != "ok":
            failure, tail = (endpoint["category"], endpoint["reason"]), endpoint.get("log_tail", [])
        else:
            job, python, tick = job_of(bench, trial, endpoint), python_of(endpoint), watch(bench, parent_pid)
            outcome = run_load(job, python, folder.own_parts, tick, parent_pid, launcher_for(bench, parent_pid))
            failure, tail = _verdict(bench, outcome)
    except LoadError as error:
        died = _death(bench, DEATH_SEEN_S)
        tail = list(error.log_tail)
        failure = ("server_died", died) if died else ("client_died", error.reason + _damage(bench, tail))
    except OSError as error:
        failure = _disk(error)
    except (ValueError, UserError) as error:
        failure = ("setup_failed", str(error))
    load = replace(
        record_of(bench, trial, outcome, failure, tail),
        attempt=attempt,
        started_at=started_at,
        server_restarted=restarted,
        energy=after_load(energy_before, idle_w=_idle_w(bench)),
    )
    try:
        if outcome is not None:
            load = keep_samples(folder, outcome, load)
    except OSError as error:
        category, reason = _disk(error)
        load = replace(load, status="failed", category=category, reason=reason)
    clear(folder)  # before anything else is written: the disk may be full
    write_meta(bench, trial, folder, before, load.workers)
    paths.append_log(folder.log, trial.trial_id, "load ended", status=load.status, reason=load.reason)
    if load.ok:
        paths.write(folder.record, load)
    return load


def _damage(bench: Bench, tail: Sequence[str]) -> str:
    """Return how to make the service's environment anew, where a load could not import what is in it."""
    environment = read_json(bench.folder.endpoint).get("environment")
    return damage_hint(Path(environment), tail) if environment else ""


def _idle_w(bench: Bench) -> dict[str, float]:
    if not bench.folder.endpoint.exists():
        return {}
    return idle_power_w(bench.folder.telemetry, read_json(bench.folder.endpoint).get("idle_unix_s"))


def _living_endpoint(bench: Bench, trial: Trial, parent_pid: int) -> tuple[dict[str, Any], str | None]:
    """Return the endpoint; one that was well and died since is started and warmed up again, and it is said why."""
    if why := taken_away(bench):
        raise SystemExit(why)
    endpoint = read_json(bench.folder.endpoint)
    if endpoint["status"] != "ok" or servers.alive(bench.folder):
        return endpoint, None
    ended = servers.why_ended(bench.folder) or {}
    why = f"the server had ended before this trial ({ended.get('why', 'no trace')})"
    if container_around_us() is not None:
        reason = f"{why}, and a load inside a container cannot start it again. `bench retry` measures it."
        return endpoint | {"status": "failed", "category": "server_died", "reason": reason}, None
    serve(bench)
    _first_requests(bench, trial, parent_pid)
    return read_json(bench.folder.endpoint), why


def _first_requests(bench: Bench, trial: Trial, parent_pid: int) -> dict[str, Any]:
    endpoint = read_json(bench.folder.endpoint)
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "status": "failed", "requests": 0}
    if endpoint["status"] != "ok":
        return document
    parts = bench.folder.runtime / "warmup"
    settings = {**trial.settings, "duration_s": WARM_UP_S, "warmup_s": 0.0}
    job = replace(job_of(bench, trial, endpoint), settings=settings, seed=trial.seed + 1)
    try:
        outcome = run_load(job, python_of(endpoint), parts, watch(bench, parent_pid), parent_pid)
        document |= {"status": "ok" if outcome.completed else "failed", "requests": outcome.completed}
    except LoadError as error:
        document |= {"reason": error.reason, "log_tail": list(error.log_tail)}
    shutil.rmtree(parts, ignore_errors=True)
    return document


def clear(folder: TrialFolder) -> None:
    """Remove what loads left while they ran."""
    shutil.rmtree(folder.parts, ignore_errors=True)


def _pause(bench: Bench, seconds: float, parent_pid: int) -> None:
    """Wait before another attempt, while the server's lease is renewed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not abandoned(bench, parent_pid):
        time.sleep(0.2)


def _verdict(bench: Bench, outcome: LoadOutcome) -> tuple[tuple[str, str] | None, list[str]]:
    """Return category and reason when the load as a whole failed, with the last lines of the server or the client."""
    no_worker_left = outcome.died == len(outcome.reports)
    died = _death(bench, DEATH_SEEN_S if no_worker_left else 0.0)
    if died or outcome.aborted:
        reason = outcome.aborted or died or ""
        category = "interrupted" if reason.startswith("interrupted") else "server_died"
        return (category, reason), server_tail(bench)
    if no_worker_left:
        full = any(report.errno == errno.ENOSPC for report in outcome.reports)
        reasons = "; ".join(str(report.reason) for report in outcome.reports)
        return ("disk_full" if full else "client_died", reasons), list(outcome.log_tail)
    if outcome.sent == 0:
        return ("no_samples", "no request was sent: the load ended before its first one was due"), []
    return None, []


def _death(bench: Bench, seen_s: float = 0.0) -> str | None:
    """Return how the server ended, None while it lives; ends the load, with nothing written, where on purpose.

    Waits up to `seen_s` for an end to be recorded.
    """
    until_s = time.monotonic() + seen_s
    while not (died := death(bench)) and time.monotonic() < until_s:
        time.sleep(0.02)
    if died and (why := taken_away(bench)):
        raise SystemExit(why)
    return died


def _disk(error: OSError) -> tuple[str, str]:
    """Return category and reason of a file that could not be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk_full", f"a file of the load could not be written: {error}. Free some space, then `bench retry`."
    return "no_samples", f"a file of the load could not be read or written: {error}"


@contextmanager
def alone_on_this_node(bench: Bench, parent_pid: int) -> Iterator[None]:
    """Wait until no other load of this user runs on this node; end when the run that waits has gone.

    Where deployments share nodes, only loads of the same one wait for each other. A load of another user is not
    waited for: nothing of theirs can be trusted to end, and checks see it as work of others. While it waits for
    longer than a moment, waiting.json says for whom.
    """

    def on_wait() -> None:
        if reason := abandoned(bench, parent_pid):
            raise SystemExit(reason)

    whose = f"-{bench.deployment.id}" if bench.site.placement == "share" else ""
    facts = {"pid": os.getpid(), "user": user_named(os.getuid()), "study": str(bench.study.root)}
    try:
        node_folder()
    except SiteError as lacking:
        raise SystemExit(str(lacking)) from None
    try:
        with locked(f"load{whose}.lock", facts, on_wait, lambda holder: _say_waiting(bench, holder)):
            bench.folder.waiting.unlink(missing_ok=True)
            yield
    finally:
        bench.folder.waiting.unlink(missing_ok=True)


def _say_waiting(bench: Bench, holder: Mapping[str, Any]) -> None:
    """Write for whose load this one waits: once into the log of its job, and anew for as long as it waits."""
    path = bench.folder.waiting
    if not path.exists():
        print(f"Waiting for another load on this node: {held_by(holder)}.", file=sys.stderr, flush=True)
    elif time.time() - path.stat().st_mtime < WAITING_ANEW_S:
        return
    paths.write_json(path, {"schema_version": SCHEMA_VERSION, "holder": dict(holder)})


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that a load's processes are ended with it."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
