"""Devices of a site's lanes on this machine, and what a unit's processes see of theirs."""

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from shlex import quote
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import pytest

from seamark.errors import UserError
from seamark.model.site import Devices, Site
from seamark.platform.cuda_allocation import allocation_error, cuda_problem
from seamark.platform.fork_server.client import fork
from seamark.services.supervisor.device_locks import Device, DevicePool, DeviceSlot
from seamark.trials import lane_device
from seamark.trials.lane_device import kept_to, memory_released, pool_here, require_gpus, share_of

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
    assert [cpus for _, cpus in shares] == [(0, 8, 1, 9), (2, 10, 3, 11), (4, 12, 5, 13), (6, 14, 7, 15)]
    assert [variables["CUDA_VISIBLE_DEVICES"] for variables, _ in shares] == ["6", "6", "7", "7"]
    assert {variables["OMP_NUM_THREADS"] for variables, _ in shares} == {"2"}
    few, cpus = share_of(slots[0], pool, CORES[:3])
    assert (cpus, few["OMP_NUM_THREADS"]) == ((), "1")


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


class Driver:
    """A CUDA driver by hand: every call succeeds but `failing`, with the error OUT_OF_MEMORY."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.called.append(name)
            if name == "cuGetErrorName":
                arguments[1]._obj.value = b"CUDA_ERROR_OUT_OF_MEMORY"
            return 2 if name == self.failing else 0

        return call


def test_a_gpu_is_tried_by_an_allocation_that_is_given_back() -> None:
    good, full = Driver(), Driver("cuMemAlloc_v2")
    assert allocation_error(good) is None
    assert good.called[-3:] == ["cuMemAlloc_v2", "cuMemFree_v2", "cuDevicePrimaryCtxRelease_v2"]
    assert allocation_error(full) == "CUDA_ERROR_OUT_OF_MEMORY"


LIBRARY = """
int cuInit(unsigned f) { return 0; }
int cuDeviceGet(int *d, int n) { *d = 0; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = 0; return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuMemAlloc_v2(unsigned long long *p, unsigned long n) { return OUTCOME; }
int cuMemFree_v2(unsigned long long p) { return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { return 0; }
int cuGetErrorName(int e, const char **s) { *s = "CUDA_ERROR_OUT_OF_MEMORY"; return 0; }
"""


@pytest.fixture
def no_driver() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    pytest.skip("this machine has a CUDA driver")


@pytest.mark.slow
@pytest.mark.usefixtures("no_driver")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(("code", "problem"), [(0, None), (2, "CUDA_ERROR_OUT_OF_MEMORY")])
def test_a_process_of_its_own_tries_a_gpu_by_the_driver(
    code: int, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver is a library of the test's own, found as the real one is."""
    assert cuda_problem("0") is None, "without a driver nothing is known"
    (tmp_path / "cuda.c").write_text(LIBRARY.replace("OUTCOME", str(code)))
    library = ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), str(tmp_path / "cuda.c")]
    subprocess.run(library, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert cuda_problem("0") == problem
    if problem:
        with pytest.raises(UserError) as caught:
            require_gpus(pool_of("gpu", "0,1"), "mine")
        assert [line.partition(": ")[2] for line in caught.value.lines] == [
            f"GPU {gpu} cannot be used: {problem}. Look at nvidia-smi, or name others with --gpus." for gpu in (0, 1)
        ]
    else:
        require_gpus(pool_of("gpu", "0,1"), "mine")


@pytest.mark.slow
@pytest.mark.covers("B2")
def test_the_memory_of_a_gpu_is_seen_to_be_free_before_the_next_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML lists a process for a while after its end; that of a neighbour, which lives, and foreign ids stay."""
    nvml = ModuleType("pynvml")
    listed = [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=2**22 + 1)]  # the latter of another container
    nvml.nvmlInit = lambda: None  # type: ignore[attr-defined]
    nvml.nvmlDeviceGetHandleByIndex = int  # type: ignore[attr-defined]
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda handle: list(listed)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(lane_device, "WATCH_S", 0.02)
    monkeypatch.setattr(lane_device, "RELEASE_S", 0.4)
    said: list[str] = []
    slot = DeviceSlot(device=Device(kind="gpu", id="3"), number=0)
    for held_s in (0.1, 60.0):
        with memory_released(slot, said.append), subprocess.Popen(["sleep", "0.3"]) as unit:
            own = SimpleNamespace(pid=unit.pid)
            listed.append(own)
            given_back = threading.Timer(0.3 + held_s, listed.remove, [own])
            given_back.daemon = True
            given_back.start()
        assert bool(said) == (held_s == 60.0)
    given_back.cancel()
    assert said == [f"gpu 3: memory of ended processes is still held after 0.4 s: [{own.pid}]"]
