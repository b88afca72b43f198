"""Which cores the load's workers get and which the server, so that neither takes time from the other. Starts nothing.

A core is a physical one: its hardware threads stay together. What a process may use at all is asked of the kernel, so
that cgroups and Slurm are respected.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamark.errors import UserError
from seamark.model.site import Pinning
from seamark.platform.cpu_lists import cores_in, shown_cores

FEWEST_CORES = 4
"""Of fewer cores none are set apart without being asked for: the server would lose too many of them."""
TOPOLOGY = Path("/sys/devices/system/cpu")

Core = tuple[int, ...]
"""The numbers of one physical core's hardware threads."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """The CPUs of the load's workers and of the server, as the kernel numbers them; () where nothing is set apart.
    `why` says so in words."""

    client: tuple[int, ...] = ()
    server: tuple[int, ...] = ()
    why: str

    def to_json(self) -> dict[str, Any]:
        return {"client": list(self.client), "server": list(self.server), "why": self.why}

    def __str__(self) -> str:
        if not self.client and not self.server:
            return f"none ({self.why})"
        client, server = (shown_cores(cpus) or "anywhere" for cpus in (self.client, self.server))
        return f"load {client}, server {server} ({self.why})"


def client_cores_wanted(workers: str, shards: int, cores: int) -> int:
    """Return how many cores workers of that kind keep busy, where there are `cores`.

    An event loop uses one, a process of threads a second one outside of the interpreter's lock; drivers in processes
    use what there is, and so does their server.
    """
    return {"wire": shards, "threads": 2 * shards}.get(workers, cores // 2)


def split_cores(
    pinning: Pinning | str, *, workers: str, shards: int, cores: Sequence[Core], server_here: bool = True
) -> Split:
    """Return the split that a site's `pinning` gives on a machine with these cores.

    `auto`: with four cores or more, the load gets as many as it can use, at most half, from the last one down. Raises
    UserError when it names a CPU that is not there.
    """
    if isinstance(pinning, Pinning):
        return _asked_for(pinning, _cpus(cores), server_here)
    if pinning == "none":
        return Split(why="the site says so")
    if not server_here:
        return Split(why="there is no server of ours beside the load")
    if len(cores) < FEWEST_CORES:
        return Split(why=f"{len(cores)} cores are too few to set some apart")
    many = max(1, min(client_cores_wanted(workers, shards, len(cores)), len(cores) // 2))
    client, server = cores[-many:], cores[:-many]
    # one thread of each core first: as many workers as there are cores do not share one
    first = [core[0] for core in client]
    rest = [cpu for core in client for cpu in core[1:]]
    return Split(client=(*first, *rest), server=tuple(sorted(cpu for core in server for cpu in core)), why="auto")


def server_cpus(pinning: Pinning | str, cores: Sequence[Core]) -> tuple[int, ...]:
    """Return the CPUs that a site names for a server on a node of its own, which has these cores; () for all.

    Raises UserError when it names a CPU that is not there.
    """
    return _named("server", pinning.server, _cpus(cores)) if isinstance(pinning, Pinning) else ()


def _asked_for(pinning: Pinning, allowed: Collection[int], server_here: bool) -> Split:
    client = _named("client", pinning.client, allowed)
    if server_here:
        return Split(client=client, server=_named("server", pinning.server, allowed), why="as the site says")
    elsewhere = f"; the server's are {pinning.server} of its own nodes" if pinning.server else ""
    return Split(client=client, why=f"as the site says{elsewhere}")


def _named(name: str, text: str | None, allowed: Collection[int]) -> tuple[int, ...]:
    found = () if text is None else cores_in(text)
    if missing := set(found) - set(allowed):
        raise UserError(
            f"the site's pinning.{name} is '{text}', but CPU {shown_cores(missing)} cannot be used here:"
            f" this process may use {shown_cores(allowed)}. Name CPUs out of these, or write 'pinning: auto'."
        )
    return found


def _cpus(cores: Sequence[Core]) -> set[int]:
    return {cpu for core in cores for cpu in core}


def cores_here(root: Path = TOPOLOGY, allowed: Collection[int] | None = None) -> tuple[Core, ...]:
    """Return the physical cores of which this process may use at least one hardware thread, with those threads."""
    found: dict[tuple[str, str], list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0) if allowed is None else allowed):
        topology = root / f"cpu{cpu}" / "topology"
        try:
            place = ((topology / "physical_package_id").read_text(), (topology / "core_id").read_text())
        except OSError:
            place = ("", str(cpu))
        found.setdefault(place, []).append(cpu)
    return tuple(sorted(map(tuple, found.values())))


def pin(pid: int, cpus: Collection[int]) -> None:
    """Keep all threads of a process to `cpus`, and with them what it starts later. Nothing for no CPUs."""
    if not cpus:
        return
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), cpus)


@contextmanager
def away_from(cpus: Collection[int]) -> Iterator[None]:
    """Keep this thread off `cpus` meanwhile, if there are any others that it may use."""
    before = os.sched_getaffinity(0)
    others = before - set(cpus)
    if not cpus or not others:
        yield
        return
    os.sched_setaffinity(0, others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def split_of(endpoint: Mapping[str, Any]) -> Split:
    """Return the split that the server of an endpoint.json was started with."""
    written = endpoint.get("pinning") or {}
    return Split(
        client=tuple(written.get("client", ())), server=tuple(written.get("server", ())), why=written.get("why", "")
    )
