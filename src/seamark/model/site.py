"""A site: where its files go, how servers are started, the requirements of its batch system."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from seamark.errors import did_you_mean
from seamark.model.annotations import limited
from seamark.model.service import External

CarrierName = Literal["local", "srun", "dask", "spark"]
CARRIERS: tuple[CarrierName, ...] = get_args(CarrierName)
ADDRESSES = {
    "dask": re.compile(r"(tcp|tls|ws|wss|ucx)://\S+:\d+"),
    "spark": re.compile(r"spark://\S+:\d+|local\[(\d+|\*)(,\d+)?\]|local-cluster\[\d+,\d+,\d+\]|yarn|k8s://\S+"),
}
EXAMPLES = {"dask": "tcp://HOST:8786", "spark": "spark://HOST:7077 or local[4]"}


def misplaced(name: str, address: str | None) -> str | None:
    """Return the mistake in a carrier's name or address, None without one."""
    if name not in CARRIERS:
        return f"'{name}' is none of {', '.join(CARRIERS)}.{did_you_mean(name, CARRIERS)}"
    if name not in ADDRESSES:
        return None if address is None else f"{name} takes no address. Remove '{address}'."
    if address is None:
        return f"{name} needs the address of its cluster, as {EXAMPLES[name]}."
    if not ADDRESSES[name].fullmatch(address):
        return f"'{address}' is no address for {name}. Give one as {EXAMPLES[name]}."
    return None


def _gpu_memory() -> Any:
    return limited(None, minimum=1, maximum=10_000, unit="GB, the memory of one GPU")


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A Slurm partition and the hardware of its nodes. `gres` is its name of a GPU: `gpu:a100`. `gpu_memory_gb` is
    the memory of each GPU; None: not known."""

    nodes: int = limited(minimum=1)
    cpus: int = limited(minimum=1)
    mem_gb: int = limited(minimum=1)
    gpus: int = limited(0, minimum=0)
    gres: str = "gpu"
    gpu_memory_gb: float | None = _gpu_memory()
    time_limit_s: int | None = None


@dataclass(frozen=True, kw_only=True)
class Paths:
    """Folders that a run reads and writes; `$NAME` and `~` are expanded on use.

    `scratch` has the private data of running servers, removed at their end; `environments`, `containers` and `data`,
    the data sets in the form that drivers read, are shared by all studies of a user. In `metrics` each trial writes
    its metrics in Prometheus's text format and its telemetry by node; None: nowhere.
    """

    results: str = "results"
    reports: str = "reports"
    scratch: str = ".seamark/scratch"
    environments: str = "~/.cache/seamark/envs"
    containers: str = "~/.cache/seamark/containers"
    data: str = "~/.cache/seamark/data"
    metrics: str | None = None


@dataclass(frozen=True, kw_only=True)
class Images:
    """How `bench prepare` makes the images of a site with containers, and whether the load's workers run in one as
    well.

    `where`: on the calling machine, or in a batch job with the additional sbatch options `job`. Images of services in
    `build`, and of services whose recipe names no image, are built from `containers/<service>.def`; all others are
    pulled by digest. Definitions start from `base`: an address, a `.sif` or a folder. With `wheels`, a folder,
    nothing is downloaded for them. `client`: workers of loads run in the image built from the definition of the
    service's environment. `jobs`: whole load jobs run in one, through Snakemake's `container:`; their workers need no
    other.
    """

    where: Literal["here", "job"] = "here"
    job: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    base: str = "docker://docker.io/library/python:3.11-slim-bookworm"
    wheels: str | None = None
    client: bool = False
    jobs: bool = False


@dataclass(frozen=True, kw_only=True)
class Pinning:
    """CPUs of the load's workers and of the server, as taskset writes them (`0-1,4`); None: unrestricted."""

    client: str | None = None
    server: str | None = None


