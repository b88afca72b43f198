"""Doctor: checks whether this machine can measure, and what distorts its measurements. Read-only."""

import os
import resource
import shutil
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path

from seamark.dispatch.dispatcher import dispatcher_of
from seamark.dispatch.identity import node
from seamark.errors import UserError
from seamark.housekeeping.machine_state import (
    Finding,
    Level,
    MachineState,
    governor,
    other_load,
    state_of,
    swap,
    synchronised,
    turbo,
)
from seamark.model.plurals import counted
from seamark.model.results.calibration import Calibration, WireCeiling
from seamark.model.service import sound_services
from seamark.planning.study import Study
from seamark.platform.connection_limits import TIME_WAIT_S, listen_queue, local_ports
from seamark.platform.pinning import cores_here, split_cores
from seamark.storage.documents import read
from seamark.trials.calibration import calibration_file

TIMER_SLEEPS = 200
AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
FEW_PORTS = 10_000
SHORT_QUEUE = 1024


def examine(study: Study) -> tuple[Finding, ...]:
    """Run all checks; a check that fails is a warning."""
    return tuple(_safely(check, study) for check in CHECKS)


def _safely(check: Callable[[Study], Finding], study: Study) -> Finding:
    try:
        return check(study)
    except Exception as error:  # one failing check must not hide the others
        return Finding(what=check.__name__.strip("_"), level="warning", seen=f"check failed: {error}")


def _python(study: Study) -> Finding:
    return Finding(what="Python", level="ok", seen=f"{sys.version.split()[0]} at {sys.prefix}")


def _cores(study: Study) -> Finding:
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        remedy = "Server and load share one core: their times disturb each other. Use two cores or more."
        return Finding(what="cores", level="warning", seen=f"{cores}", remedy=remedy)
    return Finding(what="cores", level="ok", seen=f"{cores}")


def _pinning(study: Study) -> Finding:
    try:
        split = split_cores(study.site.pinning, workers="wire", shards=1, cores=cores_here())
    except UserError as error:
        return Finding(what="pinning", level="problem", seen="CPUs that are not there", remedy=str(error))
    return Finding(what="pinning", level="ok", seen=str(split))


def _sessions(study: Study) -> Finding:
    enabled = AUTOGROUP.read_text(encoding="ascii").strip() == "1" if AUTOGROUP.exists() else None
    spinning = sorted(
        name
        for name, service in sound_services(study.services).items()
        if service.server and service.server.busy_waits
    )
    split = split_cores(study.site.pinning, workers="wire", shards=1, cores=cores_here())
    return sessions(enabled, spinning, apart=bool(split.client and split.server))


def sessions(enabled: bool | None, spinning: Sequence[str], *, apart: bool) -> Finding:
    """Check whether the kernel schedules cores by session (autogroup); `enabled` is None where it cannot.

    Server and load run in sessions of their own, each of which gets half of a shared core: a server that spins while
    idle keeps the load from running for tens of ms. `spinning` are the services with `busy_waits`; `apart` means that
    load and server have cores of their own.
    """
    what = "sessions"
    if not enabled:
        seen = "cores are scheduled by process" if enabled is False else "the kernel has no autogroups"
        return Finding(what=what, level="ok", seen=seen)
    seen = "cores are scheduled by session (autogroup)"
    if apart:
        return Finding(what=what, level="ok", seen=f"{seen}; load and server have cores of their own")
    names = f" ({', '.join(spinning)})" if spinning else ""
    remedy = (
        "A server that spins while idle can keep the load from running for tens of ms: trials then report "
        f"client_stalled or loop_lag. `busy_waits: true` in its recipe gives all other sessions priority{names}. For "
        "a server that Seamark does not start: `echo 19 > /proc/PID/autogroup`, or boot with `noautogroup`."
    )
    return Finding(what=what, level="warning", seen=seen, remedy=remedy)


def _of_state(check: Callable[[MachineState], Finding], interval_s: float = 0.0) -> Callable[[Study], Finding]:
    """Return a check of the machine's state, watched for `interval_s`, as one of a study."""

    @wraps(check)
    def checked(study: Study) -> Finding:
        return check(state_of(interval_s=interval_s))

    return checked


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
    remedy = "" if level == "ok" else "Sleeps end late: the machine is busy, or an overcommitted virtual machine."
    return Finding(what="timer", level=level, seen=f"a sleep of 1 ms ends {p99:.0f} us late (p99)", remedy=remedy)


def _files(study: Study) -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    level: Level = "ok" if soft >= 4096 else "warning"
    remedy = "" if level == "ok" else f"Raise it before loads of many connections: ulimit -n {min(hard, 65536)}."
    return Finding(what="open files", level=level, seen=f"{soft} (at most {hard})", remedy=remedy)


def _ports(study: Study) -> Finding:
    ports = local_ports()
    level: Level = "ok" if ports.total >= FEW_PORTS else "warning"
    seen = (
        f"{ports.total:,} to one address ({ports.first}-{ports.last}); a server that closes its connections leaves "
        f"enough for {ports.total / TIME_WAIT_S:,.0f} new ones/s"
    )
    remedy = "" if level == "ok" else "More connections to one address: sysctl net.ipv4.ip_local_port_range."
    return Finding(what="local ports", level=level, seen=seen, remedy=remedy)


