"""Record of one trial, and its end: load.json, samples.parquet, effective_config.yaml and meta.json."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from os.path import expandvars
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from seamark.datasets.prepare import named_in, prepared
from seamark.dispatch.claim_list import ran_beside
from seamark.dispatch.identity import batch_job, node
from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadOutcome
from seamark.model.results.answers import AskedRecord
from seamark.model.results.deployment_record import Endpoint
from seamark.model.results.load_record import ClientRecord, EnergyRecord, ErrorsSeen, LoadRecord, WorkerReport
from seamark.model.results.trial_meta import DatasetRecord, TrialMeta
from seamark.model.server_identity import ServerRecord
from seamark.model.trial import SCHEMA_VERSION, Trial
from seamark.services.images.images import facts_of_file
from seamark.services.images.study_images import StudyImages
from seamark.services.supervisor.device_locks import device_used
from seamark.storage.codec import encode
from seamark.storage.documents import append_log, write, write_text
from seamark.storage.paths import TrialFolder, expanded
from seamark.storage.redaction import hidden, redacted, redacted_text
from seamark.telemetry import provenance
from seamark.telemetry.provenance.software import container_around_us
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.measure import LoadFailure, MeasuredLoad, failure_of

if TYPE_CHECKING:
    from seamark.trials.sessions import RecordedSessions  # imports numpy

_Dumper: type[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def record_of(
    context: DeploymentContext,
    trial: Trial,
    ended: MeasuredLoad | LoadFailure | None = None,
    endpoint: Endpoint | None = None,
) -> LoadRecord:
    """Return the record of a trial's load, without the facts that its samples give. `ended` is the load, or why it
    did not begin. Without `endpoint` that is read."""
    measured = ended if isinstance(ended, MeasuredLoad) else None
    failure = ended.failure if isinstance(ended, MeasuredLoad) else ended
    own = context.service.failures.get(failure.category) if failure else None
    record = LoadRecord(
        schema_version=SCHEMA_VERSION,
        scenario=context.scenario,
        trial=trial.id,
        trial_id=trial.trial_id,
        config_hash=trial.config_hash,
        server_identity=served_by(context, endpoint).brief(),
        server_start=start_of(context, endpoint),
        status="failed" if failure else "ok",
        category=failure.category if failure else None,
        reason=failure.reason if failure else None,
        remedy=own.remedy if own else None,
        log_tail=tuple(failure.log_tail) if failure else (),
        finished_at=measured.finished_at if measured else provenance.now(),
        node=node(),
        warmup_s=trial.load.warmup_s,
        duration_s=trial.load.duration_s,
        in_client=context.service.server is None,
        kind=context.service.load,
        origin=context.service.origin,
        gateway=(endpoint or context.endpoint()).gateway,
        device=device_used(measured.outcome.epoch_unix_ns if measured else None),
        client=ClientRecord(workers=context.service.workers, processes=0),
        energy=(measured and measured.energy) or EnergyRecord(),
        scheduled=0,
        sent=0,
        completed=0,
    )
    return hidden(counted_load(record, measured.outcome) if measured else record, context.secrets)


def counted_load(record: LoadRecord, outcome: LoadOutcome) -> LoadRecord:
    """Return a load's record with the counters of its workers, whose errors stand there once for all."""
    errors: dict[str, ErrorsSeen] = {}
    for report in outcome.reports:
        for code, seen in (report.errors or {}).items():
            if (before := errors.get(code)) is None:
                errors[code] = replace(seen, words=redacted_text(seen.words))
            else:
                errors[code] = replace(seen, count=before.count + seen.count, words=before.words)
    return replace(
        record,
        scheduled=outcome.scheduled,
        sent=outcome.sent,
        completed=outcome.completed,
        client=replace(record.client, processes=len(outcome.reports), cores=outcome.cores),
        workers=tuple(replace(report, errors=None) for report in outcome.reports),
        errors=errors or None,
        quality=outcome.quality,
        warmed=outcome.warmed,
        unit=outcome.unit,
        kinds=outcome.kinds,
        epoch_unix_ns=outcome.epoch_unix_ns,
        over_saturated_at_s=outcome.over_saturated_at_s,
    )


