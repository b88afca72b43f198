"""Where the rooms meet: one deployment is served and warmed up, one trial is measured. Ten readable steps."""

import errno
import fcntl
import getpass
import importlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from seamark import provenance, store
from seamark.load.shards import LoadError, LoadJob, LoadOutcome, run_load
from seamark.load.standby import Standby
from seamark.model.service import Service
from seamark.model.site import Site
from seamark.model.trial import SCHEMA_VERSION, Deployment, Trial
from seamark.servers import deployment as servers
from seamark.store import DeploymentFolder, ScenarioFolder, TrialFolder, read_json
from seamark.study import Study

WARM_UP_S = 0.3
LOG_LINES = 20
LONG_WARM_UP_S = 0.3


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Everything one deployment's phases need: what it is, where it runs, where its files go."""

    study: Study
    scenario: str
    deployment: Deployment
    service: Service
    site: Site
    results: ScenarioFolder

    @classmethod
    def of(cls, study: Study, scenario: str, deployment_id: str) -> "Bench":
        """Find a deployment of a study."""
        deployment = study.deployment(scenario, deployment_id)
        return cls(
            study=study,
            scenario=scenario,
            deployment=deployment,
            service=study.services[deployment.service],
            site=study.site,
            results=study.folder(scenario),
        )

    @property
    def folder(self) -> DeploymentFolder:
        """The deployment's files."""
        return self.results.deployment(self.deployment.id)

    @property
    def lock(self) -> Path | None:
        """The lock file of the service's environment; None for the base environment."""
        name = self.service.environment
        return None if name is None else self.study.locks / f"{name}.lock"


def serve(bench: Bench) -> None:
    """Start the deployment's server; endpoint.json says whether that went well. Never raises for the service."""
    plan = bench.study.plan_of(bench.scenario)
    servers.serve(
        bench.deployment,
        bench.service,
        bench.site,
        bench.folder,
        scenario=bench.scenario,
        seed=plan.seed,
        locks=bench.study.locks,
        container=plan.container,
        binds=plan.binds,
    )


def warm_up(bench: Bench, trial: Trial) -> None:
    """Send the first requests a server gets, from the first trial's load, and forget their times."""
    endpoint = read_json(bench.folder.endpoint)
    document: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "status": "failed", "requests": 0}
    if endpoint["status"] == "ok":
        parts = bench.folder.runtime / "warmup"
        settings = {**trial.settings, "duration_s": WARM_UP_S, "warmup_s": 0.0}
        job = replace(_job(bench, trial, endpoint), settings=settings, seed=trial.seed + 1)
        try:
            outcome = run_load(job, _python(endpoint), parts, _watch(bench))
            document |= {"status": "ok" if outcome.completed else "failed", "requests": outcome.completed}
        except LoadError as error:
            document |= {"reason": error.reason, "log_tail": list(error.log_tail)}
        shutil.rmtree(parts, ignore_errors=True)
    store.write_json(bench.folder.warmup, document)


def measure(bench: Bench, trial: Trial, max_retries: int = 0, standby: Sequence[Standby] = ()) -> None:
    """Measure one trial, unless its samples are there; load.json says what came of it, whatever that is."""
    folder = bench.results.trial(trial.id)
    if samples_complete(folder, trial.config_hash):
        store.write_json(folder.load, read_json(folder.record) | {"republished": True})
        return
    with _alone_on_this_node(), _ended_by_signals():
        _write_config(folder, trial, bench)
        for attempt in range(1, max_retries + 2):
            document = _attempt(bench, trial, folder, attempt, standby if attempt == 1 else ())
            if document["status"] == "ok" or attempt > max_retries:
                break
            put_aside(folder)
            time.sleep(2 ** (attempt - 1))
    store.write_json(folder.load, document)


def samples_complete(folder: TrialFolder, config_hash: str) -> bool:
    """Whether a trial was measured with this very configuration and its samples are all there."""
    if not folder.record.exists() or not folder.samples.exists():
        return False
    try:
        return bool(read_json(folder.record)["config_hash"] == config_hash)
    except (ValueError, KeyError):
        return False


def put_aside(folder: TrialFolder) -> None:
    """Keep what an attempt left under `attempts/N`, so that the trial is measured again."""
    kept = [folder.load, folder.samples, folder.record, folder.meta, folder.metrics, folder.client_telemetry]
    kept = [path for path in kept if path.exists()]
    if kept:
        number = 1 + sum(1 for _ in folder.attempts.glob("*"))
        target = folder.attempts / str(number)
        target.mkdir(parents=True)
        for path in kept:
            path.rename(target / path.name)


