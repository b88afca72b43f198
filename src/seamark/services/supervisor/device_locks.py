"""Locks of a node's devices: which lane of which run is on a GPU or CPU. A lane that is killed frees its slot.

A device has slots, one lock file each. A run takes slots of a device only while no other run is on it. The kernel
releases the lock of a killed lane; the file then still names its deployment, whose server is ended before the device
is taken again.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from seamark.dispatch.identity import allocation
from seamark.model.results.deployment_record import LockHolder
from seamark.model.results.load_record import DeviceRecord
from seamark.model.results.values import Word
from seamark.platform.fork_server.protocol import DEVICE
from seamark.platform.process_tree import with_mark
from seamark.services.supervisor.control_files import control_files_of, read_heartbeat
from seamark.services.supervisor.deployment import stop
from seamark.services.supervisor.node_locks import POLL_S, REPORT_AFTER_S, node_folder, open_lock, try_lock
from seamark.storage.codec import encode, parse
from seamark.storage.paths import DeploymentFolder

CHOOSING = "devices.lock"


@dataclass(frozen=True, kw_only=True)
class Device:
    """A GPU, by the word that CUDA_VISIBLE_DEVICES has for it, or a CPU by its number."""

    kind: Literal["gpu", "cpu"]
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


@dataclass(frozen=True, kw_only=True)
class SlotHolder(LockHolder):
    """The lane that holds a slot: its run, and the folder of the deployment that it serves."""

    run: Word = None
    folder: Word = None


@dataclass(frozen=True, kw_only=True)
class DeviceSlot:
    """A place on a device that this process holds. `number` counts from 0."""

    device: Device
    number: int

    @property
    def variable(self) -> str:
        """Value of the environment variable DEVICE in every process that is kept to this slot."""
        return json.dumps(encode(DeviceRecord(kind=self.device.kind, id=self.device.id, slot=self.number)))


class DevicePool:
    """The devices of one run on this node, at most `per_device` lanes on each at a time."""

    def __init__(self, devices: Sequence[Device], per_device: int) -> None:
        self.devices = tuple(devices)
        self.per_device = per_device

    @contextmanager
    def taken(
        self, holder: SlotHolder, on_wait: Callable[[], object], on_report: Callable[[LockHolder], object]
    ) -> Iterator[DeviceSlot]:
        """Wait, without a limit, for a slot on the device with the fewest lanes, and hold it.

        While it waits, `on_wait` is called every POLL_S, and what it raises ends the waiting; after REPORT_AFTER_S
        `on_report` gets a present holder each time.
        """
        began_s = time.monotonic()
        while (found := self._take(holder)) is None:
            on_wait()
            if time.monotonic() - began_s > REPORT_AFTER_S and (others := self._holders()):
                on_report(others[0])
            time.sleep(POLL_S)
        slot, file = found
        try:
            yield slot
        finally:
            file.truncate(0)
            file.close()

    def _take(self, holder: SlotHolder) -> tuple[DeviceSlot, TextIO] | None:
        with _choosing():
            free: list[tuple[int, int, int]] = []
            for index, device in enumerate(self.devices):
                others = {number: other for number in slots_of(device) if (other := _holder_of(device, number))}
                unused = [number for number in range(self.per_device) if number not in others]
                if unused and all(other.run == holder.run for other in others.values()):
                    free.append((len(others), index, unused[0]))
            if not free:
                return None
            _, index, number = min(free)
            device = self.devices[index]
            file = try_lock(_name(device, number))
            if file is None:
                return None
            _write(file, holder)
            return DeviceSlot(device=device, number=number), file

    def _holders(self) -> list[SlotHolder]:
        return [
            each for device in self.devices for number in slots_of(device) if (each := _holder_of(device, number))
        ]


def slots_of(device: Device) -> list[int]:
    """Return the numbers of the slots of a device that any run has used on this node."""
    name = _name(device, 0).removesuffix("0.lock")
    words = [path.name.removeprefix(name).removesuffix(".lock") for path in node_folder().glob(f"{name}*.lock")]
    return sorted(int(word) for word in words if word.isdigit())


def held_here() -> list[tuple[str, SlotHolder]]:
    """Return the slots of this node that lanes of this user hold, as `gpu 0 slot 0`, each with its lane. A killed
    lane's server is not ended here."""
    begin = f"device-{allocation() or 'here'}-"
    found = []
    for path in sorted(node_folder().glob(f"{begin}*.lock")):
        free = try_lock(path.name, shared=True)
        if free is not None:
            free.close()
            continue
        kind, _, rest = path.name.removeprefix(begin).removesuffix(".lock").partition("-")
        word, _, number = rest.rpartition(".")
        with suppress(OSError, ValueError):
            found.append((f"{kind} {word} slot {number}", parse(path.read_text(encoding="utf-8"), SlotHolder)))
    return found


def _holder_of(device: Device, number: int) -> SlotHolder | None:
    """Return the lane that holds a slot, None for a free one. The server that a killed lane left there is ended."""
    file = try_lock(_name(device, number))
    if file is None:
        with suppress(OSError, ValueError), open_lock(_name(device, number)) as held:
            return parse(held.read(), SlotHolder)
        return SlotHolder()
    with file:
        if text := file.read():
            _end_left(text, DeviceSlot(device=device, number=number))
            file.truncate(0)
    return None


def _end_left(text: str, slot: DeviceSlot) -> None:
    """End the server that a killed lane left on a slot. Its load ends by itself, with its parent process."""
    with suppress(ValueError):
        if folder := parse(text, SlotHolder).folder:
            left = DeploymentFolder(root=Path(folder))
            heartbeat = read_heartbeat(control_files_of(left))
            # else the deployment is served on another device by now
            if heartbeat and heartbeat.pid in with_mark(f"{DEVICE}={slot.variable}"):
                stop(left, "evicted")


def _name(device: Device, number: int) -> str:
    word = "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in device.id)
    return f"device-{allocation() or 'here'}-{device.kind}-{word}.{number}.lock"


def _write(file: TextIO, holder: SlotHolder) -> None:
    file.seek(0)
    file.truncate(0)
    file.write(json.dumps(encode(holder)))
    file.flush()


@contextmanager
def _choosing() -> Iterator[None]:
    """Let one lane of this user choose at a time."""
    with open_lock(CHOOSING) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def device_of_lane() -> DeviceRecord | None:
    """Return the device that this process is kept to, None outside of a lane."""
    text = os.environ.get(DEVICE)
    if not text:
        return None
    with suppress(ValueError):
        return parse(text, DeviceRecord)
    return None


def device_used(since_unix_ns: int | None = None) -> DeviceRecord | None:
    """Return the device of this lane, and whether other lanes were on it since a time; None outside of a lane."""
    own = device_of_lane()
    if own is None or since_unix_ns is None:
        return own
    device = Device(kind="gpu" if own.kind == "gpu" else "cpu", id=own.id)
    shared = any(_used(device, number, since_unix_ns) for number in slots_of(device) if number != own.slot)
    return DeviceRecord(kind=own.kind, id=own.id, slot=own.slot, shared=shared)


def _used(device: Device, number: int, since_unix_ns: int) -> bool:
    """Return whether a slot is held, or was taken or freed since then: each of these writes its file."""
    path = node_folder() / _name(device, number)
    with _choosing():
        if path.stat().st_mtime_ns >= since_unix_ns:
            return True
        file = try_lock(_name(device, number))
        if file is not None:
            file.close()
        return file is None
