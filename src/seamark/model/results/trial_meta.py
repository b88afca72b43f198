"""meta.json: the environment of a trial: nodes, software, image, batch job.

A value is None if the node does not report it. A value that differs between CPUs is text that begins with `mixed:`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seamark.model.results.deployment_record import ImageFacts, PinningRecord
from seamark.model.results.load_record import WorkerPlace
from seamark.model.results.values import OPTIONAL, Count, Moment, Number, Setting, Word
from seamark.model.server_identity import ServerRecord


@dataclass(frozen=True, kw_only=True)
class NumaNode:
    """One NUMA node: its CPUs as the kernel lists them, and its memory."""

    cpus: Word = None
    memory_bytes: Count = None


@dataclass(frozen=True, kw_only=True)
class Processors:
    """The processors of a node. `allowed` is the number of CPUs that the process may use, `kernel_options` are those
    that change the speed of processors."""

    model: Word = None
    microcode: Word = None
    virtual: bool | None = None
    online: Word = None
    isolated: Word = None
    allowed: Count = None
    sockets: Count = None
    cores: Count = None
    threads: Count = None
    smt: Word = None
    governor: Setting = None
    driver: Setting = None
    preference: Setting = None
    least_hz: Setting = None
    most_hz: Setting = None
    hardware_most_hz: Setting = None
    turbo: bool | None = None
    idle_driver: Word = None
    numa_nodes: tuple[NumaNode, ...] = ()
    kernel_options: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class HugePages:
    """Reserved huge pages of one size."""

    total: Count = None
    free: Count = None


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory of a node and the kernel's settings for pages; `hugepages` by size, such as 2048kB."""

    total_bytes: Count = None
    swap_bytes: Count = None
    transparent_hugepages: Word = None
    hugepages: Mapping[str, HugePages] = field(default_factory=dict)
    numa_balancing: Count = None
    swappiness: Count = None


@dataclass(frozen=True, kw_only=True)
class KernelClock:
    """The kernel's estimate of its clock's error, by adjtimex(2)."""

    synchronised: bool | None = None
    offset_s: Number = None
    estimated_error_s: Number = None
    most_error_s: Number = None
    frequency_ppm: Number = None


@dataclass(frozen=True, kw_only=True)
class Chrony:
    """State of chrony. A positive offset: this clock is fast."""

    server: Word = None
    stratum: Count = None
    offset_s: Number = None
    rms_offset_s: Number = None
    most_error_s: Number = None
    leap: Word = None


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Clock source of a node, and how well its clock is kept."""

    source: Word = None
    available: tuple[str, ...] = ()
    kernel: KernelClock | None = None
    chrony: Chrony | None = None


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU: power in watts, clocks in Hz, memory in bytes; `throttled_by` is NVML's bit mask of reasons."""

    name: Word = None
    uuid: Word = None
    vbios: Word = None
    memory_bytes: Count = None
    power_cap_w: Number = None
    default_power_cap_w: Number = None
    sm_hz: Number = None
    most_sm_hz: Number = None
    most_memory_hz: Number = None
    set_sm_hz: Number = None
    set_memory_hz: Number = None
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None
    throttled_by: Count = None


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """GPUs visible to the process, with driver and CUDA version, or the reason for none."""

    reason: Word = None
    driver: Word = None
    cuda: Word = None
    devices: tuple[Gpu, ...] = ()


@dataclass(frozen=True, kw_only=True)
class InfinibandPort:
    """One port of an InfiniBand or RoCE adapter."""

    adapter: Word = None
    port: Count = None
    type: Word = None
    board: Word = None
    firmware: Word = None
    state: Word = None
    physical_state: Word = None
    link_layer: Word = None
    rate: Word = None
    rate_bit_per_s: Number = None


@dataclass(frozen=True, kw_only=True)
class Interface:
    """One active network interface."""

    name: Word = None
    driver: Word = None
    speed_bit_per_s: Number = None
    mtu_bytes: Count = None


