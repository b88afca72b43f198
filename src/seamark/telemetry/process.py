"""Resources of the server: its process tree by /proc, and the bytes of the connections to its ports."""

import os
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

from seamark.platform.ports import LOCAL_HOSTS
from seamark.platform.process_tree import descendants, status
from seamark.platform.socket_stats import Traffic
from seamark.telemetry.host import spent_s
from seamark.telemetry.sampler import Reading

CGROUPS = Path("/sys/fs/cgroup")


class ProcessTree:
    """CPU since the last read as a ratio of the machine, memory, storage bytes, threads of a process and all below
    it.

    Children that started and ended between two reads count once their parent has waited for them. Memory is the sum
    of resident sets: shared pages count for each process. A process in a control group of its own has the figures of
    the group as well.
    """

    def __init__(self, pid: int, source: str = "server") -> None:
        self._pid = pid
        self._source = source
        self._cores = os.cpu_count() or 1
        self._cpu_s: dict[int, float] = {}
        self._at_s: float | None = None

    def read(self) -> Iterator[Reading]:
        """Yield cpu_ratio, rss_bytes, threads, read_bytes, write_bytes; nothing once the process is gone."""
        processes = [process for pid in (self._pid, *descendants(self._pid)) if (process := status(pid))]
        if not processes:
            return
        before_s, self._at_s = self._at_s, time.monotonic()
        cpu_s = {process.pid: process.cpu_s for process in processes}
        if before_s is not None and self._at_s > before_s:
            # the time of an ended child moves to its parent, which is no gain
            gained_s = max(0.0, sum(cpu_s.values()) - sum(self._cpu_s.values()))
            yield self._reading("cpu_ratio", gained_s / (self._at_s - before_s) / self._cores, "ratio")
        self._cpu_s = cpu_s
        yield self._reading("rss_bytes", sum(process.rss_bytes for process in processes), "bytes")
        yield self._reading("threads", sum(process.threads for process in processes), "threads")
        transferred = [bytes_moved(process.pid) for process in processes]
        if readable := [transfer for transfer in transferred if transfer is not None]:
            yield self._reading("read_bytes", sum(transfer[0] for transfer in readable), "bytes")
            yield self._reading("write_bytes", sum(transfer[1] for transfer in readable), "bytes")
        if group := own_cgroup(self._pid):
            yield from self._cgroup(group)

    def _cgroup(self, group: Path) -> Iterator[Reading]:
        yield self._reading("cgroup_ram_bytes", float((group / "memory.current").read_text()), "bytes")
        usage = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
        yield self._reading("cgroup_cpu_s", float(usage["usage_usec"]) / 1e6, "s")

    def _reading(self, name: str, value: float, unit: str) -> Reading:
        return Reading(source=self._source, name=name, value=float(value), unit=unit)


FORWARDERS = ("docker-proxy", "rootlessport", "slirp4netns", "ssh", "kubectl", "conmon")
"""Programs that listen for a server which is a process of its own."""


def listener(host: str | None, ports: Collection[int]) -> int | None:
    """Return the process that listens on one of some ports of a host; None where that is another machine, and where
    it may not be read or only forwards. Of several that share the socket, the first is their parent."""
    try:
        if host not in (*LOCAL_HOSTS, *(entry.address for card in psutil.net_if_addrs().values() for entry in card)):
            return None
        found = [
            connection.pid
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
            and connection.pid
            and getattr(connection.laddr, "port", None) in ports
        ]
        return min((pid for pid in found if psutil.Process(pid).name() not in FORWARDERS), default=None)
    except (psutil.Error, OSError):
        return None


def used_by_others(interval_s: float, own: Collection[int | None]) -> float | None:
    """Watch this machine for a while; return the ratio of its processors that others than the processes of `own`, and
    all below them, used. None where it cannot be told."""

    def read() -> tuple[Any, float]:
        trees = {pid for root in own if root is not None for pid in (root, *descendants(root))}
        its_s = sum(process.cpu_s for pid in trees if (process := status(pid)))
        return psutil.cpu_times(), its_s

    before, own_before_s = read()
    time.sleep(interval_s)
    after, own_after_s = read()
    spent = spent_s(before, after)
    total_s = sum(spent.values())
    if total_s <= 0:
        return None
    idle = ("idle", "iowait", "steal", "irq", "softirq")
    busy_s = sum(value for name, value in spent.items() if name not in idle)
    return max(0.0, busy_s - max(0.0, own_after_s - own_before_s)) / total_s


def bytes_moved(pid: int) -> tuple[int, int] | None:
    """Return the bytes that a process and its ended children read from and wrote to storage; None without
    permission."""
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return None
    counters = dict(line.split(": ") for line in lines)
    return int(counters["read_bytes"]), int(counters["write_bytes"])


def own_cgroup(pid: int, *, proc: Path = Path("/proc"), root: Path = CGROUPS) -> Path | None:
    """Return the folder of the process's control group (version 2) if it differs from this process's."""
    own, its = _cgroup_of(proc / "self"), _cgroup_of(proc / str(pid))
    if its is None or its == own:
        return None
    folder = root / its.lstrip("/")
    return folder if (folder / "memory.current").is_file() and (folder / "cpu.stat").is_file() else None


def _cgroup_of(process: Path) -> str | None:
    try:
        lines = (process / "cgroup").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)


class Connections:
    """Payload bytes that the server's TCP connections have sent and received."""

    def __init__(self, ports: Iterable[int]) -> None:
        self._traffic = Traffic(ports, "local")

    def read(self) -> Iterator[Reading]:
        """Yield net_sent_bytes and net_received_bytes."""
        sent, received = self._traffic.read()
        yield Reading(source="server", name="net_sent_bytes", value=float(sent), unit="bytes")
        yield Reading(source="server", name="net_received_bytes", value=float(received), unit="bytes")