def _queues(study: Study) -> Finding:
    whole, half = listen_queue()
    if whole is None:
        return Finding(what="listen queue", level="ok", seen="not reported by this machine")
    level: Level = "ok" if whole >= SHORT_QUEUE else "warning"
    seen = f"at most {whole} connections wait for a server" + ("" if half is None else f", {half} half open")
    remedy = "" if level == "ok" else "More users than that at once wait for a second: raise net.core.somaxconn."
    return Finding(what="listen queue", level=level, seen=seen, remedy=remedy)


def _ceilings(study: Study) -> Finding:
    path = calibration_file(study.results, node())
    if not path.exists():
        remedy = "`bench doctor --calibrate` measures it, so that trials bound by their client are marked."
        return Finding(what="load generator", level="ok", seen="not calibrated on this machine", remedy=remedy)
    known = read(path, Calibration)
    of, wire = known.ceilings, known.ceilings.wire or WireCeiling()
    large = "" if wire.bytes_per_s is None else f" or {wire.bytes_per_s / 1e6:,.0f} MB/s"
    chunks = "" if wire.chunks_per_s is None else f" or {wire.chunks_per_s:,.0f} chunks/s"
    rates = [
        f"{ceiling.requests_per_s or 0.0:,.0f}" if ceiling else "?" for ceiling in (wire, of.threads, of.processes)
    ]
    seen = (
        f"a wire worker {rates[0]} requests/s{large}{chunks}, threads {rates[1]}, a process {rates[2]}; sends"
        f" {known.schedule_lag_us.p99 or 0.0:.0f} us late (p99 at 1,000/s); {(known.at or '')[:10]}"
    )
    return Finding(what="load generator", level="ok", seen=seen)


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
    from seamark.services.runtimes.environments import environment_folder

    wanted = {service.environment for service in sound_services(study.services).values() if service.environment}
    names = sorted(name for name in wanted if (study.locks / f"{name}.lock").is_file())
    there = [name for name in names if environment_folder(name, study.locks, study.environments).is_dir()]
    seen = f"{len(there)} of {len(names)} ready ({', '.join(there) or 'none'})"
    return Finding(what="environments", level="ok", seen=f"{seen}; the others are installed on first use")


def _images(study: Study) -> Finding:
    if not study.site.in_images:
        return Finding(what="images", level="ok", seen=f"site '{study.site_name}' runs no containers")
    from seamark.services.images.study_images import StudyImages

    wanted = StudyImages(study=study).required()
    lacking = [image.name for image in wanted if not image.exists()]
    engine = shutil.which("apptainer") or (f"from {study.site.modules[-1]}" if study.site.modules else "no apptainer")
    seen = f"{engine}; {len(wanted) - len(lacking)} of {counted(len(wanted), 'image')} are there"
    if engine == "no apptainer":
        remedy = "Install Apptainer, or name its module in `modules` of the site."
        return Finding(what="images", level="problem", seen=seen, remedy=remedy)
    remedy = f"`bench prepare` makes {', '.join(lacking)}." if lacking else ""
    return Finding(what="images", level="problem" if lacking else "ok", seen=seen, remedy=remedy)


def _digests(study: Study) -> Finding:
    from seamark.services.images.study_images import LOCK, StudyImages

    entries = StudyImages(study=study).lock
    empty = sorted(name for name, entry in entries.items() if entry.digest is None)
    seen = f"{len(entries) - len(empty)} of {counted(len(entries), 'image')} in {LOCK} have one"
    if not empty:
        return Finding(what="digests", level="ok", seen=seen)
    remedy = (
        "Where the registries answer, `bench prepare -c SCENARIO --site SITE` (with `runtime: apptainer`) writes"
        f" those of the scenario's servers and clients. Empty: {', '.join(empty)}."
    )
    return Finding(what="digests", level="warning" if study.site.in_images else "ok", seen=seen, remedy=remedy)


def _gpu(study: Study) -> Finding:
    seen = shutil.which("nvidia-smi")
    return Finding(what="GPU", level="ok", seen=seen or "none: GPU metrics will be null")


def _dot(study: Study) -> Finding:
    if shutil.which("dot") is None:
        remedy = "Only needed for drawings of the DAG: install graphviz."
        return Finding(what="graphviz", level="warning", seen="no `dot`", remedy=remedy)
    return Finding(what="graphviz", level="ok", seen="dot")


def _batch(study: Study) -> Finding:
    client = dispatcher_of(study.site).client
    if client is None:
        return Finding(what="batch system", level="ok", seen=f"site '{study.site.name}' has none")
    if shutil.which(client) is None:
        remedy = f"Site '{study.site.name}' submits jobs by {client}: run this on its login node."
        return Finding(what="batch system", level="problem", seen=f"no `{client}` here", remedy=remedy)
    return Finding(what="batch system", level="ok", seen=client)


CHECKS = (
    _python,
    _cores,
    _pinning,
    _sessions,
    _of_state(other_load, interval_s=1.0),
    _of_state(governor),
    _of_state(turbo),
    _of_state(swap),
    _clock,
    _of_state(synchronised),
    _timer,
    _files,
    _ports,
    _queues,
    _ceilings,
    _space,
    _loopback,
    _environments,
    _images,
    _digests,
    _gpu,
    _dot,
    _batch,
)