@dataclass(frozen=True, kw_only=True)
class Network:
    """Network ports of a node."""

    infiniband: tuple[InfinibandPort, ...] = ()
    interfaces: tuple[Interface, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Stripes:
    """Stripes of a Lustre folder; of a layout with several components those of the first."""

    count: Count = None
    size_bytes: Count = None
    pool: Word = None
    components: Count = None


@dataclass(frozen=True, kw_only=True)
class FileSystem:
    """The file system that a path lies on."""

    path: Word = None
    mount: Word = None
    type: Word = None
    source: Word = None
    options: Word = None
    free_bytes: Count = None
    stripes: Stripes | None = None


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The facts of a node that do not change during a trial. `mounts` are by role of the path."""

    hostname: Word = None
    cpu_model: Word = None
    cpus_logical: Count = None
    cpus_physical: Count = None
    cpus_allowed: tuple[int, ...] = ()
    memory_bytes: Count = None
    kernel: Word = None
    os: Word = None
    governor: Setting = None
    transparent_hugepages: Word = None
    cgroup: Word = None
    cpu: Processors = Processors()
    memory: Memory = Memory()
    clock: Clock = Clock()
    gpu: Gpus = Gpus()
    network: Network = Network()
    mounts: Mapping[str, FileSystem] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OtherUsers:
    """Activity of other users, or the reason why it is unknown."""

    reason: Word = None
    users: Count = None
    processes: Count = None
    running: Count = None
    cpu_s: Number = None


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """The state of a node at one time."""

    at: Moment = None
    monotonic_ns: Count = None
    load_average: tuple[float, ...] = ()
    memory_available_bytes: Count = None
    swap_used_bytes: Count = None
    cpu_frequency_hz: Count = None
    processes: Count = None
    others: OtherUsers = OtherUsers()


@dataclass(frozen=True, kw_only=True)
class NodeReport:
    """The description of one node by itself; `machine` only if requested."""

    schema_version: int = 1
    node: str
    moment: NodeState = NodeState()
    machine: Machine | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, kw_only=True)
class NodeRecord:
    """One node of a trial. None: it did not answer."""

    machine: Machine | None = None
    before: NodeState | None = None
    after: NodeState | None = None


@dataclass(frozen=True, kw_only=True)
class Checkout:
    """Commit and cleanness of a git checkout; None outside of one."""

    git_commit: Word = None
    git_dirty: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Software:
    """Software of a measurement. `lock` names the lock file of the service's environment."""

    seamark: Word = None
    python: Word = None
    lock: Word = None
    lock_sha256: Word = None
    inside_container: Word = None
    git_commit: Word = None
    git_dirty: bool | None = None


@dataclass(frozen=True, kw_only=True)
class DatasetRecord:
    """A data set as drivers read it: dataset.json of its folder. `sha256` is that of what it was made from, `files`
    have those of its own files. `rows` are prompts or vectors; `left_out` are prompts that ask nothing."""

    schema_version: int = 1
    name: Word = None
    kind: Word = None
    forms: tuple[str, ...] = ()
    sha256: Word = None
    licence: Word = None
    rows: Count = None
    left_out: Count = None
    dimensions: Count = None
    queries: Count = None
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TrialMeta:
    """meta.json. `machine`, `before` and `after` are of the node of the load; `nodes` has all of the allocation, and
    `nodes_unknown` is the reason why some are missing. An earlier version did not write `nodes`. `git_commit` is that
    of the study's checkout, `scenario_commit` the scenario's `metadata.git_commit` when the trial was measured.
    `ran_beside` are the deployments that other lanes of the run had on this machine at the same time."""

    schema_version: int = 1
    trial_id: Word = None
    timestamp: Moment = None
    git_commit: Word = None
    host: Word = None
    partition: Word = None
    slurm_job_id: Word = None
    container_digest: Word = None
    container: ImageFacts | None = None
    client_container: ImageFacts | None = None
    seed: Count = None
    block: Count = None
    position: Count = None
    node: Word = None
    placement: Word = None
    runtime: Word = None
    server_identity: ServerRecord | None = None
    service_version: Word = None
    licence: Word = None
    slurm: Mapping[str, Word] | None = None
    software: Software = Software()
    machine: Machine | None = None
    pinning: PinningRecord | None = None
    shards: tuple[WorkerPlace, ...] = ()
    before: NodeState | None = None
    after: NodeState | None = None
    nodes: Mapping[str, NodeRecord] = field(default_factory=dict)
    nodes_unknown: Word = None
    scenario_commit: Word = field(default=None, metadata=OPTIONAL)
    ran_beside: tuple[str, ...] = field(default=(), metadata=OPTIONAL)
    dataset: DatasetRecord | None = field(default=None, metadata=OPTIONAL)

    def all_nodes(self) -> Mapping[str, NodeRecord]:
        """Return the nodes of the trial by name; of an earlier version the load's own alone."""
        own = NodeRecord(machine=self.machine, before=self.before, after=self.after)
        return self.nodes or {str(self.node): own}