def _attempt(
    bench: Bench, trial: Trial, folder: TrialFolder, attempt: int, standby: Sequence[Standby]
) -> dict[str, Any]:
    """Measure once. Returns the document of load.json; a failure is a result, not an exception."""
    before, started_at = provenance.moment(), provenance.now()
    outcome: LoadOutcome | None = None
    failure: tuple[str, str] | None = None
    tail: list[str] = []
    try:
        endpoint = _living_endpoint(bench)
        if endpoint["status"] != "ok":
            failure, tail = (endpoint["category"], endpoint["reason"]), endpoint.get("log_tail", [])
        else:
            job, python = _job(bench, trial, endpoint), _python(endpoint)
            outcome = run_load(job, python, folder.parts, _watch(bench), standby, _warm_up_imports(trial))
            failure, tail = _verdict(bench, outcome)
    except LoadError as error:
        died = _death(bench)
        failure, tail = ("server_died", died) if died else ("client_died", error.reason), list(error.log_tail)
    except OSError as error:
        failure = _disk(error)
    document = _record(bench, trial, outcome, failure, tail) | {"attempt": attempt, "started_at": started_at}
    try:
        if outcome is not None:
            _keep_samples(folder, trial, outcome, document)
    except OSError as error:
        category, reason = _disk(error)
        document |= {"status": "failed", "category": category, "reason": reason}
    _write_meta(bench, trial, folder, before)
    store.append_log(folder.log, trial.trial_id, "load ended", status=document["status"], reason=document["reason"])
    if document["status"] == "ok":
        store.write_json(folder.record, document)
    shutil.rmtree(folder.parts, ignore_errors=True)
    return document


def _living_endpoint(bench: Bench) -> dict[str, Any]:
    """Return the endpoint; one that was well and died since is started again, so that other trials go on."""
    endpoint = read_json(bench.folder.endpoint)
    if endpoint["status"] == "ok" and not servers.alive(bench.folder):
        serve(bench)
        endpoint = read_json(bench.folder.endpoint)
    return endpoint


def _warm_up_imports(trial: Trial) -> Callable[[], object]:
    """Return what imports the writer of Parquet (0.1 s) during the warm-up, where that is long enough to hide it."""
    if float(trial.settings["warmup_s"] or 0) < LONG_WARM_UP_S:
        return lambda: None
    return lambda: importlib.import_module("seamark.load.segments")


def _job(bench: Bench, trial: Trial, endpoint: Mapping[str, Any]) -> LoadJob:
    return LoadJob(
        driver=bench.service.driver,
        workers=bench.service.workers,
        settings=trial.settings,
        seed=trial.seed,
        data=Path(endpoint["data"]),
        host=endpoint["host"],
        ports=endpoint["ports"],
        telemetry_interval_s=bench.site.telemetry_interval_s,
    )


def _python(endpoint: Mapping[str, Any]) -> Path | None:
    return None if endpoint["environment"] is None else Path(endpoint["environment"]) / "bin" / "python"


def _watch(bench: Bench) -> Callable[[], str | None]:
    """Return what a load calls as it goes: it renews the server's lease and says why the load must end."""
    parent_pid = os.getppid()

    def tick() -> str | None:
        servers.renew(bench.folder)
        if os.getppid() != parent_pid:
            return "interrupted: the run that asked for this load has gone"
        return _death(bench)

    return tick


def _death(bench: Bench) -> str | None:
    if servers.alive(bench.folder):
        return None
    ended = servers.why_ended(bench.folder) or {}
    return f"the server ended during the load ({ended.get('why', 'no trace')}, code {ended.get('returncode')})"


def _verdict(bench: Bench, outcome: LoadOutcome) -> tuple[tuple[str, str] | None, list[str]]:
    """Return category and reason when the load as a whole failed, with the last lines of the server or the client."""
    died = _death(bench)
    if died or outcome.aborted:
        reason = outcome.aborted or died or ""
        category = "interrupted" if reason.startswith("interrupted") else "server_died"
        return (category, reason), _server_tail(bench)
    if outcome.died == len(outcome.reports):
        full = any(report.get("errno") == errno.ENOSPC for report in outcome.reports)
        reasons = "; ".join(str(report["reason"]) for report in outcome.reports)
        return ("disk_full" if full else "client_died", reasons), list(outcome.log_tail)
    if outcome.sent == 0:
        return ("no_samples", "no request was sent: the load ended before its first one was due"), []
    return None, []


