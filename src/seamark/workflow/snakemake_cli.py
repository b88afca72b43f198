"""Command line of Snakemake for a study, and detection of other runs. Snakemake is never imported here."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from seamark.config.lanes import packed
from seamark.dispatch import fencing
from seamark.dispatch.dispatcher import leaves_this_machine
from seamark.dispatch.identity import boot_id, node
from seamark.dispatch.job import most_jobs
from seamark.dispatch.order import ALL
from seamark.errors import UserError
from seamark.planning.study import Study
from seamark.platform.fork_server.client import start_server
from seamark.services.supervisor.control_files import (
    acquire_lock,
    is_alive,
    read_heartbeat,
    run_files,
    run_lock,
    write_heartbeat,
)
from seamark.trials.permissions import user_named
from seamark.workflow.inside_snakemake import forget_lock
from seamark.workflow.lanes import jobs_at_once

IN_A_JOB = ["--mode", "remote"]
"""Last arguments of the Snakemake that runs inside a batch job."""


def command(study: Study, targets: Sequence[str] = (), extra: Sequence[str] = ()) -> list[str]:
    """Return the command line that makes `targets` (all of the scenario if empty) on the study's site."""
    words = [sys.executable, "-m", "snakemake", *targets]
    words += ["--snakefile", str(study.file("Snakefile")), "--directory", str(study.root)]
    words += ["--workflow-profile", _profile(study, "default")]
    if study.site.profile != "default":
        words += ["--profile", _profile(study, study.site.profile)]
    site, named = study.site, bool(targets) or any(_is_target(word, study) for word in extra)
    ordered = site.order != ALL.name and not named
    most = jobs_at_once(study) if ordered and leaves_this_machine(site) else most_jobs(site, study.plan.qos)
    if most is not None:
        words += ["--jobs", str(most)]
    if study.site.parallel > 1:  # a lane waits most of the time: all of them start, however few cores there are
        words += ["--cores", str(max(study.site.parallel, len(os.sched_getaffinity(0))))]
    if study.site.images.jobs:
        words += ["--software-deployment-method", "apptainer"]
    words += list(extra)
    # Snakemake reads a value as YAML, which includes JSON strings, and strips the outermost quotes
    values = [("scenario", str(study.scenario_path)), ("site", study.site_name)]
    lanes = json.loads(study.lanes) if study.lanes else {}
    lanes.pop("order", None)
    if ordered:
        lanes["order"] = site.order
    if lanes:
        values.append(("lanes", packed(json.dumps(lanes))))
    return [*words, "--config", *(f"{name}= {json.dumps(text, ensure_ascii=False)} " for name, text in values)]


def _is_target(word: str, study: Study) -> bool:
    """Return whether a word for Snakemake is a file of the results or the reports."""
    path = study.root / word
    return not word.startswith("-") and any(path.is_relative_to(root) for root in (study.results, study.reports))


def _profile(study: Study, name: str) -> str:
    """Return the folder of a profile, relative to the study if inside it: Snakemake expands `*?[` in it as a glob."""
    folder = study.file(f"profiles/{name}")
    return str(folder.relative_to(study.root) if folder.is_relative_to(study.root) else folder)


def start(study: Study, log: Path, targets: Sequence[str] = (), extra: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """Start Snakemake with its output in `log`. Raises UserError while another run holds the study."""
    release(study.root)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        run = subprocess.Popen(
            command(study, targets, extra),
            cwd=study.root,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1", fencing.EPOCH: fencing.acquire_epoch(study.root)},
        )
    start_server(run.pid)  # it imports in parallel to Snakemake
    return run


def beat(root: Path, pid: int) -> None:
    """Write the heartbeat of a run, Snakemake's process `pid`, for other machines that see this study."""
    mark = run_files(root)
    mark.root.mkdir(parents=True, exist_ok=True)
    write_heartbeat(mark, pid)


def rest(root: Path) -> None:
    """Remove the heartbeat of a run that has ended."""
    run_files(root).heartbeat.unlink(missing_ok=True)


def release(root: Path) -> None:
    """Remove the lock of a killed Snakemake. Raises UserError when a live one, on any machine, holds it."""
    running, heartbeat = runs_in(root), read_heartbeat(run_files(root))
    where = f"process {running[0].pid}" if running else None
    if where is None and heartbeat and is_alive(run_files(root)):  # another user's process does not show its folder
        pid, here = heartbeat.pid, heartbeat.boot == boot_id()
        where = _process_of(pid) if here else f"process {pid} on {heartbeat.node}"
    if where:
        raise UserError(another_run(root, where))
    forget_lock(root)


def another_run(root: Path, where: str) -> str:
    """Return the message for a run that is not the only one of its study."""
    return (
        f"{root}: another run is at work here ({where}). Wait for it, look at it with `bench status --watch`, or"
        " end it with `bench stop` where it runs."
    )


@contextmanager
def the_only_run(root: Path) -> Iterator[None]:
    """Hold the lock of a study for the length of a run. Raises UserError while another run holds it."""
    path = run_lock(root)
    held = acquire_lock(path)
    if held is None:
        raise UserError(another_run(root, _holder(path)))
    with held:
        if held.writable():  # a file of another user can be locked but not written
            held.truncate(0)
            held.write(f"process {os.getpid()} of {user_named(os.geteuid())}\n{node()}")
            held.flush()
        yield


def _holder(path: Path) -> str:
    try:
        process, _, where = path.read_text(encoding="utf-8", errors="replace").partition("\n")
    except OSError:
        return "another user's"
    there = "" if where == node() else f" on {where}"
    return f"{process}{there}" if process else "a process that begins"


def require_our_run(root: Path) -> None:
    """Raise UserError if another user's run is active in `root` on this machine: only that user can end it."""
    heartbeat = read_heartbeat(run_files(root))
    if not heartbeat or heartbeat.boot != boot_id() or not is_alive(run_files(root)) or os.geteuid() == 0:
        return
    with suppress(psutil.Error):
        user = psutil.Process(heartbeat.pid).uids().real
        if user != os.getuid():
            raise UserError(
                f"{root}: the run at work here is {user_named(user)}'s (process {heartbeat.pid}); ask them to end it."
            )


def _process_of(pid: int) -> str:
    try:
        return f"process {pid} of {user_named(psutil.Process(pid).uids().real)}"
    except psutil.Error:
        return f"process {pid}"


def all_processes() -> Iterator[psutil.Process]:
    """Give every process of this machine, none of them remembered from an earlier call: psutil refuses to signal by
    an object whose number belongs to another process now, and a run of days would spare what it has to end."""
    psutil.process_iter.cache_clear()
    return psutil.process_iter()


def runs_in(root: Path) -> list[psutil.Process]:
    """Return the live Snakemake processes of this machine that work in `root`, except those inside batch jobs."""
    found = []
    for process in all_processes():
        try:
            words = process.cmdline()
            named = words[-2:] != IN_A_JOB and _is_snakemake(words)
            if named and process.pid != os.getpid() and Path(process.cwd()) == root.resolve():
                found.append(process)
        except psutil.Error:
            continue
    return found


def _is_snakemake(words: Sequence[str]) -> bool:
    """Return whether a command line is that of Snakemake, not of a program that has its name as an argument."""
    program, rest = Path(words[0]).name if words else "", list(words[1:])
    while program.startswith("python") and rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0] in ("-X", "-W") else 1]
    return program == "snakemake" or (program.startswith("python") and Path(*rest[:1]).name == "snakemake")
