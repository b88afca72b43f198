"""One load as data: what the parent tells its workers. Read and written as JSON; starts nothing."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from seamark.load.driver import Target
from seamark.model.load_profile import load_length_of
from seamark.model.service import Value

PROCESSES_A_CORE = 2


def seed_for(seed: int, purpose: str) -> int:
    """Return the seed of one purpose (arrivals, bodies, quality), so that no two purposes share a sequence."""
    return int.from_bytes(hashlib.sha256(f"{purpose} {seed}".encode()).digest()[:4], "big")


@dataclass(frozen=True, kw_only=True)
class LoadJob:
    """The load of one trial.

    `driver` is `module:Class` (or a function): called with a Target it gives a driver, a Wire one if that has
    `encode`. `workers` says how the recipe wants it spread: only `processes` takes more of them than `shards`.
    `settings` holds every setting of the trial, the service's and those of LoadProfile. `bodies` is how many
    different requests are made before the clock starts; a driver with an attribute `body_count` says better.
    `latency_limit_s` is the longest that a reply may take by the trial's objectives, None where they do not say.
    `cores` are the CPUs that workers on this machine are kept to, () for all there are. With `judged_in_time` the
    answers are judged only until the last time-out of a request can be over, so that the load ends when it says.
    """

    driver: str
    workers: Literal["wire", "threads", "processes"]
    settings: Mapping[str, Value]
    seed: int
    data: Path
    host: str = "127.0.0.1"
    ports: Mapping[str, int] = field(default_factory=dict)
    bodies: int = 8192
    telemetry_interval_s: float = 0.5
    ready_timeout_s: float = 120.0
    latency_limit_s: float | None = None
    cores: tuple[int, ...] = ()
    judged_in_time: bool = False

    @property
    def concurrency(self) -> int:
        return int(self._number("concurrency", 1))

    @property
    def until_s(self) -> float:
        """When the last request may be sent: warm-up and duration."""
        return load_length_of(self.settings)

    @property
    def timeout_s(self) -> float:
        return self._number("timeout_s", 30.0)

    @property
    def think_time_s(self) -> float:
        return self._number("think_time_s", 0.0)

    @property
    def turns(self) -> int:
        """Requests of a session; 1 where requests have nothing to do with each other."""
        return int(self._number("turns", 1))

    @property
    def requests(self) -> int | None:
        value = self.settings.get("requests")
        return None if value is None else int(value)

    @property
    def arrivals(self) -> int | None:
        """How many arrivals an open loop is limited to: starts of sessions."""
        return None if self.requests is None else -(-self.requests // self.turns)

    @property
    def processes(self) -> int:
        """Worker processes: `shards`, never more than can be busy; at least two a core where the driver asks for
        processes because it holds the interpreter's lock: while one waits for the server another sends."""
        many = PROCESSES_A_CORE * (len(self.cores) or os.cpu_count() or 1) if self.workers == "processes" else 1
        return self.at_least(many)

    def at_least(self, many: int = 1) -> int:
        """Return how many workers the load has where it takes `many` or more: `shards`, never more than can be
        busy."""
        wanted = max(many, int(self._number("shards", 1)))
        return max(1, min(wanted, self.concurrency, self.requests or self.concurrency))

    def target(self, worker: int = 0, workers: int = 1) -> Target:
        """Return what the driver of one worker is made from."""
        return Target(
            settings=self.settings,
            data=self.data,
            host=self.host,
            ports=self.ports,
            worker=worker,
            workers=workers,
        )

    def _number(self, name: str, otherwise: float) -> float:
        value = self.settings.get(name)
        return otherwise if value is None else float(value)


@dataclass(frozen=True, kw_only=True)
class Share:
    """Worker `worker` of `workers` in a load, and the files it writes."""

    job: LoadJob
    worker: int
    workers: int
    segment: Path
    report: Path
    parent_pid: int

    @property
    def chunks(self) -> Path:
        """The segment of a streamed reply's chunks, beside that of the samples."""
        return self.segment.with_suffix(".chunks")

    @property
    def cores(self) -> tuple[int, ...]:
        """The CPUs this worker is kept to: one of its own for an event loop, where there are enough; () for all."""
        cores = self.job.cores
        if self.job.workers == "wire" and self.workers <= len(cores):
            return cores[self.worker : self.worker + 1]
        return cores

    @property
    def concurrency(self) -> int:
        """This worker's part of the users, connections or threads."""
        whole, rest = divmod(self.job.concurrency, self.workers)
        return whole + (self.worker < rest)

    @property
    def requests(self) -> int | None:
        """How many requests this worker may send, or None without a limit."""
        total = self.job.requests
        return None if total is None else max(0, -(-(total - self.worker) // self.workers))

    def to_json(self) -> dict[str, Any]:
        """Return the share as a JSON document."""
        document = asdict(self)
        document["job"]["data"] = str(self.job.data)
        return document | {"segment": str(self.segment), "report": str(self.report), "schema_version": 1}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> "Share":
        """Return the share that `to_json` described."""
        fields = {key: value for key, value in document.items() if key != "schema_version"}
        job = LoadJob(**fields.pop("job"))
        fields["segment"], fields["report"] = Path(fields["segment"]), Path(fields["report"])
        return Share(job=replace(job, data=Path(job.data), cores=tuple(job.cores)), **fields)
