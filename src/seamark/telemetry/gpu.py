"""NVIDIA GPUs by NVML (the distribution nvidia-ml-py). Their absence is logged once and is not an error."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from seamark.telemetry.sampler import Reading, Say


def chosen_gpus(count: int) -> tuple[str, ...]:
    """Return the GPUs of a deployment with `count` of them, by index or UUID.

    The first of CUDA_VISIBLE_DEVICES if the batch system or the user set it; else the machine's first.
    """
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return tuple(map(str, range(count)))
    return tuple(word.strip() for word in listed.split(",") if word.strip())[:count]


def visible_gpus() -> tuple[str, ...]:
    """Return the GPUs that this process may use, by index or UUID: those of CUDA_VISIBLE_DEVICES if it is set, else
    all that NVML counts; () without NVML."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return tuple(word.strip() for word in listed.split(",") if word.strip())
    try:
        return tuple(map(str, range(_nvml().nvmlDeviceGetCount())))
    except Exception:  # no library, no driver or no GPU: each has an exception of its own
        return ()


def _nvml() -> Any:
    import pynvml

    pynvml.nvmlInit()
    return pynvml


def _handle_of(nvml: Any, gpu: str) -> Any:
    """Return NVML's handle of a GPU by index or UUID."""
    return nvml.nvmlDeviceGetHandleByIndex(int(gpu)) if gpu.isdigit() else nvml.nvmlDeviceGetHandleByUUID(gpu)


def devices_of(gpus: Iterable[str] | None = None) -> dict[str, str | None]:
    """Return the UUIDs of the devices of some GPUs by index or UUID, None for all that NVML counts: of one in MIG
    mode those of its slices, each with its profile, such as 3g.20gb; else its own, with None. {} where NVML cannot
    tell."""
    try:
        nvml = _nvml()
        names = map(str, range(nvml.nvmlDeviceGetCount())) if gpus is None else gpus
        handles = [handle for gpu in names for handle in _parts(nvml, _handle_of(nvml, gpu))]
        # "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
        named = {nvml.nvmlDeviceGetUUID(handle): nvml.nvmlDeviceGetName(handle) for handle in handles}
        return {uuid: name.partition(" MIG ")[2] or None for uuid, name in named.items()}
    except Exception:  # no library, no driver or no such GPU: each has an exception of its own
        return {}


def _parts(nvml: Any, handle: Any) -> list[Any]:
    """Return the handles of a GPU's MIG slices, or its own."""
    try:
        if nvml.nvmlDeviceGetMigMode(handle)[0] == 0:
            return [handle]
    except nvml.NVMLError:  # a model without MIG, or a slice
        return [handle]
    slices = []
    for number in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with suppress(nvml.NVMLError):  # the numbers have gaps
            slices.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))
    return slices


def computing_on(gpu: str) -> frozenset[int] | None:
    """Return the ids of processes that hold memory of a GPU or a slice, by index or UUID, clients of MPS included;
    None where NVML cannot tell. They are ids of the host, which a container may not know."""
    try:
        nvml = _nvml()
        handle = _handle_of(nvml, gpu)
        found = frozenset(process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except Exception:  # no library, no driver or no such GPU: each has an exception of its own
        return None
    with suppress(Exception):  # an older driver has no such list
        found |= {process.pid for process in nvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)}
    return found


def working_on(gpu: str, within_s: float) -> frozenset[int]:
    """Return the ids of processes that kept multiprocessors of a GPU busy in the last seconds; none where NVML cannot
    tell."""
    try:
        nvml = _nvml()
        since_us = int((time.time() - within_s) * 1e6)
        samples = nvml.nvmlDeviceGetProcessUtilization(_handle_of(nvml, gpu), since_us)
        return frozenset(sample.pid for sample in samples if sample.smUtil > 0)
    except Exception:  # also where there is no sample
        return frozenset()


class Gpus:
    """Utilisation, memory, power, energy, temperature and clock of the GPUs of a deployment."""

    def __init__(self, count: int, say: Say) -> None:
        self._nvml: Any = None
        self._handles: list[tuple[str, Any]] = []
        try:
            self._nvml = _nvml()
            self._handles = [(f"gpu{k}", _handle_of(self._nvml, gpu)) for k, gpu in enumerate(chosen_gpus(count))]
        except Exception as cause:
            say("no-gpu-telemetry", reason=f"{type(cause).__name__}: {cause}")

    def read(self) -> Iterator[Reading]:
        """Yield the metrics of each GPU, without those that a model lacks."""
        nvml = self._nvml
        for source, handle in self._handles:
            figures: tuple[tuple[str, str, Callable[[], float]], ...] = (
                ("util_ratio", "ratio", lambda h=handle: nvml.nvmlDeviceGetUtilizationRates(h).gpu / 100),  # type: ignore[misc]
                ("memory_used_bytes", "bytes", lambda h=handle: nvml.nvmlDeviceGetMemoryInfo(h).used),  # type: ignore[misc]
                ("power_w", "W", lambda h=handle: nvml.nvmlDeviceGetPowerUsage(h) / 1e3),  # type: ignore[misc]
                ("energy_j", "J", lambda h=handle: nvml.nvmlDeviceGetTotalEnergyConsumption(h) / 1e3),  # type: ignore[misc]
                ("temperature_c", "C", lambda h=handle: nvml.nvmlDeviceGetTemperature(h, 0)),  # type: ignore[misc]
                ("clock_hz", "Hz", lambda h=handle: nvml.nvmlDeviceGetClockInfo(h, 0) * 1e6),  # type: ignore[misc]
            )
            for name, unit, figure in figures:
                try:
                    yield Reading(source=source, name=name, value=float(figure()), unit=unit)
                except nvml.NVMLError:
                    continue
