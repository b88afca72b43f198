"""NVIDIA GPUs of the node as NVML shows them: what they are, and what limits them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seamark.telemetry.provenance.text import ROOT

Facts = dict[str, Any]
DRIVER = ("proc/driver/nvidia/version", "dev/nvidiactl")
SM, MEMORY = 1, 2
"""NVML_CLOCK_SM and NVML_CLOCK_MEM."""


def gpus(root: Path = ROOT) -> Facts:
    """Return driver, CUDA version and every GPU that this process may see; without any, the reason.

    Power in watts, clocks in Hz, memory in bytes. A figure that a model of GPU does not have is None. The library is
    not even looked for where there is no driver.
    """
    found: Facts = {"reason": None, "driver": None, "cuda": None, "devices": []}
    if not any((root / name).exists() for name in DRIVER):
        return found | {"reason": "no NVIDIA driver"}
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as cause:  # a broken driver is a fact about the node and no reason to lose a trial
        return found | {"reason": f"NVML: {type(cause).__name__}: {cause}"}
    try:
        return found | _driver(pynvml) | {"devices": _devices(pynvml)}
    except Exception as cause:
        return found | {"reason": f"NVML: {type(cause).__name__}: {cause}"}
    finally:
        _said(pynvml, pynvml.nvmlShutdown)


def _driver(nvml: Any) -> Facts:
    cuda = _said(nvml, nvml.nvmlSystemGetCudaDriverVersion)
    return {
        "driver": _words(_said(nvml, nvml.nvmlSystemGetDriverVersion)),
        "cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
    }


def _devices(nvml: Any) -> list[Facts]:
    return [_device(nvml, nvml.nvmlDeviceGetHandleByIndex(place)) for place in range(nvml.nvmlDeviceGetCount())]


def _device(nvml: Any, handle: Any) -> Facts:
    def say(name: str, *more: Any) -> Any:
        return _said(nvml, lambda: getattr(nvml, name)(handle, *more))

    def first(name: str) -> bool | None:
        pair = say(name)
        return None if pair is None else bool(pair[0])

    memory = say("nvmlDeviceGetMemoryInfo")
    persistence = say("nvmlDeviceGetPersistenceMode")
    return {
        "name": _words(say("nvmlDeviceGetName")),
        "uuid": _words(say("nvmlDeviceGetUUID")),
        "vbios": _words(say("nvmlDeviceGetVbiosVersion")),
        "memory_bytes": None if memory is None else memory.total,
        "power_cap_w": _scaled(say("nvmlDeviceGetEnforcedPowerLimit"), 1e-3),
        "default_power_cap_w": _scaled(say("nvmlDeviceGetPowerManagementDefaultLimit"), 1e-3),
        "sm_hz": _scaled(say("nvmlDeviceGetClockInfo", SM), 1e6),
        "most_sm_hz": _scaled(say("nvmlDeviceGetMaxClockInfo", SM), 1e6),
        "most_memory_hz": _scaled(say("nvmlDeviceGetMaxClockInfo", MEMORY), 1e6),
        "set_sm_hz": _scaled(say("nvmlDeviceGetApplicationsClock", SM), 1e6),
        "set_memory_hz": _scaled(say("nvmlDeviceGetApplicationsClock", MEMORY), 1e6),
        "ecc": first("nvmlDeviceGetEccMode"),
        "mig": first("nvmlDeviceGetMigMode"),
        "persistence": None if persistence is None else bool(persistence),
        "throttled_by": say("nvmlDeviceGetCurrentClocksThrottleReasons"),
    }


def _said(nvml: Any, figure: Callable[[], Any]) -> Any:
    """Return a figure; None where this GPU, this driver or this version of the library does not have it."""
    try:
        return figure()
    except (nvml.NVMLError, AttributeError):
        return None


def _words(value: Any) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else round(value * scale, 3)