def served_by(context: DeploymentContext, endpoint: Endpoint | None = None) -> ServerRecord:
    """Return the identity of the started server by endpoint.json; without one, that of the plan."""
    return (endpoint or context.endpoint()).server_identity or context.server


def start_of(context: DeploymentContext, endpoint: Endpoint | None = None) -> str | None:
    """Return which start of the server a load is on; None for a server that Seamark does not start."""
    started_at = (endpoint or context.endpoint()).started_at
    if not context.site.starts_servers or started_at is None:
        return None
    return f"{context.deployment.id} at {started_at}"


def keep_samples(
    folder: TrialFolder, outcome: LoadOutcome, record: LoadRecord, sessions: "RecordedSessions | None" = None
) -> LoadRecord:
    """Write samples.parquet, chunks.parquet of streams, replies.parquet with asked.json, and events.parquet if kept.

    Write the client's telemetry if it has any. Return the record with the facts of the samples.

    Of the `sessions` of a finite load this outcome is the last. Raises OSError and ValueError as `gather_samples`.
    """
    from seamark.load.workers.segments import (
        PlacedSegment,
        gather_asked,
        gather_chunks,
        gather_events,
        gather_replies,
        gather_samples,
    )

    files: Mapping[str, Sequence[Path | PlacedSegment]] = outcome.files
    clients = [outcome.client_csv]
    if sessions is not None:
        record = sessions.counted(record, outcome)
        if len(sessions.made) > 1:
            files, clients = {kind: sessions.placed(kind) for kind in files}, sessions.clients
    names = ("config_hash", "trial", "unit", "kinds", "epoch_unix_ns", "schema_version")
    written = gather_samples(
        files["samples"], folder.samples, {name: encode(getattr(record, name)) for name in names}
    )
    for path in (folder.chunks, folder.replies, folder.events, folder.asked):
        path.unlink(missing_ok=True)
    if contents := gather_asked(files["asked"]):
        write(folder.asked, AskedRecord(epoch_unix_ns=record.epoch_unix_ns, asked=contents))
    if found := [path for path in clients if path.exists()]:
        with folder.client_telemetry.open("wb") as target:
            for path in found:
                target.write(path.read_bytes())
    return replace(
        record,
        chunks=gather_chunks(files["chunks"], folder.chunks) if files["chunks"] else None,
        replies=gather_replies(files["replies"], folder.replies) if files["replies"] else None,
        events=gather_events(files["events"], folder.events, outcome.stages) if files["events"] else None,
        failures={name: count for name, count in written.failures.items() if count},
        rows=written.rows,
        samples_bytes=folder.samples.stat().st_size,
    )


def finish(
    context: DeploymentContext,
    trial: Trial,
    load: LoadRecord,
    before: provenance.Nodes,
    endpoint: Endpoint,
    what: str = "load",
) -> LoadRecord:
    """Write all records of the end of a load whose samples are kept; return its load.json."""
    # the parts first, because the disk may be full
    shutil.rmtree(context.results.trial(trial.id).parts, ignore_errors=True)
    write_meta(context, trial, before, load.workers, endpoint)
    return publish(context, trial, load, what)


def publish(context: DeploymentContext, trial: Trial, load: LoadRecord, what: str = "load") -> LoadRecord:
    """Write the end of a load to the trial's log, samples.json of a good one, then load.json; return the record."""
    folder = context.results.trial(trial.id)
    append_log(folder.log, trial.trial_id, f"{what} ended", status=load.status, reason=load.reason)
    if load.ok:
        write(folder.record, load)
    write(folder.load, load)
    return load


def not_kept(load: LoadRecord, error: OSError) -> LoadRecord:
    """Return the record of a load of which a file could not be written."""
    failure = failure_of(error)
    return replace(load, status="failed", category=failure.category, reason=failure.reason)


