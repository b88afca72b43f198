"""load.json and samples.json: how a load ended, the counters of its workers, and its samples."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime

from seamark.model.origin import MEASURED, HasOrigin, Origin
from seamark.model.results.gateway_ceiling import GatewayCeiling
from seamark.model.results.values import OPTIONAL, Count, Moment, Number, Seconds, UnixNs, Word
from seamark.model.server_identity import ServerRecord


@dataclass(frozen=True, kw_only=True)
class LagFigures:
    """Lateness in ns: of a worker's loop, or of requests against their schedule."""

    p50: Number = None
    p99: Number = None
    max: Number = None


@dataclass(frozen=True, kw_only=True)
class ConnectionFigures:
    """Connections of one worker, local ports, and the server's listen queue, as far as it is on the same node."""

    connections: int
    ports_free: Count
    churn_per_s_limit: Number
    connected_anew: int
    connected_anew_per_s: Number
    listen_backlog: Count
    listen_overflows: Count
    ports: Mapping[str, int | bool] | None = None


@dataclass(frozen=True, kw_only=True)
class WorkerPlace:
    """Where a worker ran. `offset_ns` is its clock minus that of the coordinator, wrong by `offset_error_ns` at most;
    `offset_drift_ns` is the change of the offset until the end of load. None: not known. `shared`: the worker wrote
    into the coordinator's folder."""

    worker: Count = None
    carrier: str = "local"
    host: Word = None
    shared: bool | None = None
    offset_ns: Number = None
    offset_error_ns: Number = None
    offset_drift_ns: Number = None


@dataclass(frozen=True, kw_only=True)
class ErrorsSeen:
    """Errors of one code of the service's own, over the whole load: category, number, the words of the first."""

    category: str
    count: int
    words: str


@dataclass(frozen=True, kw_only=True)
class WorkerReport(WorkerPlace):
    """Counters of one worker of a load. `ok` is false for one that failed, with a `reason`; of one that died most
    counters are None. `ran_out`: it ended at the limit of requests, or its arrivals did; `survivors` connections
    outlived the load; `written_off` threads hung in a call; `spin_s` is CPU time of precise waiting; `held_open_s`:
    streams were open for so long after their last content, together; `asked_units`: what good replies with counted
    units were to have of them, together, 0 where requests ask for none; `stalls_ns` are times from and until which
    its loop stood still; `errors` are those of the service by its own code.

    `ran_out_s` is when its requests, trace or items had run out, since the start of load: in a closed loop the first
    time that a user had nothing left to send, in an open loop the last send, of a program its end. None if they
    lasted until the end of the load, and in files of older versions. `began_ns`: see TaskRecorder.
    """

    pid: Count = None
    ok: bool = True
    reason: Word = None
    errno: Count = None
    wall_s: Seconds = None
    cpu_s: Seconds = None
    spin_s: Seconds = None
    held_open_s: Number = None
    max_rss_bytes: Number = None
    lag_ns: LagFigures | None = None
    loop_lag_ns: LagFigures | None = None
    stalls_ns: tuple[tuple[int, int], ...] = ()
    backlog_max: Count = None
    survivors: Count = None
    written_off: Count = None
    network: ConnectionFigures | None = None
    scheduled: Count = None
    ran_out: bool = False
    sent: Count = None
    completed: Count = None
    quality: Mapping[str, Number] | None = field(default=None, metadata=OPTIONAL)
    quality_error: Word = field(default=None, metadata=OPTIONAL)
    category: Word = field(default=None, metadata=OPTIONAL)
    ran_out_s: Seconds = field(default=None, metadata=OPTIONAL)
    asked_units: Count = field(default=None, metadata=OPTIONAL)
    began_ns: Count = field(default=None, metadata=OPTIONAL)
    errors: Mapping[str, ErrorsSeen] | None = field(default=None, metadata=OPTIONAL)

    @property
    def place(self) -> WorkerPlace:
        """Where the worker ran, without its counters."""
        return WorkerPlace(**{attribute.name: getattr(self, attribute.name) for attribute in fields(WorkerPlace)})


@dataclass(frozen=True, kw_only=True)
class PackageCounters:
    """Energy counters of the processors' packages that telemetry reads, or the reason for none."""

    counters: tuple[str, ...] = ()
    reason: Word = None


