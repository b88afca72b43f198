"""Proof of gpu_sharing: on which devices the processes of a party compute, and whether MPS has them as clients.

NVML tells which process computes where. A process says what it likes of CUDA_VISIBLE_DEVICES, and CUDA goes on
without MPS where it reaches no daemon. Not run on a GPU here: tests have an NVML and a daemon of their own.
"""

import time
from collections.abc import Iterator, Mapping

from seamark.model.parties import GpuSharing
from seamark.model.results.load_record import Departure
from seamark.services.supervisor.mps_clients import clients
from seamark.telemetry.gpu import computing_on, devices_of


class KeptGpus:
    """Compares where one party computes with its share, during a load; every `every_s` once everything is proved, as
    each look asks the driver, and the MPS daemon by a process."""

    def __init__(self, share: GpuSharing, every_s: float) -> None:
        self._share = share
        self._every_s = every_s
        self._elsewhere = [uuid for uuid in devices_of() if uuid not in share.devices]
        self._unseen = {*share.devices}
        self._attached = share.pipes is None
        self._strangers: Mapping[str, frozenset[int]] = {}
        self._looked_s = float("-inf")

    def look(self, roles: Mapping[int, str]) -> Iterator[Departure]:
        """Yield what differs from the share; `roles` has each process of the party, as of server or load."""
        now_s = time.monotonic()
        if not self._unseen and self._attached and now_s - self._looked_s < self._every_s:
            return
        self._looked_s = now_s
        own, at_work = ", ".join(self._share.devices), set[int]()
        strangers: dict[str, frozenset[int]] = {}
        for device in self._share.devices:
            computing = computing_on(device) or frozenset()
            if ours := computing & roles.keys():
                self._unseen.discard(device)
                at_work |= ours
            if not self._share.in_common:
                strangers[device] = computing - roles.keys()
        for device, pids in strangers.items():  # a process of the party may end or begin between two questions
            for pid in pids & self._strangers.get(device, frozenset()):
                yield Departure(
                    role="machine", what="gpus", pid=pid, asked=f"{device} to the party alone", seen=device
                )
        self._strangers = strangers
        for device in self._elsewhere:
            for pid in (computing_on(device) or frozenset()) & roles.keys():
                yield Departure(role=roles[pid], what="gpus", pid=pid, asked=own, seen=device)
        if self._share.pipes is not None:
            attached = clients(self._share.pipes).keys()
            self._attached = self._attached or bool(attached & roles.keys())
            for pid in at_work - attached:
                yield Departure(role=roles[pid], what="mps", pid=pid, asked="attached", seen="not attached")

    def unproved(self, pid: int) -> Iterator[Departure]:
        """Yield what no look has proved, for a party of which `pid` is a process."""
        if unseen := [device for device in self._share.devices if device in self._unseen]:
            yield Departure(
                role="party", what="gpus", pid=pid, asked=", ".join(unseen), seen="none that NVML knows of"
            )
        if not self._attached:
            yield Departure(role="party", what="mps", pid=pid, asked="attached", seen="not attached")
