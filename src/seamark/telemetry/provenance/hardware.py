"""Hardware of a node as the kernel and NVML describe it: processors, memory, clock, GPUs, network."""

import ctypes
import math
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seamark.model.results.trial_meta import (
    Chrony,
    Clock,
    Gpu,
    Gpus,
    HugePages,
    InfinibandPort,
    Interface,
    KernelClock,
    Memory,
    Network,
    NumaNode,
    Processors,
)
from seamark.telemetry.kernel_files import (
    ROOT,
    common_value,
    numbered_entries,
    output_of,
    read_choice,
    read_number,
    read_text,
)

OPTIONS = ("mitigations", "isolcpus", "nohz_full", "intel_pstate", "amd_pstate", "intel_idle.max_cstate", "idle")
"""Kernel options that change the speed of processors."""


def cpu_model(root: Path = ROOT) -> str | None:
    """Return the processor's name."""
    return _of_cpuinfo(root, "model name") or platform.processor() or None


def processors(root: Path = ROOT) -> Processors:
    """Return model, sockets, cores, threads, clock limits in Hz, governor, turbo and NUMA nodes.

    A value that differs between CPUs begins with `mixed:`. None: unknown, as on many virtual machines.
    """
    folder = root / "sys/devices/system/cpu"
    clocks = [path / "cpufreq" for path in numbered_entries(folder, "cpu")]
    topology = [path / "topology" for path in numbered_entries(folder, "cpu")]
    cores = {(read_text(path / "physical_package_id"), read_text(path / "core_id")) for path in topology}
    sockets = {read_text(path / "physical_package_id") for path in topology} - {None}
    words = (read_text(root / "proc/cmdline") or "").split()
    return Processors(
        model=cpu_model(root),
        microcode=_of_cpuinfo(root, "microcode"),
        virtual="hypervisor" in (_of_cpuinfo(root, "flags") or "").split(),
        online=read_text(folder / "online"),
        isolated=read_text(folder / "isolated") or None,
        allowed=len(os.sched_getaffinity(0)),
        sockets=len(sockets) or None,
        cores=len(cores) if sockets else None,
        threads=len(topology),
        smt=read_text(folder / "smt/control"),
        governor=common_value(read_text(path / "scaling_governor") for path in clocks),
        driver=common_value(read_text(path / "scaling_driver") for path in clocks),
        preference=common_value(read_text(path / "energy_performance_preference") for path in clocks),
        least_hz=_hz(clocks, "scaling_min_freq"),
        most_hz=_hz(clocks, "scaling_max_freq"),
        hardware_most_hz=_hz(clocks, "cpuinfo_max_freq"),
        turbo=turbo(root),
        idle_driver=read_text(folder / "cpuidle/current_driver"),
        numa_nodes=tuple(_numa_node(path) for path in numbered_entries(root / "sys/devices/system/node", "node")),
        kernel_options=tuple(word for word in words if word.partition("=")[0] in OPTIONS),
    )


def turbo(root: Path = ROOT) -> bool | None:
    """Return whether processors may exceed their nominal clock, None if unknown."""
    folder = root / "sys/devices/system/cpu"
    off = read_number(folder / "intel_pstate/no_turbo")
    if off is not None:
        return off == 0
    boost = read_number(folder / "cpufreq/boost")
    return None if boost is None else boost == 1


def _hz(clocks: list[Path], name: str) -> str | int | None:
    values_khz = (read_number(path / name) for path in clocks)
    return common_value(None if khz is None else khz * 1000 for khz in values_khz)


def _numa_node(node: Path) -> NumaNode:
    lines = (line.split() for line in (read_text(node / "meminfo") or "").splitlines())
    kib = next((int(words[words.index("MemTotal:") + 1]) for words in lines if "MemTotal:" in words), None)
    return NumaNode(cpus=read_text(node / "cpulist"), memory_bytes=None if kib is None else kib * 1024)


def _of_cpuinfo(root: Path, name: str) -> str | None:
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip() or None
    return None


def memory(root: Path = ROOT) -> Memory:
    """Return memory and swap in bytes, huge pages by their size in kB, and kernel settings for pages."""
    sizes = meminfo(root)
    return Memory(
        total_bytes=sizes.get("MemTotal"),
        swap_bytes=sizes.get("SwapTotal"),
        transparent_hugepages=read_choice(root / "sys/kernel/mm/transparent_hugepage/enabled"),
        hugepages=_hugepages(root),
        numa_balancing=read_number(root / "proc/sys/kernel/numa_balancing"),
        swappiness=read_number(root / "proc/sys/vm/swappiness"),
    )


