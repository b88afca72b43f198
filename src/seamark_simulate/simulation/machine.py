"""The simulated machine: hosts with GPUs of a kind, the ways between them, what it costs to bring a model to a GPU,
and when GPUs leave and come back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import merge
from typing import Literal

import numpy as np

from seamark.model.annotations import limited
from seamark_simulate.simulation.system import Model

PCIE_GB_PER_S = 16.0
"""Bandwidth of a PCIe 4.0 bus with 8 lanes, or 3.0 with 16."""
SWITCH_OVERHEAD_S = 2.0
Preemption = Literal["never", "lost", "resumed"]
Windows = Literal["consecutive", "any"]
Transfers = Literal["occupy", "overlap"]


@dataclass(frozen=True, kw_only=True)
class GpuKind:
    """A kind of GPU. A node takes its time / speed: that of its model in `speeds`, else `speed`. Without `memory_gb`
    every model fits."""

    name: str = limited("", written="")
    memory_gb: float | None = limited(None, above=0)
    pcie_gb_per_s: float = limited(PCIE_GB_PER_S, above=0)
    speed: float = limited(1.0, above=0)
    speeds: Mapping[str, float] = limited(default_factory=dict, above=0)

    def speed_of(self, model: str) -> float:
        """Return how many times as fast as in the system's file a node of a model is."""
        return self.speeds.get(model, self.speed)

    def holds(self, model: Model) -> bool:
        """Return whether a model fits an empty GPU."""
        return self.memory_gb is None or model.memory_gb <= self.memory_gb


@dataclass(frozen=True, kw_only=True)
class Host:
    """A host with `gpus` GPUs of one kind. Bandwidths in GB/s: without NVLink data go over PCIe, without a figure of
    the disk first loads take the load time of the model."""

    name: str
    kind: GpuKind
    gpus: int
    nvlink_gb_per_s: float | None = None
    network_gb_per_s: float | None = None
    disk_gb_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Failures:
    """Each GPU fails after a time of mean `mtbf_s` and is back after one of mean `repair_s`, both exponential. A node
    that failed `attempts` times with its GPU is not tried again."""

    mtbf_s: float = limited(above=0)
    repair_s: float = limited(above=0)
    attempts: int = limited(3, above=0)


