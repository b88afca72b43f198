"""Locks of devices: the least loaded one first, one run on a device, and whether a load was alone on its device."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from seamark.platform.fork_server.protocol import DEVICE
from seamark.services.supervisor.device_locks import (
    Device,
    DevicePool,
    DeviceSlot,
    SlotHolder,
    device_of_lane,
    device_used,
    held_here,
)

CPUS = [Device(kind="cpu", id="0"), Device(kind="cpu", id="1")]


class WouldWaitError(Exception):
    """A lane would have to wait."""


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAMARK_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def take(held: ExitStack, pool: DevicePool, run: str = "one") -> DeviceSlot:
    """Take a slot. Raises WouldWaitError where none is free."""

    def on_wait() -> None:
        raise WouldWaitError

    holder = SlotHolder(pid=os.getpid(), run=run)
    return held.enter_context(pool.taken(holder, on_wait, lambda _: None))


def place(slot: DeviceSlot) -> tuple[str, int]:
    return str(slot.device), slot.number


@pytest.mark.covers("B5")
def test_who_holds_which_slot_is_listed_and_free_slots_are_not(held: ExitStack) -> None:
    pool = DevicePool([Device(kind="gpu", id="0"), Device(kind="gpu", id="GPU-1b-2")], 2)
    with ExitStack() as first:
        take(first, pool, run="one")
        take(held, pool, run="one")
        assert [(name, holder.run) for name, holder in held_here()] == [
            ("gpu 0 slot 0", "one"),
            ("gpu GPU-1b-2 slot 0", "one"),
        ]
    assert [name for name, _ in held_here()] == ["gpu GPU-1b-2 slot 0"]
    with pytest.raises(WouldWaitError):
        take(held, DevicePool(pool.devices[1:], 2), run="two")


@pytest.mark.covers("B7")
def test_a_lane_takes_the_device_with_the_fewest_lanes_and_waits_when_all_are_full(held: ExitStack) -> None:
    pool = DevicePool(CPUS, 2)
    first = [place(take(held, pool)) for _ in range(4)]
    assert first == [("cpu 0", 0), ("cpu 1", 0), ("cpu 0", 1), ("cpu 1", 1)]
    with pytest.raises(WouldWaitError):
        take(held, pool)


@pytest.mark.covers("B7")
def test_a_device_is_given_back_whatever_happens(held: ExitStack) -> None:
    pool = DevicePool(CPUS[:1], 1)
    holder = SlotHolder(pid=os.getpid(), run="one")
    with suppress(ZeroDivisionError), pool.taken(holder, pytest.fail, pytest.fail):
        with pytest.raises(WouldWaitError):
            take(held, pool)
        raise ZeroDivisionError
    assert place(take(held, pool)) == ("cpu 0", 0)


def test_a_device_of_another_run_is_not_taken_even_if_it_has_room(held: ExitStack) -> None:
    pool = DevicePool(CPUS, 4)
    assert place(take(held, pool, run="one")) == ("cpu 0", 0)
    assert [place(take(held, pool, run="two")) for _ in range(3)] == [("cpu 1", number) for number in range(3)]
    with pytest.raises(WouldWaitError):
        take(held, pool, run="three")


def test_a_gpu_and_a_cpu_of_one_number_are_two_devices(held: ExitStack) -> None:
    take(held, DevicePool([Device(kind="cpu", id="0")], 1), run="one")
    slot = take(held, DevicePool([Device(kind="gpu", id="0"), Device(kind="gpu", id="MIG-1/2")], 1), run="two")
    assert place(slot) == ("gpu 0", 0)


@pytest.mark.parametrize(
    ("other_before", "other_during", "shared"), [(False, False, False), (True, False, False), (False, True, True)]
)
def test_a_load_knows_whether_other_lanes_were_on_its_device(
    *, other_before: bool, other_during: bool, shared: bool, held: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = DevicePool(CPUS[:1], 2)
    own = take(held, pool)
    monkeypatch.setenv(DEVICE, own.variable)
    if other_before:
        with ExitStack() as other:
            take(other, pool)
        time.sleep(0.02)
    since_unix_ns = time.time_ns()
    if other_during:
        with ExitStack() as other:
            take(other, pool)
    used = device_used(since_unix_ns)
    assert used is not None
    assert (used.kind, used.id, used.slot, used.shared) == ("cpu", "0", 0, shared)
    with ExitStack() as other:
        take(other, pool)
        later = device_used(time.time_ns() + 10**9)
        assert later is not None
        assert later.shared, "the other is there at the end"


def test_outside_of_a_lane_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEVICE, raising=False)
    assert device_of_lane() is None
    assert device_used(0) is None
    monkeypatch.setenv(DEVICE, "not ours")
    assert device_of_lane() is None
