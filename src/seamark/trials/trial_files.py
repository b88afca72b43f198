"""What one trial leaves: its samples, the record that says they are complete, and where it was measured."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

import yaml

from seamark.dispatch.identity import batch_job, node
from seamark.load.coordinator.coordinator import LoadOutcome
from seamark.model.load_profile import duration_of, warmup_of
from seamark.model.plurals import counted
from seamark.model.results.load_record import ClientRecord, CommitMark, LoadRecord, SamplesRecord, WorkerPlace
from seamark.model.server_identity import ServerIdentity, ServerRecord, same_server
from seamark.model.trial import SCHEMA_VERSION, Trial
from seamark.services.images.images import facts_of_file
from seamark.storage import paths
from seamark.storage.codec import decode, encode
from seamark.storage.paths import TrialFolder, expanded, read, read_json
from seamark.storage.redaction import redacted, redacted_text
from seamark.telemetry import provenance
from seamark.telemetry.provenance.software import container_around_us
from seamark.trials.deployment_context import Bench
from seamark.trials.repeated_failures import NOT_TRIED


def samples_complete(folder: TrialFolder, config_hash: str, server: ServerIdentity | None = None) -> bool:
    """Whether a trial was measured with this very configuration and its samples are all there, or were pruned.

    With `server`, also whether it was measured on that one; a record that knows no server counts as of any.
    """
    mark = commit_mark(folder)
    return mark is not None and complete(folder, mark, config_hash, server)


def commit_mark(folder: TrialFolder) -> CommitMark | None:
    """Return what tells a finished measurement from another one, None where there is none that can be read."""
    try:
        return read(folder.record, SamplesRecord).mark
    except (OSError, ValueError):
        return None


def complete(folder: TrialFolder, mark: CommitMark, config_hash: str, server: ServerIdentity | None = None) -> bool:
    """Whether a trial's commit mark is of this configuration and server, and its samples are all there or pruned."""
    try:
        whole = mark.pruned_at is not None or folder.samples.stat().st_size == mark.samples_bytes
    except OSError:
        return False
    return whole and mark.config_hash == config_hash and same_server(mark.server_identity, server)


def stands(folder: TrialFolder) -> bool:
    """Whether a trial's load.json can be believed: it is whole, and a measurement that it claims has its samples."""
    try:
        load = read(folder.load, LoadRecord)
    except ValueError:
        return False
    if load.category == NOT_TRIED:
        return False
    return not load.ok or samples_complete(folder, str(load.config_hash))


def search_ended(folder: TrialFolder) -> bool:
    """Whether a trial is a search that came to its end, with a result or without one; not one that broke off."""
    try:
        return read_json(folder.search)["outcome"] is not None
    except (OSError, ValueError, KeyError):
        return False


def put_aside(folder: TrialFolder, *, probes: bool = False) -> Path | None:
    """Keep everything that an attempt left under `attempts/N`, so that the trial is measured again; return where.

    The trial's log goes on. Probes of a search that has not come to its end stay, unless `probes`: it goes on with
    them. The commit mark goes first: an interrupted move leaves a trial that is not measured.
    """
    stays = {folder.attempts, folder.log, folder.planned}
    if not probes and not search_ended(folder):
        stays |= {folder.search, folder.probes}
    kept = [path for path in folder.root.glob("[!.]*") if path not in stays]
    if all(path == folder.config for path in kept):
        return None
    target = folder.attempts / str(1 + max(map(_number, folder.attempts.glob("*")), default=0))
    target.mkdir(parents=True)
    for path in sorted(kept, key=lambda path: path not in (folder.record, folder.load)):
        path.rename(target / path.name)
    return target


def _number(attempt: Path) -> int:
    return int(attempt.name) if attempt.name.isdigit() else 0


def record_of(
    bench: Bench,
    trial: Trial,
    outcome: LoadOutcome | None,
    failure: tuple[str, str] | None,
    tail: Sequence[str] = (),
) -> LoadRecord:
    """Return the record of a load, without the facts that its samples give. `failure` is category and reason."""
    category, reason = failure or (None, None)
    record = LoadRecord(
        schema_version=SCHEMA_VERSION,
        scenario=bench.scenario,
        trial=trial.id,
        trial_id=trial.trial_id,
        config_hash=trial.config_hash,
        server_identity=served_by(bench).brief(),
        status="failed" if failure else "ok",
        category=category,
        reason=None if reason is None else redacted_text(reason),
        log_tail=tuple(redacted(list(tail))),
        finished_at=provenance.now(),
        node=node(),
        warmup_s=warmup_of(trial.settings),
        duration_s=duration_of(trial.settings),
        in_client=bench.service.server is None,
        client=ClientRecord(workers=bench.service.workers, processes=0),
        scheduled=0,
        sent=0,
        completed=0,
    )
    return record if outcome is None else counted_load(record, outcome)


