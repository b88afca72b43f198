"""Whether the processes of a party keep to its place while it is under load, as the kernel says."""

import os
import time
from collections.abc import Iterator, Sequence

from seamark.dispatch.identity import node
from seamark.dispatch.placement import Place
from seamark.model.results.deployment_record import Endpoint
from seamark.model.results.load_record import Departure, PlaceRecord
from seamark.platform.pinning import CUDA, THREADS, gpu_variables, shown_cores
from seamark.platform.process_tree import cpus_of, descendants, status, variable_of
from seamark.trials.kept_gpus import KeptGpus

LOOK_S = 1.0
"""Time between two looks, each of which reads some files of /proc for every process."""
PROVED_LOOKS = 5
"""Looks for each one at GPUs, once it is proved that these are kept."""


class KeptPlace:
    """Compares the processes of one party on this machine, server and load, with its place.

    A process that keeps to a part of its cores keeps to its place, and so does one below server or worker that lowers
    its own priority. The limit of threads and the GPUs are known of a server alone: workers are forked, and their
    environment in /proc is that of the process that forks them. Where gpu_sharing is stated, NVML tells them of both
    (kept_gpus.py). `threads` are those of all parties under load, and their cores.
    """

    def __init__(
        self, place: Place, endpoint: Endpoint, threads: tuple[int, int] | None = None, every_s: float = LOOK_S
    ) -> None:
        self._place = place
        self._threads = threads
        self._contained = endpoint.image is not None
        parts = [part.pid for part in endpoint.parts if part.node in (None, node())]
        main = endpoint.server_pid if node() in (endpoint.server_nodes or (node(),))[:1] else None
        self._servers = [pid for pid in (main, *parts) if pid is not None]
        self._niceness = max(place.niceness, os.getpriority(os.PRIO_PROCESS, 0))
        self._every_s = every_s
        self._looks, self._looked_s = 0, float("-inf")
        self._departures: dict[tuple[str, str], Departure] = {}
        self._gpus = KeptGpus(place.share, PROVED_LOOKS * every_s) if place.share else None
        self._last_pid = next(iter(self._servers), os.getpid())

    def look(self, workers: Sequence[int]) -> None:
        """Compare all processes if the last look was `every_s` ago or more; `workers` are those of the load."""
        if time.monotonic() - self._looked_s < self._every_s:
            return
        self._looks, self._looked_s = self._looks + 1, time.monotonic()
        place, roles = self._place, dict[int, str]()
        for role, cores, roots in (
            ("server", place.server_cores, self._servers),
            ("load", place.load_cores, workers),
        ):
            for root in roots:
                for pid in (root, *descendants(root)):
                    roles[pid] = role
                    for what, asked, seen in self._differences(role, pid, cores, is_root=pid == root):
                        found = Departure(role=role, what=what, pid=pid, asked=asked, seen=seen)
                        self._departures.setdefault((role, what), found)
        self._last_pid = next(iter(roles), self._last_pid)
        for found in self._gpus.look(roles) if self._gpus else ():
            self._departures.setdefault((found.role, found.what), found)

    def _differences(
        self, role: str, pid: int, cores: Sequence[int], *, is_root: bool
    ) -> Iterator[tuple[str, str, str]]:
        """Yield what of a process differs, what the place gives, and what the kernel says."""
        cpus, process, wanted = cpus_of(pid), status(pid), self._niceness
        if cores and not cpus <= {*cores}:
            yield "cores", shown_cores(cores), shown_cores(cpus)
        niceness = wanted if process is None or process.state in ("Z", "X") else process.niceness
        if niceness < wanted or (is_root and niceness != wanted):
            yield "niceness", str(wanted), str(niceness)
        if role == "server" and is_root and not self._contained:  # there the process below has the variables
            limit, threads = self._place.threads, variable_of(pid, THREADS) or ""
            if limit is not None and threads.isdigit() and int(threads) > limit:
                yield "threads", str(limit), threads
            gpus, visible = gpu_variables(self._place.gpus, self._place.share)[CUDA], variable_of(pid, CUDA)
            if visible is not None and visible != gpus:
                yield "gpus", gpus, visible

    def record(self) -> PlaceRecord:
        """Return the place, and what was seen of it so far."""
        place, (threads, cores) = self._place, self._threads or (None, None)
        unproved = self._gpus.unproved(self._last_pid) if self._gpus else ()
        return PlaceRecord(
            server_cores=place.server_cores,
            load_cores=place.load_cores,
            threads=place.threads,
            niceness=place.niceness,
            looks=self._looks,
            departures=(*self._departures.values(), *unproved),
            all_threads=threads,
            all_cores=cores,
            devices=place.share.devices if place.share else (),
        )
