"""One standing server as its files and Slurm show it: where it is, how it is, how it is ended."""

import contextlib
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamark.dispatch.slurm import commands
from seamark.errors import SiteError, UserError, did_you_mean
from seamark.services.persistent.telemetry_summary import write_watched
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.control_files import read_control_file
from seamark.storage.paths import DeploymentFolder, read_json, write_json

STANDING = "standing"
"""The folder of standing servers below the results, and the scenario that each of them is."""

STOP_JOB_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Instance:
    """The files of one standing server: those of a deployment, and what was asked."""

    root: Path

    @property
    def id(self) -> str:
        return self.root.name

    @property
    def folder(self) -> DeploymentFolder:
        """The files that its supervisor writes."""
        return DeploymentFolder(root=self.root)

    @property
    def request(self) -> Path:
        return self.root / "standing.json"

    @property
    def scenario(self) -> Path:
        """What was asked, as a scenario: every setting is checked as those of a scenario are."""
        return self.root / "scenario.yaml"

    @property
    def logs(self) -> Path:
        """Output of its Slurm jobs, `%x_%j.out` and `.err`."""
        return self.root / "logs"

    @property
    def watched(self) -> Path:
        """What the monitors saw, summed up: least, mean, greatest and percentiles of each series."""
        return self.root / "summary.json"

    @property
    def job(self) -> str | None:
        """The number of its Slurm job, None on a machine without one."""
        document = read_control_file(self.request) or {}
        return document.get("job")

    def note(self, **facts: Any) -> None:
        """Add facts to what was asked, such as the number of its job."""
        write_json(self.request, read_json(self.request) | facts)

    def endpoint(self) -> Mapping[str, Any] | None:
        """Return its endpoint as the supervisor wrote it, None before that and after its end."""
        return read_control_file(self.folder.endpoint)

    def living(self) -> bool:
        """Return whether its server runs, or its job waits or runs."""
        return servers.alive(self.folder) or self.in_queue() is not None

    def in_queue(self) -> commands.Job | None:
        """Return its Slurm job while it waits or runs."""
        if self.job is None or self.folder.record.exists():
            return None
        with contextlib.suppress(SiteError):
            return commands.job(self.job)
        return None

    def state(self) -> tuple[str, str]:
        """Return how it is in a word and why: pending, starting, running, failed or ended."""
        endpoint = self.endpoint() or {}
        if endpoint.get("status") == "ok" and servers.alive(self.folder):
            return "running", ""
        record = read_control_file(self.folder.record)
        if record is not None:
            return ("failed" if record.get("status") == "failed" else "ended"), _why(record)
        job = self.in_queue()
        if job is not None and job.state == "PENDING":
            return "pending", job.why
        if endpoint.get("status") == "failed":
            return "failed", str(endpoint.get("reason"))
        if job is not None or servers.alive(self.folder):
            return "starting", ""
        end = servers.why_ended(self.folder)
        return "ended", _why({"ended": end}) if end else "no trace of it: its job never came to run."

    def stop(self, why: str = "stop") -> bool:
        """End it, its job and all its processes. False when something of it is still there after a minute."""
        job = self.in_queue()
        gone = servers.stop(self.folder, why)
        if job is not None:
            gone = _end_job(job.number, patient=self.folder.runtime.exists()) and gone
        self.settle()
        return gone

    def settle(self) -> None:
        """Once it has ended, write what it was and what the monitors saw, and take its endpoint away."""
        if self.request.exists() and not self.living() and not self.folder.record.exists():
            self.close()

    def close(self) -> None:
        """Write its record and the summary of what was watched; nothing of its server lives any more."""
        servers.teardown(self.folder, [])
        write_watched(self.folder.telemetry, self.watched)
        self.folder.endpoint.unlink(missing_ok=True)

    def put_aside(self) -> None:
        """Keep the files of an ended server under another name, so that its id is free."""
        self.settle()
        number = 1
        while (target := self.root.with_name(f".{self.id}.{number}")).exists():
            number += 1
        self.root.rename(target)

    def forget(self) -> None:
        """Remove its folder, of a server that was never started."""
        shutil.rmtree(self.root, ignore_errors=True)


def instances(results: Path) -> Iterator[Instance]:
    """Give every standing server of these results, ended ones too, in the order of their names."""
    for request in sorted((results / STANDING).glob("*/standing.json")):
        if not request.parent.name.startswith("."):
            yield Instance(root=request.parent)


def find_instance(results: Path, name: str) -> Instance:
    """Return the standing server of that id. UserError names the known ones."""
    found = {each.id: each for each in instances(results)}
    name = name.removeprefix(f"{STANDING}/")
    if name not in found:
        raise UserError(
            f"{name}: no standing server of that id. Known: {', '.join(found) or 'none'}.{did_you_mean(name, found)}"
            " `bench servers ps --all` lists all."
        )
    return found[name]


def _end_job(number: str, *, patient: bool) -> bool:
    """Wait until a job has ended: one whose server was stopped ends by itself, any other is cancelled."""
    began_s, cancelled = time.monotonic(), False
    while (job := commands.job(number)) is not None:
        waited_s = time.monotonic() - began_s
        if waited_s > STOP_JOB_S:
            return False
        if not cancelled and (job.state == "PENDING" or not patient or waited_s > STOP_JOB_S / 6):
            commands.cancel([job.number])
            cancelled = True
        time.sleep(0.3)
    return True


def _why(record: Mapping[str, Any]) -> str:
    if record.get("status") == "failed":
        return str(record.get("reason"))
    ended = record.get("ended") or {}
    return str(ended.get("reason") or ended.get("why") or "")
