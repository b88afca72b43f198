"""Records of servers: endpoint.json, deployment.json, the image that a server ran in, its Python environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seamark.model.results.gateway_ceiling import GatewayCeiling
from seamark.model.results.values import OPTIONAL, Count, Moment, Number, Word
from seamark.model.server_identity import ServerRecord

Facts = Mapping[str, Any]
"""Facts of a driver in free form, for display; no code depends on their fields."""


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """The image that a server or a load ran in. `digest` is that of the registry or of the build's inputs, else of
    the file."""

    name: Word = None
    source: Word = None
    digest: Word = None
    sha256: Word = None
    size_bytes: Count = None
    path: Word = None


@dataclass(frozen=True, kw_only=True)
class ImageRecord:
    """The file `NAME.sif.json` beside an image. `digest` is that of the registry's manifest or of the build's inputs,
    None for a file of the user; `sha256` is that of the file. One that Seamark made says when, where and by which
    `engine`. `flags` is `known` once the flags of the recipe `flags_of` were checked in it."""

    schema_version: int = 1
    name: Word = None
    source: Word = None
    digest: Word = None
    licence: Word = None
    sha256: Word = None
    size_bytes: Count = None
    made_at: Moment = field(default=None, metadata=OPTIONAL)
    made_on: Word = field(default=None, metadata=OPTIONAL)
    machine: Word = field(default=None, metadata=OPTIONAL)
    engine: Word = field(default=None, metadata=OPTIONAL)
    base: Word = field(default=None, metadata=OPTIONAL)
    flags: Word = field(default=None, metadata=OPTIONAL)
    flags_of: tuple[str, ...] | None = field(default=None, metadata=OPTIONAL)

    def facts(self, path: str) -> ImageFacts:
        """Return the facts that results keep of the image at `path`."""
        digest = self.digest or (f"sha256:{self.sha256}" if self.sha256 else None)
        return ImageFacts(
            name=self.name,
            source=self.source,
            digest=digest,
            sha256=self.sha256,
            size_bytes=self.size_bytes,
            path=path,
        )


@dataclass(frozen=True, kw_only=True)
class PartRecord:
    """One process of a server besides its main one, with its own ports."""

    name: Word = None
    node: Word = None
    host: Word = None
    ports: Mapping[str, int] = field(default_factory=dict)
    pid: Count = None
    command: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class PinningRecord:
    """CPUs that client and server were kept to, () for all, and why they were or were not."""

    client: tuple[int, ...] = ()
    server: tuple[int, ...] = ()
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class ServerRun:
    """Facts of a server that endpoint.json and deployment.json share. `status` is ok or failed; of a failed one
    `category` and `reason` say why, and `log_tail` has the last lines of its log. `load_nodes` and `server_nodes` are
    names of a deployment on several nodes. `niceness` and `threads` (limit of numerical libraries in each process)
    are those of a server beside other services, None otherwise. `idle_unix_s`: begin and end of the idle period
    before the first load. `gateway` is what was measured of one in front of replicas."""

    schema_version: int = 1
    status: str = ""
    category: Word = None
    reason: Word = None
    deployment: Word = None
    scenario: Word = None
    service: Word = None
    runtime: Word = None
    image: ImageFacts | None = None
    part_images: Mapping[str, ImageFacts] = field(default_factory=dict)
    client_image: ImageFacts | None = None
    host: Word = None
    ports: Mapping[str, int] = field(default_factory=dict)
    data: Word = None
    environment: Word = None
    driver: Word = None
    workers: Word = None
    server_pid: Count = None
    keeper_pid: Count = None
    node: Word = None
    slurm_job_id: Word = None
    load_nodes: tuple[str, ...] | None = None
    server_nodes: tuple[str, ...] | None = None
    parts: tuple[PartRecord, ...] = ()
    metrics_url: Word = None
    command: tuple[str, ...] | None = None
    gpus: Count = None
    pinning: PinningRecord | None = None
    niceness: Count = field(default=None, metadata=OPTIONAL)
    threads: Count = field(default=None, metadata=OPTIONAL)
    facts: Facts = field(default_factory=dict)
    log_tail: tuple[str, ...] = ()
    idle_unix_s: tuple[float, float] | None = None
    started_at: Moment = None
    server_identity: ServerRecord | None = None
    gateway: GatewayCeiling | None = field(default=None, metadata=OPTIONAL)

    @property
    def ok(self) -> bool:
        """Whether the server answered."""
        return self.status == "ok"


@dataclass(frozen=True, kw_only=True)
class Endpoint(ServerRun):
    """A server that answers its health probe, or failed to. `phases` are the seconds that each part of its start
    took."""

    phases: Mapping[str, Number] = field(default_factory=dict)
    ready_at: Moment = None


@dataclass(frozen=True, kw_only=True)
class ServerEnd:
    """How a server ended. `why` is the cause: crash, stop, lease, teardown and so on; `category` is that of a server
    that never answered. Only the exit record has `at`; deployment.json has it as `ended_at`."""

    why: Word = None
    returncode: Count = None
    category: Word = field(default=None, metadata=OPTIONAL)
    reason: Word = None
    log_tail: tuple[str, ...] = ()
    at: Moment = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class TrialCounts:
    """Trials of a deployment, and how many of them ended well."""

    n: int
    ok: int


@dataclass(frozen=True, kw_only=True)
class DeploymentRecord(ServerRun):
    """The life of a server that has ended. `kv_tokens` are the tokens whose keys and values fit into its memory, as a
    server of a language model counted them at its start."""

    ended: ServerEnd | None = None
    ended_at: Moment = None
    time_to_service_s: Mapping[str, Number] = field(default_factory=dict)
    uptime_s: Number = None
    gpu_hours: Number = None
    trials: TrialCounts | None = None
    kv_tokens: Count = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class LockHolder:
    """The process that holds a lock of a node."""

    pid: Count = None
    user: Word = None
    study: Word = None

    def __str__(self) -> str:
        if self.pid is None:
            return "a process that has not said who it is"
        return f"process {self.pid} of {self.user}, in the study {self.study}"


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """waiting.json: who holds the lock that a load of the deployment waits for."""

    schema_version: int = 1
    holder: LockHolder = LockHolder()


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """warmup.json: how many of a server's first requests were answered, or why none were."""

    schema_version: int = 1
    status: str
    requests: int = 0
    reason: Word = field(default=None, metadata=OPTIONAL)
    log_tail: tuple[str, ...] | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The environment of a service, once created: .environments/NAME-DIGEST.json."""

    schema_version: int = 1
    name: str = ""
    lock_digest: str = ""
    root: str
