"""Devices of a site's lanes on this machine, and what a unit's processes see of theirs."""

import os
import subprocess
import sys
from dataclasses import replace
from shlex import quote
from typing import Literal

import pytest

from seamark.errors import UserError
from seamark.model.site import Devices, Site
from seamark.platform.fork_server.client import fork
from seamark.services.supervisor.device_locks import Device, DevicePool, DeviceSlot
from seamark.trials.lane_device import kept_to, pool_here, share_of

SITE = Site(name="mine", summary="", parallel=2)
CORES = [(0, 8), (1, 9), (2, 10), (3, 11), (4, 12), (5, 13), (6, 14), (7, 15)]
SEES = 'import os, sys; print(sorted(os.sched_getaffinity(0)), os.environ.get("CUDA_VISIBLE_DEVICES"))'


def pool_of(kind: Literal["gpu", "cpu"], ids: str, per_device: int = 1) -> DevicePool:
    return DevicePool([Device(kind=kind, id=each) for each in ids.split(",")], per_device)


@pytest.mark.covers("B3", "B8")
def test_gpus_are_those_that_the_environment_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 5,GPU-8f6a")
    every = pool_here(replace(SITE, devices=Devices(gpu="auto", per_device=3)))
    assert ([device.id for device in every.devices], every.per_device) == (["2", "5", "GPU-8f6a"], 3)
    some = pool_here(replace(SITE, devices=Devices(gpu=(5,))))
    assert [str(device) for device in some.devices] == ["gpu 5"]
    with pytest.raises(
        UserError, match=r"there is no GPU 0 here; this process may use GPU 2, 5, GPU-8f6a\. Name some"
    ):
        pool_here(replace(SITE, devices=Devices(gpu=(0, 5))))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match=r"there is no GPU here; this process sees none\. Use CPUs: --cpus auto"):
        pool_here(replace(SITE, devices=Devices(gpu="auto")))


def test_cpus_are_those_that_this_process_may_use() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    every = pool_here(replace(SITE, devices=Devices(cpu="auto")))
    assert [int(device.id) for device in every.devices] == allowed
    with pytest.raises(UserError, match=r"there is no CPU 9999 here; this process may use CPU"):
        pool_here(replace(SITE, devices=Devices(cpu=(allowed[0], 9999))))


def test_gpu_lanes_have_cores_of_their_own_and_share_them_where_there_are_too_few() -> None:
    pool = pool_of("gpu", "6,7", 2)
    slots = [DeviceSlot(device=device, number=number) for device in pool.devices for number in range(2)]
    shares = [share_of(slot, pool, CORES) for slot in slots]
    assert [share.cpus for share in shares] == [(0, 8, 1, 9), (2, 10, 3, 11), (4, 12, 5, 13), (6, 14, 7, 15)]
    assert [share.variables["CUDA_VISIBLE_DEVICES"] for share in shares] == ["6", "6", "7", "7"]
    assert {share.variables["OMP_NUM_THREADS"] for share in shares} == {"2"}
    few = share_of(slots[0], pool, CORES[:3])
    assert (few.cpus, few.variables["OMP_NUM_THREADS"]) == ((), "1")


@pytest.mark.slow
@pytest.mark.covers("B8")
def test_children_and_jobs_of_a_fork_server_see_the_device_of_their_unit(capfd: pytest.CaptureFixture[str]) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    pool = pool_of("cpu", ",".join(map(str, cpus)))
    for device in pool.devices:  # one fork server for both, as for two units of a lane
        with kept_to(DeviceSlot(device=device, number=0), pool):
            child = subprocess.run([sys.executable, "-S", "-c", SEES], capture_output=True, text=True, check=True)
            job = fork("os:system", [f"{sys.executable} -S -c {quote(SEES)}"], owner=os.getpid(), files=(0, 1, 2))
            assert job is None or job.wait() == 0
        assert child.stdout.startswith(f"[{device.id}]")
        assert job is None or capfd.readouterr().out.startswith(f"[{device.id}]")
    assert sorted(os.sched_getaffinity(0))[:2] == cpus, "this process is as it was"
    assert "SEAMARK_DEVICE" not in os.environ
    gpus, before = pool_of("gpu", "3"), os.environ.get("CUDA_VISIBLE_DEVICES")
    with kept_to(DeviceSlot(device=gpus.devices[0], number=0), gpus):
        child = subprocess.run([sys.executable, "-S", "-c", SEES], capture_output=True, text=True, check=True)
    assert child.stdout.split()[-1] == "3"
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before
