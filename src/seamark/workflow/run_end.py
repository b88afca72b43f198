"""Early end of a run: Snakemake, its jobs and their servers are ended, and what is left is reported. Orphans of a
killed run are ended before the next measures."""

import re
import signal
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import psutil

from seamark.dispatch.dispatcher import dispatcher_of, end_jobs, is_batch
from seamark.dispatch.job import Job
from seamark.errors import SiteError
from seamark.planning.study import Study
from seamark.platform.process_tree import with_variable
from seamark.services.supervisor.control_files import (
    MARK,
    ControlFiles,
    acquire_lock,
    is_alive,
    kill_strays,
    read_heartbeat,
    request_stop,
    supervisors_below,
    wait_until_gone,
)
from seamark.workflow.snakemake_cli import all_processes

END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SNAKEMAKE_S = 5.0
"""Time for Snakemake to end in order. It would wait for its jobs, which are ended at the same time."""
CANCEL_S = 30.0
"""The same if it must cancel batch jobs first."""
JOBS_S = 10.0
"""Time for jobs to end; a fork server gives a process without client 5 s."""
SERVERS_S = 60.0
BATCH_JOBS_S = 60.0
KILLED_S = 5.0
POLL_S = 0.05
FORK_SERVER = "seamark.platform.fork_server.server"


class EndSignals:
    """Counts SIGINT, SIGTERM and SIGHUP from its start on, so that none of them ends this process at once.

    Signals that were ignored stay ignored, as under nohup. After the first they stay ignored: the process is about to
    end.
    """

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in END_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if self.count else before)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1


def end_run(study: Study, runs: Sequence[psutil.Process], requests: Callable[[], int] = lambda: 1) -> list[str]:
    """End runs of a study, given by Snakemake's processes, with their jobs and servers. Persistent servers stay.

    `requests` returns how often the end was requested: from the second time on Snakemake and its jobs are killed,
    from the third on servers too. Returns a line for each thing that still runs, with the command that ends it.
    """
    jobs = _end_snakemake(study, runs, requests)
    _end_processes(jobs, JOBS_S, lambda: requests() > 1)
    left = _end_batch_jobs(study, lambda: requests() > 1)
    _end_servers(study.results, lambda: requests() > 2)
    for process in [*_living(jobs), *_living(runs), *_of_servers(study.results)]:
        with suppress(psutil.Error):
            left.append(f"Process {process.pid} ({process.name()}) still runs. End it: kill -KILL {process.pid}")
    return left


def _end_snakemake(study: Study, runs: Sequence[psutil.Process], requests: Callable[[], int]) -> set[psutil.Process]:
    """End Snakemake and send SIGTERM to its jobs. Returns the processes of its jobs."""
    for run in runs:
        _send([run], signal.SIGINT)
    limit_s = time.monotonic() + (CANCEL_S if is_batch(study.site) else SNAKEMAKE_S)
    jobs: set[psutil.Process] = set()
    while True:
        found = {process for run in runs for process in _jobs_of(run)}
        _send(found - jobs, signal.SIGTERM)
        jobs |= found
        if not _living(runs):
            return jobs
        if requests() > 1 or time.monotonic() > limit_s:
            _send(runs, signal.SIGKILL)
        time.sleep(POLL_S)


def _jobs_of(run: psutil.Process) -> set[psutil.Process]:
    """Return the processes of a run's jobs: those below Snakemake, and its fork servers with those below them."""
    found: set[psutil.Process] = set()
    with suppress(psutil.Error):
        found |= set(run.children(recursive=True))
    for process in all_processes():
        with suppress(psutil.Error, ValueError, IndexError):
            words = process.cmdline()
            if words[words.index(FORK_SERVER) + 2] == str(run.pid):
                found |= {process, *process.children(recursive=True)}
    return found


def _end_processes(processes: Collection[psutil.Process], within_s: float, hurry: Callable[[], bool]) -> None:
    """Wait until processes have ended; kill those that have not in time."""
    limit_s = time.monotonic() + within_s
    while (left := _living(processes)) and not hurry() and time.monotonic() < limit_s:
        time.sleep(POLL_S)
    limit_s = time.monotonic() + KILLED_S
    while left and time.monotonic() < limit_s:
        _send(left, signal.SIGKILL)
        time.sleep(POLL_S)
        left = _living(left)


