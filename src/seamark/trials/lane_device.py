"""Devices of a site's lanes on this machine, and what a unit's processes see of them: one GPU or CPU, and its
cores."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from seamark.errors import UserError
from seamark.model.site import Site
from seamark.platform.cuda_allocation import cuda_problem
from seamark.platform.fork_server.protocol import DEVICE
from seamark.platform.pinning import CUDA, ORDER, THREADS, Core, cores_here
from seamark.services.supervisor.device_locks import Device, DevicePool, DeviceSlot, held_here
from seamark.telemetry.gpu import computing_on, visible_gpus

RELEASE_S = 30.0
"""Longest wait for the memory of a GPU to be given back by the driver."""
RELEASE_POLL_S = 0.05
WATCH_S = 1.0
"""Interval of looks at the processes of a GPU while a unit runs."""


def pool_here(site: Site) -> DevicePool:
    """Return the devices of a site with lanes. Raises UserError for one that this machine lacks."""
    if site.devices is None:
        raise UserError(f"site '{site.name}': {site.parallel} lanes need `devices`.")
    kind = "gpu" if site.devices.gpu is not None else "cpu"
    asked = site.devices.gpu if kind == "gpu" else site.devices.cpu
    there = visible_gpus() if kind == "gpu" else tuple(map(str, sorted(os.sched_getaffinity(0))))
    ids = there if asked == "auto" else tuple(map(str, asked or ()))
    missing = [device for device in ids if device not in there]
    if missing or not ids:
        noun = kind.upper()
        lacking = f"there is no {noun} {', '.join(missing)} here" if missing else f"there is no {noun} here"
        known = f"this process may use {noun} {', '.join(there)}" if there else "this process sees none"
        remedy = f"Name some of these with --{kind}s." if there else "Use CPUs: --cpus auto."
        raise UserError(f"devices.{kind} of site '{site.name}': {lacking}; {known}. {remedy}")
    devices = [Device(kind="gpu" if kind == "gpu" else "cpu", id=device) for device in ids]
    return DevicePool(devices, site.devices.per_device)


def require_gpus(pool: DevicePool, site_name: str) -> None:
    """Raise UserError with a line for each GPU of a pool on which nothing can be allocated. GPUs that lanes of any
    run use now are known to work, and are left alone."""
    used = {name.partition(" slot ")[0] for name, _ in held_here()}
    gpus = [device.id for device in pool.devices if device.kind == "gpu" and str(device) not in used]
    with ThreadPoolExecutor(max_workers=8) as threads:
        problems = dict(zip(gpus, threads.map(cuda_problem, gpus), strict=True))
    mistakes = [
        f"devices.gpu of site '{site_name}': GPU {gpu} cannot be used: {why}. Look at nvidia-smi, or name others with"
        " --gpus."
        for gpu, why in problems.items()
        if why is not None
    ]
    if mistakes:
        raise UserError(*mistakes)


@contextmanager
def memory_released(slot: DeviceSlot, report: Callable[[str], object]) -> Iterator[None]:
    """Wait at the end until the driver has taken back the memory of processes that have ended on the slot's GPU, so
    that the next unit finds what this one found; after RELEASE_S go on, with a report.

    A process counts as ended if it was seen alive here: ids of other containers are never those of this /proc.
    """
    if slot.device.kind != "gpu":
        yield
        return
    with _watched(slot.device.id) as alive:
        yield
    end_s = time.monotonic() + RELEASE_S
    while left := [pid for pid in computing_on(slot.device.id) or () if pid in alive and not _lives(pid)]:
        if time.monotonic() > end_s:
            report(f"{slot.device}: memory of ended processes is still held after {RELEASE_S:g} s: {left}")
            return
        time.sleep(RELEASE_POLL_S)


@contextmanager
def _watched(gpu: str) -> Iterator[set[int]]:
    """Collect, in a thread, the ids of processes on a GPU that are alive on this machine."""
    alive: set[int] = set()
    ended = Event()

    def watch() -> None:
        while True:
            alive.update(pid for pid in computing_on(gpu) or () if _lives(pid))
            if ended.wait(WATCH_S):
                return

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield alive
    finally:
        ended.set()
        thread.join()


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def share_of(slot: DeviceSlot, pool: DevicePool, cores: Sequence[Core]) -> tuple[Mapping[str, str], tuple[int, ...]]:
    """Return what a unit's processes get on a slot of a machine with these cores: variables, and the CPUs that they
    are kept to, () for all.

    A CPU is the share itself. Beside a GPU each slot of the pool has equally many cores of its own, if there is one
    for each; fewer cores are shared by all.
    """
    variables = {DEVICE: slot.variable}
    if slot.device.kind == "cpu":
        return {**variables, THREADS: "1"}, (int(slot.device.id),)
    places = len(pool.devices) * pool.per_device
    own = len(cores) // places
    first = (pool.devices.index(slot.device) * pool.per_device + slot.number) * own
    cpus = tuple(cpu for core in cores[first : first + own] for cpu in core)
    return {**variables, **ORDER, CUDA: slot.device.id, THREADS: str(max(1, own))}, cpus


@contextmanager
def kept_to(slot: DeviceSlot, pool: DevicePool) -> Iterator[None]:
    """Keep this process, and those that it starts meanwhile, to the share of a slot."""
    variables, cpus = share_of(slot, pool, cores_here())
    allowed = os.sched_getaffinity(0)
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    if cpus:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