def write_config(context: DeploymentContext, trial: Trial) -> None:
    """Write effective_config.yaml: every setting of this trial, defaults included, without secrets.

    `container` is the file that the server runs in and `binds` are those of the scenario, both with variables filled
    in; none where servers run without containers.
    """
    plan = context.study.plan_of(context.scenario)
    image = StudyImages(study=context.study).of_server(context.deployment)
    batch = {
        name: getattr(plan, name)
        for name in ("partition", "account", "qos", "gres", "ntasks", "max_retries", "restarts")
    }
    document = {
        "schema_version": SCHEMA_VERSION,
        "scenario": context.scenario,
        "site": context.site.name,
        **batch,
        "container": str(image.path) if image else None,
        "binds": [expandvars(bind) for bind in plan.binds] if image else [],
        "metadata": {
            "seed": plan.seed,
            "git_commit": plan.git_commit,
            "notes": plan.notes and redacted_text(plan.notes),
        },
        "trial": redacted(json.loads(json.dumps(asdict(trial)))),
        "deployment": redacted(json.loads(json.dumps(asdict(context.deployment)))),
    }
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    write_text(context.results.trial(trial.id).config, text)


def write_meta(
    context: DeploymentContext,
    trial: Trial,
    before: provenance.Nodes,
    workers: Sequence[WorkerReport] = (),
    endpoint: Endpoint | None = None,
) -> None:
    """Write meta.json: the environment of this trial. `workers` name the places of the load's workers."""
    folder, endpoint = context.results.trial(trial.id), endpoint or context.endpoint()
    seen = provenance.survey(_paths(context, folder, endpoint), whole=True)
    slurm, around = batch_job(), container_around_us()
    software = provenance.software(context.study.root, context.lock)
    planned = context.study.plan_of(context.scenario)
    took_ns = time.monotonic_ns() - (before.here.moment.monotonic_ns or time.monotonic_ns())
    meta = TrialMeta(
        schema_version=SCHEMA_VERSION,
        trial_id=trial.trial_id,
        timestamp=provenance.now(),
        git_commit=software.git_commit,
        host=node(),
        partition=planned.partition,
        slurm_job_id=(slurm or {}).get("slurm_job_id"),
        container_digest=endpoint.image.digest if endpoint.image else None,
        container=endpoint.image,
        client_container=facts_of_file(Path(around)) if around else endpoint.client_image,
        seed=trial.seed,
        block=trial.block,
        position=trial.position,
        node=node(),
        placement=context.site.placement,
        runtime=context.site.runtime,
        server_identity=served_by(context, endpoint),
        service_version=context.service.version,
        licence=context.service.licence,
        slurm=slurm,
        software=software,
        machine=seen.here.machine,
        pinning=endpoint.pinning,
        shards=tuple(worker.place for worker in workers),
        before=before.here.moment,
        after=seen.here.moment,
        nodes=provenance.after(before, seen),
        nodes_unknown=seen.reason,
        scenario_commit=planned.git_commit,
        ran_beside=ran_beside(context.deployment.whole, time.time() - took_ns / 1e9),
        dataset=_dataset(context, trial),
    )
    write(folder.meta, meta)


def _dataset(context: DeploymentContext, trial: Trial) -> DatasetRecord | None:
    """Return the data set of a trial; None without one, and where it has gone, which the load says."""
    for path, kind in named_in(context.service, trial.settings).values():
        with suppress(UserError):
            return prepared(path, context.study.data, kind)[1]
    return None


def _paths(context: DeploymentContext, folder: TrialFolder, endpoint: Endpoint) -> dict[str, Path]:
    """Return the paths that a trial uses, by their role."""
    scratch = expanded(context.site.paths.scratch, context.study.root)
    used = {"results": folder.root, "scratch": scratch, "data": Path(endpoint.data or scratch)}
    image = endpoint.image.path if endpoint.image else None
    return used | ({"container": Path(image)} if image else {})