def counted_load(record: LoadRecord, outcome: LoadOutcome) -> LoadRecord:
    """Return a load's record with what its workers counted."""
    return replace(
        record,
        scheduled=outcome.scheduled,
        sent=outcome.sent,
        completed=outcome.completed,
        client=replace(record.client, processes=len(outcome.reports), cores=outcome.cores),
        workers=outcome.reports,
        quality=outcome.quality,
        unit=outcome.unit,
        kinds=outcome.kinds,
        epoch_unix_ns=outcome.epoch_unix_ns,
        over_saturated_at_s=outcome.over_saturated_at_s,
    )


def served_by(bench: Bench) -> ServerRecord:
    """Return the identity of the server that was started, as endpoint.json has it; without one, that of the plan."""
    endpoint = read_json(bench.folder.endpoint) if bench.folder.endpoint.exists() else {}
    known = endpoint.get("server_identity")
    return bench.server.record() if known is None else decode(known, ServerRecord)


def keep_samples(folder: TrialFolder, outcome: LoadOutcome, record: LoadRecord) -> LoadRecord:
    """Write samples.parquet, and chunks.parquet of streams. Return the record with its failures, and as failed where
    not one reply was good."""
    from seamark.load.workers.segments import gather_chunks, gather_samples

    names = ("config_hash", "trial", "unit", "kinds", "epoch_unix_ns", "schema_version")
    written = gather_samples(
        outcome.segments, folder.samples, {name: encode(getattr(record, name)) for name in names}
    )
    folder.chunks.unlink(missing_ok=True)
    record = replace(
        record,
        chunks=gather_chunks(outcome.chunks, folder.chunks) if outcome.chunks else None,
        failures={name: count for name, count in written.failures.items() if count},
        rows=written.rows,
        samples_bytes=folder.samples.stat().st_size,
    )
    if outcome.client_csv.exists():
        shutil.copyfile(outcome.client_csv, folder.client_telemetry)
    if not record.ok or written.rows != sum(record.failures.values()):
        return record
    worst = max(record.failures, key=record.failures.__getitem__, default="none")
    return replace(
        record,
        status="failed",
        category="all_requests_failed",
        reason=f"none of {counted(written.rows, 'request')} succeeded; most failed with '{worst}'",
        log_tail=tuple(redacted(list(outcome.log_tail))),
    )


def write_config(folder: TrialFolder, trial: Trial, bench: Bench) -> None:
    """Write effective_config.yaml: everything that this trial is, defaults included, secrets not."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "scenario": bench.scenario,
        "site": bench.site.name,
        "trial": redacted(json.loads(json.dumps(asdict(trial)))),
        "deployment": redacted(json.loads(json.dumps(asdict(bench.deployment)))),
    }
    paths.write_text(folder.config, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))


PLACE = tuple(each.name for each in fields(WorkerPlace))


def write_meta(
    bench: Bench,
    trial: Trial,
    folder: TrialFolder,
    before: provenance.Nodes,
    workers: Sequence[WorkerPlace] = (),
) -> None:
    """Write meta.json: on what and with what this trial was measured. `workers` say where the load's workers ran."""
    seen = provenance.survey(_paths(bench, folder), whole=True)
    plan = bench.study.plan_of(bench.scenario)
    endpoint = read_json(bench.folder.endpoint) if bench.folder.endpoint.exists() else {}
    slurm, around = batch_job(), container_around_us()
    software = provenance.software(bench.study.root, bench.lock)
    paths.write_json(
        folder.meta,
        {
            "schema_version": SCHEMA_VERSION,
            "trial_id": trial.trial_id,
            "timestamp": provenance.now(),
            "git_commit": software["git_commit"],
            "host": node(),
            "partition": plan.partition,
            "slurm_job_id": (slurm or {}).get("slurm_job_id"),
            "container_digest": (endpoint.get("image") or {}).get("digest"),
            "container": endpoint.get("image"),
            "client_container": facts_of_file(Path(around)) if around else endpoint.get("client_image"),
            "seed": trial.seed,
            "block": trial.block,
            "position": trial.position,
            "node": node(),
            "placement": bench.site.placement,
            "runtime": bench.site.runtime,
            "server_identity": encode(served_by(bench)),
            "service_version": bench.service.version,
            "licence": bench.service.licence,
            "slurm": slurm,
            "software": software,
            "machine": seen.here["machine"],
            "pinning": endpoint.get("pinning"),
            "shards": [{name: getattr(worker, name) for name in PLACE} for worker in workers],
            "before": before.here["moment"],
            "after": seen.here["moment"],
            "nodes": provenance.after(before, seen),
            "nodes_unknown": seen.reason,
        },
    )


def _paths(bench: Bench, folder: TrialFolder) -> dict[str, Path]:
    """Return the paths that a trial uses, by their role."""
    endpoint = read_json(bench.folder.endpoint) if bench.folder.endpoint.exists() else {}
    scratch = expanded(bench.site.paths.scratch, bench.study.root)
    paths = {"results": folder.root, "scratch": scratch, "data": Path(endpoint.get("data") or scratch)}
    image = (endpoint.get("image") or {}).get("path")
    return paths | ({"container": Path(image)} if image else {})