@dataclass(frozen=True, kw_only=True)
class NodeEnergy:
    """Energy of the node over the whole load, as Slurm counts it for `step`, or the reason for none."""

    value_j: Number = None
    window_s: Seconds = None
    step: Word = None
    reason: Word = None


@dataclass(frozen=True, kw_only=True)
class EnergyRecord:
    """Energy facts besides telemetry. `idle_w` is the idle power by scope, gpu or package."""

    package: PackageCounters = PackageCounters()
    node: NodeEnergy = NodeEnergy()
    idle_w: Mapping[str, Number] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ClientRecord:
    """The client of a load: kind and number of its workers, and the CPUs that they were kept to, () for all."""

    workers: Word = None
    processes: Count = None
    cores: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProbeRecord:
    """The probe of a search that gave the trial its samples."""

    folder: Word = None
    level: float
    times: int = 1
    config_hash: str


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """The result of a search. `found`: the largest level that met the objectives by all of its probes; `confirmed`:
    it is decided to pass, by at least 1 + confirm probes. `bracket`: the largest level decided to pass and the
    smallest decided to fail, at `confidence`; None where there is none."""

    setting: Word = None
    outcome: Word = None
    found: Number = None
    confirmed: bool = False
    bracket: tuple[Number, Number] = (None, None)
    confidence: Number = None
    spent_s: Number = None
    probes: Count = None


@dataclass(frozen=True, kw_only=True)
class LoadSession:
    """One session of a finite load: its start, its place on the load's time axis, its length, and the items that it
    has done. On that axis sessions follow each other without a gap: time in which none ran is not there."""

    epoch_unix_ns: UnixNs
    offset_s: float
    length_s: float
    items: int


@dataclass(frozen=True, kw_only=True)
class DeviceRecord:
    """The device of a lane: its kind, `gpu` or `cpu`, its id, and the lane's slot on it. `shared`: other lanes were
    on it during the load."""

    kind: str
    id: str
    slot: int
    shared: bool = False


@dataclass(frozen=True, kw_only=True)
class Departure:
    """The first process of a party that did not keep to its place in one way: `what` is cores, niceness, threads,
    gpus or mps, `asked` what the place gives, `seen` what kernel, NVML or MPS daemon says. `role`: it is of the
    server, of the load, one of another program of the machine, or of the party, none of which was seen there."""

    role: str
    what: str
    pid: int
    asked: str
    seen: str