def meminfo(root: Path = ROOT) -> dict[str, int]:
    """Return the sizes of /proc/meminfo in bytes, without counts of pages."""
    sizes = {}
    for line in (read_text(root / "proc/meminfo") or "").splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[2] == "kB":
            sizes[fields[0].rstrip(":")] = int(fields[1]) * 1024
    return sizes


def _hugepages(root: Path) -> dict[str, HugePages]:
    pages = {}
    for folder in sorted((root / "sys/kernel/mm/hugepages").glob("hugepages-*")):
        size = folder.name.removeprefix("hugepages-")
        pages[size] = HugePages(
            total=read_number(folder / "nr_hugepages"), free=read_number(folder / "free_hugepages")
        )
    return pages


UNSYNCHRONISED, NANOSECONDS = 0x40, 0x2000
"""STA_UNSYNC and STA_NANO of <sys/timex.h>."""
CHRONY_WAIT_S = 3.0


class _Timex(ctypes.Structure):
    """struct timex of Linux on 64 bits."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        *((name, ctypes.c_long) for name in ("offset", "freq", "maxerror", "esterror")),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def clock(root: Path = ROOT) -> Clock:
    """Return the clock source, the kernel's estimate of its error in seconds, and chrony's state."""
    folder = root / "sys/devices/system/clocksource/clocksource0"
    return Clock(
        source=read_text(folder / "current_clocksource"),
        available=tuple((read_text(folder / "available_clocksource") or "").split()),
        kernel=kernel_state(),
        chrony=chrony(),
    )


def kernel_state() -> KernelClock | None:
    """Return whether the clock is synchronised, and its error in seconds, by adjtimex(2); None if that fails."""
    state = _Timex()
    try:
        if ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(state)) < 0:
            return None
    except (OSError, AttributeError):
        return None
    unit_s = 1e-9 if state.status & NANOSECONDS else 1e-6
    return KernelClock(
        synchronised=not state.status & UNSYNCHRONISED,
        offset_s=state.offset * unit_s,
        estimated_error_s=state.esterror * 1e-6,
        most_error_s=state.maxerror * 1e-6,
        frequency_ppm=round(state.freq / 65536, 6),
    )


def chrony() -> Chrony | None:
    """Return the state of `chronyc tracking`, offset in seconds (positive: this clock is fast); None without
    chrony."""
    cells = (output_of("chronyc", "-c", "tracking", within_s=CHRONY_WAIT_S) or "").split(",")
    try:
        slow_s, rms_s, delay_s, dispersion_s = (float(cells[column]) for column in (4, 6, 10, 11))
    except (IndexError, ValueError):
        return None
    if not all(map(math.isfinite, (slow_s, rms_s, delay_s, dispersion_s))):
        return None
    return Chrony(
        server=cells[1] or None,
        stratum=int(cells[2]),
        offset_s=-slow_s,
        rms_offset_s=rms_s,
        most_error_s=abs(slow_s) + dispersion_s + delay_s / 2,
        leap=cells[13] if len(cells) > 13 else None,
    )


DRIVER = ("proc/driver/nvidia/version", "dev/nvidiactl")
SM, MEMORY = 1, 2
"""NVML_CLOCK_SM and NVML_CLOCK_MEM."""


def gpus(root: Path = ROOT) -> Gpus:
    """Return driver, CUDA version and every GPU visible to this process; the reason if there is none.

    Power in watts, clocks in Hz, memory in bytes. A figure that a GPU lacks is None. The library is not imported
    without a driver.
    """
    if not any((root / name).exists() for name in DRIVER):
        return Gpus(reason="no NVIDIA driver")
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as cause:  # a broken driver is a fact about the node and no reason to lose a trial
        return Gpus(reason=f"NVML: {type(cause).__name__}: {cause}")
    try:
        return _gpus(pynvml)
    except Exception as cause:
        return Gpus(reason=f"NVML: {type(cause).__name__}: {cause}")
    finally:
        _figure(pynvml, pynvml.nvmlShutdown)


def _gpus(nvml: Any) -> Gpus:
    cuda = _figure(nvml, nvml.nvmlSystemGetCudaDriverVersion)
    handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
    return Gpus(
        driver=_decoded(_figure(nvml, nvml.nvmlSystemGetDriverVersion)),
        cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        devices=tuple(_device(nvml, handle) for handle in handles),
    )


def _device(nvml: Any, handle: Any) -> Gpu:
    def figure(name: str, *more: Any) -> Any:
        return _figure(nvml, lambda: getattr(nvml, name)(handle, *more))

    def first(name: str) -> bool | None:
        pair = figure(name)
        return None if pair is None else bool(pair[0])

    memory = figure("nvmlDeviceGetMemoryInfo")
    persistence = figure("nvmlDeviceGetPersistenceMode")
    return Gpu(
        name=_decoded(figure("nvmlDeviceGetName")),
        uuid=_decoded(figure("nvmlDeviceGetUUID")),
        vbios=_decoded(figure("nvmlDeviceGetVbiosVersion")),
        memory_bytes=None if memory is None else memory.total,
        power_cap_w=_scaled(figure("nvmlDeviceGetEnforcedPowerLimit"), 1e-3),
        default_power_cap_w=_scaled(figure("nvmlDeviceGetPowerManagementDefaultLimit"), 1e-3),
        sm_hz=_scaled(figure("nvmlDeviceGetClockInfo", SM), 1e6),
        most_sm_hz=_scaled(figure("nvmlDeviceGetMaxClockInfo", SM), 1e6),
        most_memory_hz=_scaled(figure("nvmlDeviceGetMaxClockInfo", MEMORY), 1e6),
        set_sm_hz=_scaled(figure("nvmlDeviceGetApplicationsClock", SM), 1e6),
        set_memory_hz=_scaled(figure("nvmlDeviceGetApplicationsClock", MEMORY), 1e6),
        ecc=first("nvmlDeviceGetEccMode"),
        mig=first("nvmlDeviceGetMigMode"),
        persistence=None if persistence is None else bool(persistence),
        throttled_by=figure("nvmlDeviceGetCurrentClocksThrottleReasons"),
    )


def _figure(nvml: Any, read: Callable[[], Any]) -> Any:
    """Return a figure; None where this GPU, driver or version of the library lacks it."""
    try:
        return read()
    except (nvml.NVMLError, AttributeError):
        return None


def _decoded(value: Any) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else round(value * scale, 3)


def network(root: Path = ROOT) -> Network:
    """Return InfiniBand (and RoCE) ports, and the speed and MTU of each active interface."""
    return Network(infiniband=infiniband(root), interfaces=interfaces(root))


def infiniband(root: Path = ROOT) -> tuple[InfinibandPort, ...]:
    """Return each port of each adapter: state, rate in bit/s, firmware; empty without an adapter."""
    folder = root / "sys/class/infiniband"
    adapters = sorted(folder.iterdir()) if folder.is_dir() else []
    return tuple(_port(adapter, port) for adapter in adapters for port in numbered_entries(adapter / "ports", ""))


def _port(adapter: Path, port: Path) -> InfinibandPort:
    rate = read_text(port / "rate")
    return InfinibandPort(
        adapter=adapter.name,
        port=int(port.name),
        type=read_text(adapter / "hca_type"),
        board=read_text(adapter / "board_id"),
        firmware=read_text(adapter / "fw_ver"),
        state=_word(read_text(port / "state")),
        physical_state=_word(read_text(port / "phys_state")),
        link_layer=read_text(port / "link_layer"),
        rate=rate,
        rate_bit_per_s=_bits(rate),
    )


def _word(state: str | None) -> str | None:
    """Return the name in `4: ACTIVE`."""
    return None if state is None else state.partition(":")[2].strip() or state


def _bits(rate: str | None) -> float | None:
    """Return bit/s of `200 Gb/sec (4X HDR)`."""
    match = re.match(r"([\d.]+)\s*Gb/sec", rate or "")
    return None if match is None else float(match.group(1)) * 1e9


def interfaces(root: Path = ROOT) -> tuple[Interface, ...]:
    """Return name, driver, speed in bit/s and MTU in bytes of active interfaces, without the loopback."""
    folder = root / "sys/class/net"
    active = []
    for interface in sorted(folder.iterdir()) if folder.is_dir() else []:
        if interface.name == "lo" or read_text(interface / "operstate") == "down":
            continue
        speed = read_number(interface / "speed")
        driver = interface / "device/driver"
        active.append(
            Interface(
                name=interface.name,
                driver=driver.resolve().name if driver.exists() else None,
                speed_bit_per_s=speed * 1e6 if speed is not None and speed > 0 else None,
                mtu_bytes=read_number(interface / "mtu"),
            )
        )
    return tuple(active)