@dataclass(frozen=True, kw_only=True)
class Change:
    """At `at_s` some GPUs leave the machine or join it."""

    at_s: float = limited(minimum=0)
    remove: tuple[int, ...] = limited((), minimum=0)
    add: tuple[int, ...] = limited((), minimum=0)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Hosts in the order of their GPUs' ids, and rules that differ from those of equal GPUs on one host.

    A node of several GPUs gets `windows` of them: with consecutive ids, or any; on one host, or with `span_hosts` on
    several. With `several_models` a GPU holds as many models as its memory has room for, and the least recently used
    go first. Transfers of data `occupy` the GPUs of the node that gets them, or `overlap` with other work.
    """

    hosts: tuple[Host, ...]
    windows: Windows = "consecutive"
    span_hosts: bool = False
    several_models: bool = False
    switch_overhead_s: float = SWITCH_OVERHEAD_S
    preemption: Preemption = "never"
    transfers: Transfers = "occupy"
    failures: Failures | None = None
    changes: tuple[Change, ...] = ()

    @property
    def gpus(self) -> int:
        """Number of GPUs of all hosts."""
        return sum(host.gpus for host in self.hosts)

    @cached_property
    def host_of(self) -> tuple[int, ...]:
        """Place of the host of each GPU."""
        return tuple(number for number, host in enumerate(self.hosts) for _ in range(host.gpus))

    @property
    def has_equal_gpus(self) -> bool:
        """Whether no rule differs from those of equal GPUs on one host; data on edges apart."""
        kinds = {(host.kind.pcie_gb_per_s, host.kind.speed, *host.kind.speeds.items()) for host in self.hosts}
        return (
            (len(self.hosts) == 1 or self.span_hosts)
            and len({host.kind.name for host in self.hosts}) == len(kinds) == 1
            and self.hosts[0].kind.speed == 1
            and not self.hosts[0].kind.speeds
            and all(host.disk_gb_per_s is None for host in self.hosts)
            and (self.windows, self.several_models, self.preemption) == ("consecutive", False, "never")
            and self.failures is None
            and not self.changes
        )

    def host(self, gpu: int) -> Host:
        """Return the host of a GPU."""
        return self.hosts[self.host_of[gpu]]

    def speed(self, model: str, gpus: tuple[int, ...]) -> float:
        """Return the speed of a model on some GPUs: that of the slowest."""
        return min(self.host(gpu).kind.speed_of(model) for gpu in gpus)

    def load_s(self, model: Model, gpu: int) -> float:
        """Return the time of a model's first load: memory over the bandwidth of the host's disk, or of PCIe where
        that is less; of a host without a figure of its disk the load time of the model."""
        host = self.host(gpu)
        if host.disk_gb_per_s is None:
            return model.load_time_s
        return model.memory_gb / min(host.disk_gb_per_s, host.kind.pcie_gb_per_s)

    def transfer_s(self, data_bytes: int, source: int, target: int) -> float:
        """Return the time of data from one GPU to another: over NVLink or else PCIe on one host, over the network
        between two, by the slower end."""
        if source == target or not data_bytes:
            return 0.0
        ends = self.host(source), self.host(target)
        if ends[0] is ends[1]:
            bandwidth = ends[0].nvlink_gb_per_s or ends[0].kind.pcie_gb_per_s
        else:
            bandwidth = min(host.network_gb_per_s or host.kind.pcie_gb_per_s for host in ends)
        return data_bytes / 1e9 / bandwidth

    @cached_property
    def mean_transfer_s(self) -> float:
        """Mean time of 1 GB between two different GPUs, over all pairs; 0 on a machine of one GPU."""
        pairs = self.gpus * (self.gpus - 1)
        first = [self.host_of.index(number) for number in range(len(self.hosts))]
        whole_s = 0.0
        for source, host in zip(first, self.hosts, strict=True):
            for target, other in zip(first, self.hosts, strict=True):
                if source != target:
                    whole_s += host.gpus * other.gpus * self.transfer_s(10**9, source, target)
            if host.gpus > 1:
                whole_s += host.gpus * (host.gpus - 1) * self.transfer_s(10**9, source, source + 1)
        return whole_s / pairs if pairs else 0.0


ColdLoad = Literal["charged", "free"]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """GPUs 0 to `gpus` - 1 of one kind, or of a `layout`, whose bandwidths and rules then count. `cold_load` says
    whether a model's first load onto an empty GPU takes its load time or no time."""

    gpus: int
    cold_load: ColdLoad = "charged"
    pcie_gb_per_s: float = PCIE_GB_PER_S
    switch_overhead_s: float = SWITCH_OVERHEAD_S
    layout: Layout | None = None

    @property
    def may_fail(self) -> bool:
        """Whether GPUs fail at times that a seed decides."""
        return self.layout is not None and self.layout.failures is not None

    def fetch_s(self, old: Model | None, new: Model) -> float:
        """Return the time to bring `new` to a GPU that holds `old`, None for an empty GPU.

        Zero for the same model; (old + new) / bandwidth + overhead for a switch; the load time for an empty GPU,
        which is no switch. Nothing for a task that brings no model.
        """
        if not new.fetched:
            return 0.0
        if old is None:
            return new.load_time_s if self.cold_load == "charged" else 0.0
        if old.id == new.id:
            return 0.0
        return (old.memory_gb + new.memory_gb) / self.pcie_gb_per_s + self.switch_overhead_s

    def fetch_table(self, models: Sequence[Model]) -> tuple[tuple[float, ...], ...]:
        """Return `fetch_s` by the numbers of the new and the old model; the last old one is the empty GPU."""
        return tuple(tuple(self.fetch_s(old, new) for old in (*models, None)) for new in models)


STREAM = 0x6770
"""Number of the random stream of failures, apart from that of drawn times."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuChange:
    """At `at_s` GPUs are `removed` or `added` by the file, or one has `failed` or is `repaired`."""

    at_s: float
    what: Literal["removed", "added", "failed", "repaired"]
    gpus: tuple[int, ...]


def gpu_changes(layout: Layout, seed: int) -> Iterator[GpuChange]:
    """Yield all changes in order of time, those of the file first; without an end where GPUs may fail."""
    streams = [_written(layout)]
    if layout.failures is not None:
        streams += [_failures(layout.failures, seed, gpu) for gpu in range(layout.gpus)]
    return merge(*streams, key=lambda change: change.at_s)


def _written(layout: Layout) -> Iterator[GpuChange]:
    for change in sorted(layout.changes, key=lambda change: change.at_s):
        if change.remove:
            yield GpuChange(at_s=change.at_s, what="removed", gpus=change.remove)
        if change.add:
            yield GpuChange(at_s=change.at_s, what="added", gpus=change.add)


def _failures(failures: Failures, seed: int, gpu: int) -> Iterator[GpuChange]:
    """Yield failures and repairs of one GPU, with exponential times between them."""
    random = np.random.default_rng((STREAM, seed, gpu))
    at_s = 0.0
    while True:
        at_s += float(random.exponential(failures.mtbf_s))
        yield GpuChange(at_s=at_s, what="failed", gpus=(gpu,))
        at_s += float(random.exponential(failures.repair_s))
        yield GpuChange(at_s=at_s, what="repaired", gpus=(gpu,))