@dataclass(frozen=True, kw_only=True)
class PlaceRecord:
    """The place of a party, () for all cores, and whether it was kept: its processes were compared with it `looks`
    times during the load. `all_threads` were given to the parties under load that have `all_cores` together; both are
    None for a placement that leaves the cores to all of them. `devices` are the UUIDs of its GPUs or MIG slices where
    gpu_sharing is stated."""

    server_cores: tuple[int, ...] = ()
    load_cores: tuple[int, ...] = ()
    threads: Count = None
    niceness: int = 0
    looks: int = 0
    departures: tuple[Departure, ...] = ()
    all_threads: Count = None
    all_cores: Count = None
    devices: tuple[str, ...] = field(default=(), metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Configuration and server of a record; None where they were not recorded."""

    config_hash: Word = None
    server_identity: ServerRecord | None = None


@dataclass(frozen=True, kw_only=True)
class Warmed:
    """What `caches: warm` sent before the load: each prefix once, and the seconds that it took."""

    requests: int
    took_s: float


@dataclass(frozen=True, kw_only=True)
class LoadRecord(HasOrigin):
    """How the load of a trial ended. `status` is ok, failed or timeout. Of a `failed` load `category` and `reason`
    say why; `remedy` is that of a category of the recipe's own. `over_saturated_at_s` after its start the load was
    ended because the server fell behind for good. `kind` is that of the load, `origin` is `simulated` for one on a
    virtual clock. A finite one has a number of `items` and `sessions`: more than one if it was resumed. `device` is
    that of the lane, None of a load that had the node to itself. A trial with `parties` has the load.json of each in
    a folder of its own. There `beside` names the other parties under load, `used` those whose servers the loads
    use, `moved` those that did not keep to their places, `window_s` is the time in seconds from which and until
    which all of them were sending, after their warm-ups, and `ended_early` names the one that ended before its
    time, and so ended the window; `silent` are those of the trial without a good reply in it, and `place` says
    where a placement puts the party. `server_start` is the start of the server that it was on, text that two
    loads share if they had the same; None where it was not recorded, and of a server that runs already.
    `others_before` is the ratio of this machine's processors that others used just before it; None where
    telemetry tells what they used during it. `errors` are those of all workers by the service's own code, warm-up
    included; `failures` have their categories. `gateway` is what was measured of one in front of replicas."""

    schema_version: int = 1
    scenario: Word = None
    trial: Word = None
    trial_id: Word = None
    config_hash: Word = None
    server_identity: ServerRecord | None = None
    status: str
    category: Word = None
    reason: Word = None
    log_tail: tuple[str, ...] = ()
    started_at: Moment = None
    finished_at: Moment = None
    node: Word = None
    warmup_s: Seconds = None
    duration_s: Seconds = None
    republished: bool = False
    in_client: bool = False
    quality: Mapping[str, Number] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    client: ClientRecord = ClientRecord()
    workers: tuple[WorkerReport, ...] = ()
    scheduled: Count = None
    sent: Count = None
    completed: Count = None
    unit: Word = None
    kinds: tuple[str, ...] = ()
    epoch_unix_ns: UnixNs = None
    over_saturated_at_s: Seconds = None
    attempt: Count = None
    server_restarted: Word = None
    energy: EnergyRecord = EnergyRecord()
    chunks: Count = field(default=None, metadata=OPTIONAL)
    replies: Count = field(default=None, metadata=OPTIONAL)
    events: Count = field(default=None, metadata=OPTIONAL)
    rows: Count = field(default=None, metadata=OPTIONAL)
    samples_bytes: Count = field(default=None, metadata=OPTIONAL)
    executions_bytes: Count = field(default=None, metadata=OPTIONAL)
    pruned_at: Moment = field(default=None, metadata=OPTIONAL)
    kind: str = field(default="requests", metadata=OPTIONAL)
    origin: Origin = field(default=MEASURED, metadata=OPTIONAL)
    items: Count = field(default=None, metadata=OPTIONAL)
    sessions: tuple[LoadSession, ...] = field(default=(), metadata=OPTIONAL)
    search: SearchOutcome | None = field(default=None, metadata=OPTIONAL)
    probe: ProbeRecord | None = field(default=None, metadata=OPTIONAL)
    device: DeviceRecord | None = field(default=None, metadata=OPTIONAL)
    parties: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    beside: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    used: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    moved: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    window_s: tuple[float, float] | None = field(default=None, metadata=OPTIONAL)
    ended_early: Word = field(default=None, metadata=OPTIONAL)
    silent: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    place: PlaceRecord | None = field(default=None, metadata=OPTIONAL)
    remedy: Word = field(default=None, metadata=OPTIONAL)
    server_start: Word = field(default=None, metadata=OPTIONAL)
    others_before: Number = field(default=None, metadata=OPTIONAL)
    errors: Mapping[str, ErrorsSeen] | None = field(default=None, metadata=OPTIONAL)
    warmed: Warmed | None = field(default=None, metadata=OPTIONAL)
    gateway: GatewayCeiling | None = field(default=None, metadata=OPTIONAL)

    @property
    def ok(self) -> bool:
        """Whether the load succeeded."""
        return self.status == "ok"

    @property
    def span_s(self) -> tuple[float, float] | None:
        """When the load began and ended, in seconds since 1970; None where it is not known."""
        if self.started_at is None or self.finished_at is None:
            return None
        began, ended = (datetime.fromisoformat(moment).timestamp() for moment in (self.started_at, self.finished_at))
        return began, ended

    @property
    def worst_failure(self) -> str | None:
        """The way in which most requests failed, None where none did."""
        return max(self.failures, key=self.failures.__getitem__, default=None)

    def most_errors(self, category: str | None = None) -> str | None:
        """Return the code that most errors of the service have, of a category if one is given, with an example of its
        words."""
        found = {code: seen for code, seen in (self.errors or {}).items() if category in (None, seen.category)}
        code = max(found, key=lambda code: found[code].count, default=None)
        return code and f"'{': '.join(filter(None, (code, found[code].words)))}'"


@dataclass(frozen=True, kw_only=True)
class SamplesRecord(LoadRecord):
    """samples.json: commit record of a successful load, written after its samples. `pruned_at` is when these were
    removed on purpose: the trial stays measured."""

    config_hash: str
    samples_bytes: int
