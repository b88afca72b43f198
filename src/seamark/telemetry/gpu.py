"""NVIDIA GPUs by NVML (the distribution nvidia-ml-py). Their absence is logged once and is not an error."""

import os
from collections.abc import Callable, Iterator
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


def computing_on(gpu: str) -> frozenset[int] | None:
    """Return the ids of processes that hold memory of a GPU, by index or UUID; None where NVML cannot tell. They are
    ids of the host, which a container may not know."""
    try:
        nvml = _nvml()
        return frozenset(process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(_handle_of(nvml, gpu)))
    except Exception:  # no library, no driver or no such GPU: each has an exception of its own
        return None


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
