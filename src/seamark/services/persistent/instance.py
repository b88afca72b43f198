"""One persistent server: its files, its state from them and from its batch job, and how to end it."""

import contextlib
import math
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.parquet as pq

from seamark.analysis.metrics.telemetry import summarise_telemetry
from seamark.config.secrets import secrets_of
from seamark.dispatch.dispatcher import DISPATCHERS, Dispatcher, job_of
from seamark.dispatch.job import Job
from seamark.errors import SiteError, UserError, did_you_mean
from seamark.model.results.deployment_record import DeploymentRecord, Endpoint, ServerEnd
from seamark.model.results.values import OPTIONAL
from seamark.model.service import Value
from seamark.model.trial import SCHEMA_VERSION
from seamark.services.supervisor import deployment as servers
from seamark.storage.documents import read, read_or_none, write, write_json
from seamark.storage.paths import DeploymentFolder
from seamark.telemetry.cut import cut

STANDING = "standing"
"""Folder of persistent servers in the results, first part of their addresses, and name of their scenario.

The name is that of older versions, whose servers must still be found.
"""

STOP_JOB_S = 60.0


@dataclass(frozen=True, kw_only=True)
class ServerRequest:
    """standing.json: a server of one service for `time_s` on a site, and its batch job once it has one. None stands
    for the default of the site or of its batch system."""

    schema_version: int = 1
    id: str = ""
    service: str
    site: str
    settings: Mapping[str, Value]
    time_s: float
    nodes: int = 1
    gpus: int = 0
    cpus_per_task: int = 1
    mem_gb: int = 1
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    container: str | None = None
    job: str | None = field(default=None, metadata=OPTIONAL)
    dispatcher: str | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class Instance:
    """Files of one persistent server: those of a deployment, and its request."""

    root: Path

    @property
    def id(self) -> str:
        return self.root.name

    @property
    def folder(self) -> DeploymentFolder:
        """Files written by its supervisor."""
        return DeploymentFolder(root=self.root)

    @property
    def request(self) -> Path:
        return self.root / "standing.json"

    @property
    def scenario(self) -> Path:
        """The request as a scenario, so that settings are validated like those of any scenario."""
        return self.root / "scenario.yaml"

    @property
    def logs(self) -> Path:
        """Output of its batch jobs, `%x_%j.out` and `.err`."""
        return self.root / "logs"

    @property
    def telemetry_summary(self) -> Path:
        """Minimum, mean, maximum and percentiles of each telemetry series."""
        return self.root / "summary.json"

    @property
    def job(self) -> str | None:
        """The id of its batch job, None where it runs without one."""
        request = self.stored_request()
        return request.job if request else None

    @property
    def dispatcher(self) -> Dispatcher:
        """The dispatcher of its batch job; Slurm's for a server of an older version."""
        request = self.stored_request()
        return DISPATCHERS[(request and request.dispatcher) or "slurm"]

    def stored_request(self) -> ServerRequest | None:
        """Return the request that the server was started for, None when its file is missing or damaged."""
        return read_or_none(self.request, ServerRequest)

    def note_job(self, job: str, dispatcher: str) -> None:
        """Add its batch job to the request."""
        write(self.request, replace(read(self.request, ServerRequest), job=job, dispatcher=dispatcher))

    def endpoint(self) -> Endpoint | None:
        """Return its endpoint.json, None before the start and after the end."""
        return read_or_none(self.folder.endpoint, Endpoint)

    def is_live(self) -> bool:
        """Return whether its server runs, or its job is pending or running."""
        return servers.alive(self.folder) or self.queued_job() is not None

    def queued_job(self) -> Job | None:
        """Return its batch job while that is pending or running."""
        if self.job is None or self.folder.record.exists():
            return None
        with contextlib.suppress(SiteError):
            return job_of(self.dispatcher, self.job)
        return None

    def state(self) -> tuple[str, str]:
        """Return its state and the reason: pending, starting, running, failed or ended."""
        endpoint = self.endpoint()
        if endpoint and endpoint.ok and servers.alive(self.folder):
            return "running", ""
        record = read_or_none(self.folder.record, DeploymentRecord)
        if record is not None and record.status == "failed":
            return "failed", str(record.reason)
        if record is not None:
            return "ended", _reason(record.ended)
        job = self.queued_job()
        if job is not None and job.state == "PENDING":
            return "pending", job.reason
        if endpoint and endpoint.status == "failed":
            return "failed", str(endpoint.reason)
        if job is not None or servers.alive(self.folder):
            return "starting", ""
        end = servers.why_ended(self.folder)
        return "ended", _reason(end) if end else "its job ended before the server started."

    def stop(self, why: str = "stop") -> bool:
        """End its server, its job and all its processes. Returns False if one remains after a minute."""
        job = self.queued_job()
        gone = servers.stop(self.folder, why)
        if job is not None:
            gone = _end_job(self.dispatcher, job.id, patient=self.folder.runtime.exists()) and gone
        self.settle()
        return gone

    def settle(self) -> None:
        """Close it once it has ended."""
        if self.request.exists() and not self.is_live() and not self.folder.record.exists():
            self.close()

    def close(self) -> None:
        """Write its record and its telemetry summary, and remove its endpoint, after all its processes have ended."""
        servers.teardown(self.folder, [], secrets=secrets_of())
        write_telemetry_summary(self.folder.telemetry, self.telemetry_summary)
        self.folder.endpoint.unlink(missing_ok=True)

    def put_aside(self) -> None:
        """Move the files of an ended server to another name, so that its id is free."""
        self.settle()
        number = 1
        while (target := self.root.with_name(f".{self.id}.{number}")).exists():
            number += 1
        self.root.rename(target)

    def remove(self) -> None:
        """Remove the files of a server that was never started."""
        shutil.rmtree(self.root, ignore_errors=True)


