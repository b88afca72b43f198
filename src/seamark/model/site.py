"""What a machine is: where its files go, how servers are started, what its batch system asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A Slurm partition and the hardware of its nodes."""

    nodes: int
    cpus: int
    mem_gb: int
    gpus: int = 0


@dataclass(frozen=True, kw_only=True)
class Paths:
    """Roots of what a run reads and writes; `$NAME` and `~` are expanded when they are used.

    `scratch` holds the private data of running servers and is emptied when they end; `environments` and
    `containers` are shared by all studies of a user.
    """

    results: str = "results"
    reports: str = "reports"
    scratch: str = ".seamark/scratch"
    environments: str = "~/.cache/seamark/envs"
    containers: str = "~/.cache/seamark/containers"


@dataclass(frozen=True, kw_only=True)
class Site:
    """One machine. Nothing about a particular machine stands in code."""

    name: str
    summary: str
    profile: str = "default"
    runtime: Literal["venv", "apptainer", "external", "kubernetes"] = "venv"
    address: str = "127.0.0.1"
    paths: Paths = field(default_factory=Paths)
    modules: tuple[str, ...] = ()
    module_init: str | None = None
    whole_nodes: bool = False
    needs: tuple[str, ...] = ()
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    qos: Mapping[str, int] = field(default_factory=dict)
    lease_s: float = 30.0
    telemetry_interval_s: float = 0.5