DeviceIds = Literal["auto"] | tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Devices:
    """Devices that the lanes of a run take in turn: GPUs by index, or CPUs where there are none; `auto`: all that are
    visible. At most `per_device` lanes of one run are on a device at a time."""

    gpu: DeviceIds | None = None
    cpu: DeviceIds | None = None
    per_device: int = 1


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Days after which `bench prune` may remove files; None: never.

    `samples_days`: raw samples of measured trials. Their metrics stay, but can no longer be verified.
    """

    logs_days: float | None = 30.0
    attempts_days: float | None = 30.0
    standing_days: float | None = 30.0
    samples_days: float | None = None


RuntimeName = Literal["venv", "apptainer", "external"]


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """What a runtime does. services/runtimes/runtimes.py has how."""

    starts_servers: bool = True
    """Seamark starts and stops the servers."""
    in_images: bool = False
    """Servers run in images of containers, not in environments of their machine."""


RUNTIMES: Mapping[RuntimeName, Runtime] = {
    "venv": Runtime(),
    "apptainer": Runtime(in_images=True),
    "external": Runtime(starts_servers=False),
}


@dataclass(frozen=True, kw_only=True)
class Site:
    """One machine, described by data only.

    `login` is the command that reaches its login node from outside, such as `ssh -p 22 login.example.org`: tunnels to
    servers on its nodes use it. `quota_command` prints the rest of your quota, in bytes or like `lfs quota`.
    `machine` is the name under which results of this machine are kept (None: that of the node, or of the site if it
    has a batch system): trials measured under another name do not count as measured here.

    With `runtime: external`, `address` is that of the server, and `ports` are further ports of it by the names that
    its recipe gives them, such as `metrics`.

    A batch job requests the GPUs of each node by `--gres` or by `--gpus-per-node`, and gets `job_options` as well. A
    user may have `max_submit` jobs waiting and running, and `qos_max_submit` of a QoS; a run submits no more. A job
    that is pending for `queue_deadline_s` is cancelled (None: never), so that a run ends even if its job is held.

    A job takes `deployments_per_job`: one after another (`isolate`), or at the same time on one node (`share`), each
    with GPUs of its own from those of the job.

    With `parallel` above 1 deployments run side by side in that many lanes, each on one of the `devices`; `order`
    says which begins next (dispatch/order.py), where neither the scenario nor an option does.

    `gpu_memory_gb` is the memory of each GPU on a site without partitions; None: not known.

    `carrier` starts the workers of loads: here, as tasks of the Slurm allocation, or by a Dask or Spark cluster at
    `carrier_address`, through the interpreter `carrier_python` (None: this one). `network_environment` is set for
    every process of a server with several nodes, and overrides its recipe's.
    """

    name: str
    summary: str
    machine: str | None = None
    profile: str = "default"
    runtime: RuntimeName = "venv"
    address: str = "127.0.0.1"
    ports: Mapping[str, int] = field(default_factory=dict)
    paths: Paths = field(default_factory=Paths)
    images: Images = field(default_factory=Images)
    modules: tuple[str, ...] = ()
    module_init: str | None = None
    whole_nodes: bool = False
    gpu_request: Literal["gres", "gpus"] = "gres"
    job_options: tuple[str, ...] = ()
    deployments_per_job: int = limited(1, minimum=1)
    placement: Literal["isolate", "share"] = "isolate"
    max_submit: int | None = limited(None, minimum=1, unit="job")
    qos_max_submit: Mapping[str, int] = limited(default_factory=dict, minimum=1, unit="job")
    queue_deadline_s: float | None = limited(172_800.0, above=0, unit="s, or null for no deadline")
    needs: tuple[str, ...] = ()
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    qos: Mapping[str, int | None] = field(default_factory=dict)
    pinning: Literal["auto", "none"] | Pinning = "auto"
    network_environment: Mapping[str, str] = field(default_factory=dict)
    login: str | None = None
    retention: Retention = field(default_factory=Retention)
    quota_command: str | None = None
    carrier: CarrierName = "local"
    carrier_address: str | None = None
    carrier_python: str | None = None
    parallel: int = 1
    devices: Devices | None = None
    order: str = "all"
    gpu_memory_gb: float | None = _gpu_memory()
    lease_s: float = limited(30.0, above=0, unit="s")
    telemetry_interval_s: float = limited(0.5, above=0, unit="s")
    idle_s: float = limited(0.0, minimum=0, unit="s")
    """Idle time of a server that is up before its first request, to measure its idle power."""

    def beside(self, external: External | None) -> "Site":
        """Return this site for the load of a server that runs already; for None, the site itself."""
        if external is None:
            return self
        return replace(self, runtime="external", address=external.address, ports=external.ports)

    @property
    def starts_servers(self) -> bool:
        """Whether Seamark starts and stops the servers of this site."""
        return RUNTIMES[self.runtime].starts_servers

    @property
    def in_images(self) -> bool:
        """Whether servers of this site run in images of containers."""
        return RUNTIMES[self.runtime].in_images