def instances(results: Path) -> Iterator[Instance]:
    """Yield every persistent server of these results by name, ended ones too."""
    for request in sorted((results / STANDING).glob("*/standing.json")):
        if not request.parent.name.startswith("."):
            yield Instance(root=request.parent)


def find_instance(results: Path, name: str) -> Instance:
    """Return the persistent server of that id. Raises UserError with the existing names."""
    by_id = {instance.id: instance for instance in instances(results)}
    name = name.removeprefix(f"{STANDING}/")
    if name not in by_id:
        raise UserError(
            f"{name}: no persistent server of that id. Known: {', '.join(by_id) or 'none'}."
            f"{did_you_mean(name, by_id)} `bench servers ps --all` lists all."
        )
    return by_id[name]


def _end_job(dispatcher: Dispatcher, id: str, *, patient: bool) -> bool:
    """Wait until a job has ended; cancel it unless its server was stopped, which ends the job by itself."""
    began_s, cancelled = time.monotonic(), False
    while (job := job_of(dispatcher, id)) is not None:
        waited_s = time.monotonic() - began_s
        if waited_s > STOP_JOB_S:
            return False
        if not cancelled and (job.state == "PENDING" or not patient or waited_s > STOP_JOB_S / 6):
            dispatcher.cancel([id])
            cancelled = True
        time.sleep(0.3)
    return True


def _reason(end: ServerEnd | None) -> str:
    return "" if end is None else end.reason or end.why or ""


def write_telemetry_summary(telemetry: Path, summary: Path) -> None:
    """Write summary.json from telemetry.csv, over all its readings; one without series when there is no reading."""
    readings = cut([telemetry], 0.0, math.inf)  # at_s is seconds since 1970
    span = (readings["at_s"][0].as_py(), readings["at_s"][-1].as_py()) if readings.num_rows else None
    series = {}
    if span is not None:
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "telemetry.parquet"
            pq.write_table(readings, table)
            series = {
                f"{source}.{name}": {
                    figure: getattr(figures, figure) for figure in ("unit", "n", "min", "mean", "max", "p50", "p95")
                }
                for (source, name), figures in sorted(summarise_telemetry(table, *span).items())
            }
    write_json(
        summary,
        {
            "schema_version": SCHEMA_VERSION,
            "from_unix_s": span and span[0],
            "to_unix_s": span and span[1],
            "telemetry": series,
        },
    )
