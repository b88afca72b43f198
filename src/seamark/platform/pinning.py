"""Division of CPU cores between the load's workers and the server, so that neither slows the other; variables that
bound the threads and GPUs of a process.

A core is a physical one: its hardware threads stay together. The CPUs that a process may use come from the kernel,
which respects cgroups and Slurm. CPU lists are written as the kernel and taskset do: 0-3,8. Numerical
libraries read their variables at import; each has one of its own, so that a variable that a user has set for one of
them does not win.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seamark.errors import UserError
from seamark.model.parties import GpuSharing
from seamark.model.results.deployment_record import PinningRecord
from seamark.model.site import Pinning

CUDA = "CUDA_VISIBLE_DEVICES"
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Makes CUDA count GPUs as NVML, telemetry and batch systems do; its own order is by speed."""
MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY"
NO_PIPES = "/nonexistent"
"""Keeps CUDA from a daemon of MPS that the machine runs at the default place: without an answer it does without."""
MPS_THREADS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
THREADS = "OMP_NUM_THREADS"
OF_LIBRARIES = (THREADS, "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def thread_variables(threads: int | None) -> dict[str, str]:
    """Return the variables that limit numerical libraries to so many threads; none for None."""
    return {} if threads is None else dict.fromkeys(OF_LIBRARIES, str(threads))


def gpu_variables(gpus: Iterable[int], share: GpuSharing | None = None) -> dict[str, str]:
    """Return the variables with which a process sees these GPUs only, () for none of them; with a `share` its devices
    in their place, by UUID: to a client of MPS an index counts the GPUs of its daemon."""
    if share is None:
        return {**ORDER, CUDA: ",".join(map(str, gpus))}
    variables = {**ORDER, CUDA: ",".join(share.devices), MPS_PIPES: share.pipes or NO_PIPES}
    if share.threads is not None:
        variables[MPS_THREADS] = str(share.threads)
    return variables


FEWEST_CORES = 4
"""With fewer cores, none are set apart automatically: the server would lose too large a share."""
TOPOLOGY = Path("/sys/devices/system/cpu")

Core = tuple[int, ...]
"""CPU numbers of the hardware threads of one physical core."""


@dataclass(frozen=True, kw_only=True)
class Split(PinningRecord):
    """CPUs of the load's workers and of the server; () where none are set apart. `why` is the reason."""

    def __str__(self) -> str:
        if not self.client and not self.server:
            return f"none ({self.why})"
        client, server = (shown_cores(cpus) or "anywhere" for cpus in (self.client, self.server))
        return f"load {client}, server {server} ({self.why})"


def split_cores(
    pinning: Pinning | str, *, workers: str, shards: int, cores: Sequence[Core], server_here: bool = True
) -> Split:
    """Return the split by a site's `pinning` on a machine with these cores.

    `auto`: with four cores or more, the load gets as many as it can use, at most half, from the last one down. Raises
    UserError for a CPU that does not exist.
    """
    if isinstance(pinning, Pinning):
        return _named_split(pinning, _cpus(cores), server_here)
    if pinning == "none":
        return Split(why="the site says so")
    if not server_here:
        return Split(why="no server of this run beside the load")
    if len(cores) < FEWEST_CORES:
        return Split(why=f"{len(cores)} cores are too few to set some apart")
    # an event loop uses one core, a process of threads a second one outside of the interpreter lock; drivers in
    # processes use whatever there is, and so does their server
    wanted = {"wire": shards, "threads": 2 * shards}.get(workers, len(cores) // 2)
    count = max(1, min(wanted, len(cores) // 2))
    client, server = cores[-count:], cores[:-count]
    # one thread of each core first, so that up to that many workers share no core
    first = [core[0] for core in client]
    rest = [cpu for core in client for cpu in core[1:]]
    return Split(client=(*first, *rest), server=tuple(sorted(cpu for core in server for cpu in core)), why="auto")


def placed_split(*, client: Sequence[int], server: Sequence[int], cores: Sequence[Core]) -> Split:
    """Return the split of a placement, which has chosen the CPUs of load and server, () for all.

    Raises UserError for a CPU that does not exist here.
    """
    allowed = _cpus(cores)
    for name, cpus in (("load", client), ("server", server)):
        if missing := set(cpus) - allowed:
            raise UserError(
                f"the placement gives the {name} CPU {shown_cores(missing)}, which cannot be used here: this process"
                f" may use {shown_cores(allowed)}. Place it on CPUs out of these."
            )
    return Split(client=tuple(client), server=tuple(server), why="placement")


def server_cpus(pinning: Pinning | str, cores: Sequence[Core]) -> tuple[int, ...]:
    """Return the CPUs that a site names for a server on a node of its own with these cores; () for all.

    Raises UserError for a CPU that does not exist.
    """
    return _named("server", pinning.server, _cpus(cores)) if isinstance(pinning, Pinning) else ()


def _named_split(pinning: Pinning, allowed: Collection[int], server_here: bool) -> Split:
    client = _named("client", pinning.client, allowed)
    if server_here:
        return Split(client=client, server=_named("server", pinning.server, allowed), why="as the site says")
    elsewhere = f"; the server's are {pinning.server} of its own nodes" if pinning.server else ""
    return Split(client=client, why=f"as the site says{elsewhere}")


def _named(name: str, text: str | None, allowed: Collection[int]) -> tuple[int, ...]:
    cpus = () if text is None else cores_in(text)
    if missing := set(cpus) - set(allowed):
        raise UserError(
            f"the site's pinning.{name} is '{text}', but CPU {shown_cores(missing)} cannot be used here:"
            f" this process may use {shown_cores(allowed)}. Name CPUs out of these, or write 'pinning: auto'."
        )
    return cpus


def _cpus(cores: Sequence[Core]) -> set[int]:
    return {cpu for core in cores for cpu in core}


def cores_here(root: Path = TOPOLOGY, allowed: Collection[int] | None = None) -> tuple[Core, ...]:
    """Return the physical cores with at least one hardware thread that this process may use, with those threads."""
    cores: dict[tuple[str, str], list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0) if allowed is None else allowed):
        topology = root / f"cpu{cpu}" / "topology"
        try:
            place = ((topology / "physical_package_id").read_text(), (topology / "core_id").read_text())
        except OSError:
            place = ("", str(cpu))
        cores.setdefault(place, []).append(cpu)
    return tuple(sorted(map(tuple, cores.values())))


@contextmanager
def away_from(cpus: Collection[int]) -> Iterator[None]:
    """Keep this thread off `cpus` meanwhile, if it may use any others."""
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


_PART = re.compile(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?")


def cores_in(text: str) -> tuple[int, ...]:
    """Return the CPU numbers in `text`, sorted. Raises ValueError with the mistake."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"'{text}' names no CPUs; write numbers and ranges such as 0-3,8")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"the range {part.strip()} ends before it begins")
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def shown_cores(numbers: Collection[int]) -> str:
    """Return CPU numbers as text with ranges joined."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