def _end_servers(results: Path, hurry: Callable[[], bool]) -> None:
    """Stop every server below a root of results by its supervisor; kill what has not ended in time."""
    stopped: list[ControlFiles] = []
    limit_s = time.monotonic() + SERVERS_S
    while True:
        for control in supervisors_below(results):
            if control not in stopped and is_alive(control):
                request_stop(control, "stop")
                stopped.append(control)
        left = _of_servers(results)
        if hurry() or time.monotonic() > limit_s:
            break
        if not left and not any(map(is_alive, stopped)):
            break
        _send([process for process in left if not _keeps(process, stopped)], signal.SIGTERM)
        time.sleep(POLL_S)
    _end_processes(_of_servers(results), 0.0, lambda: True)
    for control in stopped:
        if guarded := acquire_lock(control.lock):
            guarded.close()
            kill_strays(control)
            control.heartbeat.unlink(missing_ok=True)


def _keeps(process: psutil.Process, stopped: Iterable[ControlFiles]) -> bool:
    """Whether a process belongs to a stopped supervisor; one without a heartbeat yet cannot be stopped."""
    with suppress(psutil.Error):
        return process.environ().get(MARK) in {str(control.root) for control in stopped}
    return True


def _of_servers(results: Path) -> list[psutil.Process]:
    """Return the processes of this machine that belong to deployments below a root of results."""
    found = []
    for pid, mark in with_variable(MARK).items():
        place = Path(mark)
        if place.parent.parent.name == "deployments" and place.is_relative_to(results.resolve()):
            with suppress(psutil.Error):
                found.append(psutil.Process(pid))
    return _living(found)


def _end_batch_jobs(study: Study, hurry: Callable[[], bool]) -> list[str]:
    """Cancel the study's batch jobs and wait for their end. Returns a line for each that is still there."""
    from seamark.workflow.run_inventory import unfinished_jobs

    dispatcher, limit_s = dispatcher_of(study.site), time.monotonic() + BATCH_JOBS_S
    try:
        dispatcher.cancel([job.id for job in unfinished_jobs(study)])
        while (left := unfinished_jobs(study)) and not hurry() and time.monotonic() < limit_s:
            time.sleep(0.3)
    except SiteError as silent:
        return [f"{dispatcher.title} jobs were not looked for: {silent}"]
    title, cancel = dispatcher.title, dispatcher.cancel_command
    return [f"{title} job {job.id} ({job.name}) is still {job.state.lower()}: {cancel} {job.id}" for job in left]


def _living(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in processes:
        with suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _send(processes: Iterable[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.Error, ProcessLookupError):
            process.send_signal(number)


OF_A_RUN = re.compile(r"(?:^|_)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""Names that Snakemake's Slurm executor gives the jobs of a run."""
ORPHANS_S, ORPHANS_SERVERS_S = 120.0, 30.0


def end_jobs_left(study: Study) -> list[Job]:
    """End the batch jobs that an earlier run of the study submitted, with their servers; return them.

    Only while no run is active: two jobs must never measure one deployment at once. Jobs of persistent servers and
    exported ones have other names, and stay. Raises SiteError when the batch system does not answer, or when a job
    does not end.
    """
    dispatcher = dispatcher_of(study.site)
    jobs = [job for job in dispatcher.jobs(study.root) if OF_A_RUN.search(job.name)]
    numbers = [job.id for job in jobs]
    if left := end_jobs(dispatcher, numbers, within_s=ORPHANS_S):
        states = ", ".join(f"{job.id} ({job.state.lower()} on {job.nodes or 'no node'})" for job in left)
        raise SiteError(
            f"{study.root}: jobs of an earlier run do not end: {states}. Nothing is measured beside them. Submit"
            f" again when `{dispatcher.list_command}` does not show them any more; a node that is lost must be given"
            " up by its site first."
        )
    _end_servers_of(study, numbers)
    return jobs


def _end_servers_of(study: Study, numbers: list[str]) -> None:
    """End supervisors of these jobs: without cgroups in Slurm they outlive their job for a while."""
    for control in supervisors_below(study.results):
        beat = read_heartbeat(control)
        if beat and beat.allocation in numbers and is_alive(control):
            request_stop(control, "interrupted")
            wait_until_gone(control, ORPHANS_SERVERS_S)