def _disk(error: OSError) -> tuple[str, str]:
    """Return category and reason of a file that could not be written."""
    category = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "no_samples"
    return category, f"a file of the load could not be written: {error}. Free some space, then `bench retry`."


def _server_tail(bench: Bench) -> list[str]:
    if not bench.folder.server_log.exists():
        return []
    return bench.folder.server_log.read_text(errors="replace").splitlines()[-LOG_LINES:]


def _record(
    bench: Bench,
    trial: Trial,
    outcome: LoadOutcome | None,
    failure: tuple[str, str] | None,
    tail: list[str],
) -> dict[str, Any]:
    """Return load.json without samples' own facts."""
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "scenario": bench.scenario,
        "trial": trial.id,
        "trial_id": trial.trial_id,
        "config_hash": trial.config_hash,
        "status": "ok" if failure is None else "failed",
        "category": failure[0] if failure else None,
        "reason": failure[1] if failure else None,
        "log_tail": tail,
        "finished_at": provenance.now(),
        "node": provenance.hostname(),
        "warmup_s": trial.settings["warmup_s"],
        "duration_s": trial.settings["duration_s"],
        "republished": False,
        "quality": {},
        "failures": {},
        "workers": [],
        "scheduled": 0,
        "sent": 0,
        "completed": 0,
        "unit": None,
        "kinds": [],
        "epoch_unix_ns": None,
    }
    if outcome is not None:
        document |= {
            "scheduled": outcome.scheduled,
            "sent": outcome.sent,
            "completed": outcome.completed,
            "workers": [dict(report) for report in outcome.reports],
            "quality": dict(outcome.quality),
            "unit": outcome.unit,
            "kinds": list(outcome.kinds),
            "epoch_unix_ns": outcome.epoch_unix_ns,
        }
    return document


def _keep_samples(folder: TrialFolder, trial: Trial, outcome: LoadOutcome, document: dict[str, Any]) -> None:
    """Write samples.parquet from what the workers left; note failures, and a load without one good reply."""
    from seamark.load.segments import gather_samples

    head = {
        key: document[key] for key in ("config_hash", "trial", "unit", "kinds", "epoch_unix_ns", "schema_version")
    }
    written = gather_samples(outcome.segments, folder.samples, head)
    document["failures"] = {name: count for name, count in written.failures.items() if count}
    document["rows"] = written.rows
    if outcome.client_csv.exists():
        shutil.copyfile(outcome.client_csv, folder.client_telemetry)
    if document["status"] == "ok" and written.rows == sum(document["failures"].values()):
        worst = max(document["failures"], key=document["failures"].__getitem__, default="none")
        document |= {"status": "failed", "category": "all_requests_failed"}
        document["reason"] = f"none of {written.rows} requests succeeded; most failed with '{worst}'"
        document["log_tail"] = list(outcome.log_tail)


def _write_config(folder: TrialFolder, trial: Trial, bench: Bench) -> None:
    """Write effective_config.yaml: everything that this trial is, defaults included."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "scenario": bench.scenario,
        "site": bench.site.name,
        "trial": json.loads(json.dumps(asdict(trial))),
        "deployment": json.loads(json.dumps(asdict(bench.deployment))),
    }
    store.write_text(folder.config, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


def _write_meta(bench: Bench, trial: Trial, folder: TrialFolder, before: Mapping[str, Any]) -> None:
    """Write meta.json: on what and with what this trial was measured."""
    plan = bench.study.plan_of(bench.scenario)
    slurm = provenance.slurm(os.environ)
    software = provenance.software(bench.study.root, bench.lock)
    store.write_json(
        folder.meta,
        {
            "schema_version": SCHEMA_VERSION,
            "trial_id": trial.trial_id,
            "timestamp": provenance.now(),
            "git_commit": software["git_commit"],
            "host": provenance.hostname(),
            "partition": plan.partition,
            "slurm_job_id": (slurm or {}).get("slurm_job_id"),
            "container_digest": bench.service.container.digest if bench.service.container else None,
            "seed": trial.seed,
            "block": trial.block,
            "position": trial.position,
            "node": provenance.hostname(),
            "runtime": bench.site.runtime,
            "service_version": bench.service.version,
            "licence": bench.service.licence,
            "slurm": slurm,
            "software": software,
            "machine": provenance.machine(),
            "before": dict(before),
            "after": provenance.moment(),
        },
    )


@contextmanager
def _alone_on_this_node() -> Iterator[None]:
    """Wait until no other load of this user runs on this node."""
    path = Path(tempfile.gettempdir()) / f"seamark-{getpass.getuser()}.lock"
    with path.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that a load's processes are ended with it."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
