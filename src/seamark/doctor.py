"""Whether this machine can measure, and what would make its numbers worse. Looks only; changes nothing."""

import os
import resource
import shutil
import socket
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from seamark.study import Study

Level = Literal["ok", "warning", "problem"]
TIMER_SLEEPS = 200


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing looked at: what was seen, and the remedy where it is not well."""

    what: str
    level: Level
    seen: str
    remedy: str = ""


def examine(study: Study) -> tuple[Finding, ...]:
    """Look at everything; a check that itself fails is a finding."""
    return tuple(_safely(check, study) for check in CHECKS)


def _safely(check: Callable[[Study], Finding], study: Study) -> Finding:
    try:
        return check(study)
    except Exception as error:  # a doctor that dies of one patient's fever helps nobody
        return Finding(what=check.__name__.strip("_"), level="warning", seen=f"could not be looked at: {error}")


def _python(study: Study) -> Finding:
    return Finding(what="Python", level="ok", seen=f"{sys.version.split()[0]} at {sys.prefix}")


def _cores(study: Study) -> Finding:
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        remedy = "Server and load share one core: their times disturb each other. Use two cores or more."
        return Finding(what="cores", level="warning", seen=f"{cores}", remedy=remedy)
    return Finding(what="cores", level="ok", seen=f"{cores}")


def _idle(study: Study) -> Finding:
    busy = psutil.cpu_percent(interval=1.0) / 100
    if busy > 0.15:
        top = max(psutil.process_iter(["name"]), key=lambda process: process.cpu_percent())
        remedy = f"Something else is at work here (perhaps {top.info['name']}): measured times will vary."
        return Finding(what="idle machine", level="warning", seen=f"{busy:.0%} busy", remedy=remedy)
    return Finding(what="idle machine", level="ok", seen=f"{busy:.0%} busy")


def _governor(study: Study) -> Finding:
    path = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if not path.exists():
        return Finding(what="CPU governor", level="ok", seen="not shown by this machine")
    governor = path.read_text().strip()
    level: Level = "ok" if governor == "performance" else "warning"
    return Finding(
        what="CPU governor", level=level, seen=governor, remedy="" if level == "ok" else "Set 'performance'."
    )


def _clock(study: Study) -> Finding:
    path = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    source = path.read_text().strip() if path.exists() else "unknown"
    slow = source in ("hpet", "acpi_pm", "jiffies")
    remedy = "Reading this clock is slow; boot with clocksource=tsc where that is stable." if slow else ""
    return Finding(what="clock", level="warning" if slow else "ok", seen=source, remedy=remedy)


def _timer(study: Study) -> Finding:
    late_us = []
    for _ in range(TIMER_SLEEPS):
        due = time.monotonic_ns() + 1_000_000
        time.sleep(0.001)
        late_us.append((time.monotonic_ns() - due) / 1000)
    p99 = statistics.quantiles(late_us, n=100)[98]
    level: Level = "ok" if p99 < 1000 else "warning"
    remedy = "" if level == "ok" else "Sleeps end late: the machine is busy, or a guest without its share of time."
    return Finding(what="timer", level=level, seen=f"a sleep of 1 ms ends {p99:.0f} us late (p99)", remedy=remedy)


def _files(study: Study) -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    level: Level = "ok" if soft >= 4096 else "warning"
    remedy = "" if level == "ok" else f"Raise it before loads of many connections: ulimit -n {min(hard, 65536)}."
    return Finding(what="open files", level=level, seen=f"{soft} (at most {hard})", remedy=remedy)


def _space(study: Study) -> Finding:
    folder = study.results
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        remedy = "Set paths.results of the site to a folder that you may write to."
        return Finding(what="disk space", level="problem", seen=f"{folder} cannot be written to", remedy=remedy)
    free_gb = shutil.disk_usage(folder).free / 1e9
    level: Level = "ok" if free_gb > 10 else "warning" if free_gb > 2 else "problem"
    remedy = "" if level == "ok" else "Free some space, or set paths.results and paths.scratch of the site elsewhere."
    return Finding(what="disk space", level=level, seen=f"{free_gb:.1f} GB free for {study.results}", remedy=remedy)


def _loopback(study: Study) -> Finding:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with socket.create_connection(listening.getsockname(), timeout=2):
            return Finding(what="loopback", level="ok", seen="a port can be opened and reached")


def _environments(study: Study) -> Finding:
    from seamark.servers.environments import environment_folder

    wanted = {service.environment for service in study.services.values() if service.environment}
    names = sorted(name for name in wanted if (study.locks / f"{name}.lock").is_file())
    there = [name for name in names if environment_folder(name, study.locks, study.environments).is_dir()]
    seen = f"{len(there)} of {len(names)} made ({', '.join(there) or 'none'})"
    return Finding(what="environments", level="ok", seen=f"{seen}; the others are made on first use")


def _gpu(study: Study) -> Finding:
    seen = shutil.which("nvidia-smi")
    return Finding(what="GPU", level="ok", seen=seen or "none: GPU figures will be null")


def _dot(study: Study) -> Finding:
    if shutil.which("dot") is None:
        remedy = "Only needed for pictures of the DAG: install graphviz."
        return Finding(what="graphviz", level="warning", seen="no `dot`", remedy=remedy)
    return Finding(what="graphviz", level="ok", seen="dot")


def _batch(study: Study) -> Finding:
    if not study.site.partitions:
        return Finding(what="batch system", level="ok", seen=f"site '{study.site.name}' has none")
    if shutil.which("sbatch") is None:
        remedy = f"Site '{study.site.name}' submits to Slurm: run this on its login node."
        return Finding(what="batch system", level="problem", seen="no `sbatch` here", remedy=remedy)
    return Finding(what="batch system", level="ok", seen="sbatch")


CHECKS = (
    _python,
    _cores,
    _idle,
    _governor,
    _clock,
    _timer,
    _files,
    _space,
    _loopback,
    _environments,
    _gpu,
    _dot,
    _batch,
)
