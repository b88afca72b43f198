"""Snakemake's executor on Slurm: a subclass of its Slurm plugin that waits for no job that will never end.

The plugin waits for ever for a job that was preempted or held, that Slurm has forgotten, or whose command is longer
than an argument may be. It counts a job as failed when the controller is away for a moment, and does not log why
sbatch refused a group of jobs. Only the process of Snakemake imports this module.
"""

import asyncio
import re
import shutil
import threading
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

from seamark.dispatch.slurm.job_states import JobState, poll
from seamark.dispatch.slurm.lost_jobs import record_refusal

UNREACHABLE = ("Unable to contact slurm controller", "Connection refused")
"""Messages of sbatch that exclude a submitted job."""
RETRY_S = 600.0
LONGEST_PAUSE_S = 20.0
LONGEST_POLL_S = 180.0
STEP_AS_SCRIPT = " --slurm-jobstep-pass-command-as-script"
"""What the plugin adds to the command of every job with pass_command_as_script."""
LONGEST_WRAPPED = 100_000
"""Characters of a command that are one argument of `sh -c`, with room for options: the kernel allows 128 KiB."""
NO_SBATCH = "No `sbatch` here. Call this on the site's login node, or leave out --profile to measure on this machine."
STDERR = re.compile(r"The error message was '(.*?)'\.\n", re.DOTALL)


class StudyExecutor(SlurmExecutor):  # type: ignore[misc]
    """The executor of one study's run."""

    root: ClassVar[Path]
    queue_deadline_s: ClassVar[float | None]
    next_seconds_between_status_checks: float

    def __init__(self, *arguments: Any) -> None:
        self._unreachable_since_s: dict[Any, float] = {}
        self._shut_down = threading.Event()
        # sbatch reads every job as a script from stdin: some hundred trials are longer than an argument may be
        arguments[0].executor_settings.pass_command_as_script = True
        super().__init__(*arguments)  # starts the thread that polls

    def run_jobs(self, jobs: list[Any]) -> None:
        """Submit jobs. Raises WorkflowError where there is no sbatch: the plugin would fail in a thread of its own,
        and Snakemake wait for ever."""
        if shutil.which("sbatch") is None:
            raise WorkflowError(NO_SBATCH)
        super().run_jobs(jobs)

    def format_job_exec(self, job: Any) -> str:
        """Return the command of a job.

        Its step is a script (`srun sh -s`) only where the command is too long for an argument: where Slurm tracks
        processes by their parents, a cancelled script leaves its children alive.
        """
        command: str = super().format_job_exec(job)
        return command if len(command) > LONGEST_WRAPPED else command.replace(STEP_AS_SCRIPT, "", 1)

    def shutdown(self) -> None:
        """Abandon jobs that wait for the controller, then shut down."""
        self._shut_down.set()
        super().shutdown()

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        """Poll Slurm once; report the jobs that have ended, give those that have not."""
        settings = self.workflow.executor_settings
        states = await self._poll() if active_jobs else {}
        any_ended = False
        for active in active_jobs:
            number, log = active.external_jobid, active.aux["slurm_logfile"]
            job = states.get(number) or states.get(number.partition("_")[0])  # NUMBER_TASK: a task of an array
            if job is None or not job.has_ended:
                yield active
                continue
            any_ended = True
            if job.state != "COMPLETED":
                message = f"Slurm job {number} has ended: {job.state}. "
                self.report_job_error(active, msg=message, aux_logs=[str(log)])
                continue
            self.report_job_success(active)
            if not settings.keep_successful_logs:
                log.unlink(missing_ok=True)
        first_s = settings.init_seconds_before_status_checks
        longer_s = min(self.next_seconds_between_status_checks + 10, LONGEST_POLL_S)
        self.next_seconds_between_status_checks = first_s if any_ended or not active_jobs else longer_s

    async def _poll(self) -> Mapping[str, JobState]:
        async with self.status_rate_limiter:
            try:
                return await asyncio.to_thread(poll, self.root, self.run_uuid, self.queue_deadline_s)
            except OSError as error:  # a full disk: an unrecorded state is polled again
                self.logger.warning(f"Slurm jobs were not polled: {error}")
                return {}

    def _report_job_error_threadsafe(self, job_info: SubmittedJobInfo, msg: str) -> None:
        """Submit the job again while the controller is away; else record why it was refused, and report it."""
        stderr = STDERR.search(msg)
        reason = stderr[1] if stderr else msg
        now_s = time.monotonic()
        away_s = now_s - self._unreachable_since_s.setdefault(job_info.job, now_s)
        pause_s = min(max(away_s, 1.0), LONGEST_PAUSE_S)
        unreachable = any(message in reason for message in UNREACHABLE)
        if unreachable and away_s < RETRY_S and not self._shut_down.wait(pause_s):
            self.run_job(job_info.job)
            return
        record_refusal(self.root, reason)
        super()._report_job_error_threadsafe(job_info, msg)


def install(root: Path, queue_deadline_s: float | None) -> None:
    """Let Snakemake's `--executor slurm` be a StudyExecutor, for the rest of this process.

    So it holds for every profile and command line, with the plugin's own options; the Snakefile calls this before
    Snakemake makes its executor.
    """
    members = {"root": root, "queue_deadline_s": queue_deadline_s}
    ExecutorPluginRegistry().get_plugin("slurm").executor = type("Executor", (StudyExecutor,), members)
