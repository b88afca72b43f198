"""Reasons for lost and refused Slurm jobs: how each ended, sbatch's message, and the remedy."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from seamark.dispatch.slurm.job_states import FORGOTTEN, OVERDUE, JobState

HELPS = {
    "CANCELLED": "Somebody cancelled it.",
    "DEADLINE": "It could not end before its deadline.",
    "NODE_FAIL": "Its node failed. `job_options: ['--exclude=NODE']` of the site keeps jobs off a bad one.",
    "BOOT_FAIL": "Its node did not start. `job_options: ['--exclude=NODE']` of the site keeps jobs off a bad one.",
    "OUT_OF_MEMORY": "It used more memory than it had asked for: raise 'resources: {mem_gb: ...}' of the scenario.",
    "PREEMPTED": "A job of higher rank took its place. Another partition or QoS may not be preempted.",
    "TIMEOUT": "Its time was over. The next asks for time for what is still to be measured; if it measured nothing,"
    " its server took too long to come up.",
    FORGOTTEN: "It has ended, and Slurm no longer says how.",
    OVERDUE: "It waited longer than 'queue_deadline_s' of the site and was cancelled.",
}
STUCK = {
    "Held": "A held job starts when it is released (`scontrol release`).",
    "Limit": "A limit of its account, QoS or partition keeps it: ask for less, or for another.",
    "Dependency": "It depends on a job that will not end well: look at 'job_options' of the site.",
}
"""Remedy for a pending job, by a part of Slurm's reason."""

ASSOCIATIONS = "`sacctmgr show associations user=$USER` lists them."
REFUSED = {
    "Invalid account": f"Name an account of yours as 'account' of the scenario; {ASSOCIATIONS} One whose hours are"
    " spent is refused as well.",
    "Invalid qos": f"Name a QoS that your account may use as 'qos' of the scenario; {ASSOCIATIONS}",
    "nvalid partition": "Name another as 'partition' of the scenario; `sinfo -s` lists those of this Slurm.",
    "Requested time limit": "The trials of a deployment take longer, together, than its partition or QoS lets a job"
    " run: fewer or shorter ones, or another partition or QoS. `bench plan` shows the times.",
    "Requested node": "No node of the partition has what 'resources' of the scenario ask for;"
    " `sinfo -N -o '%N %c %m %G'` shows what they have.",
    "policy": "A limit of your account or QoS (jobs, CPUs, GPUs, time) is reached: ask for less, wait for jobs of"
    " yours to end, or lower 'max_submit' of the site.",
}
"""Remedy for a job that sbatch refuses, by a part of its message."""

SBATCH = re.compile(r"sbatch: error: |Batch job submission failed: ")


def lost(jobs: Mapping[str, JobState], deployments: Iterable[str]) -> list[str]:
    """Return a line for each job that has ended without being completed, in the order of their numbers."""
    names = list(deployments)
    return [
        _line(number, job, [name for name in names if name in job.comment])
        for number, job in sorted(jobs.items())
        if job.has_ended and job.state != "COMPLETED"
    ]


def _line(number: str, job: JobState, deployments: list[str]) -> str:
    of = f" of {', '.join(deployments)}" if deployments else ""
    on = f" on {job.nodes}" if job.nodes else ""
    text = f"Slurm job {number}{of}{on}: {job.state}. {HELPS.get(job.state, 'Its own output says more.')}"
    if job.state == OVERDUE:
        text += f" Slurm's reason: {job.why}."
        text += "".join(f" {remedy}" for part, remedy in STUCK.items() if part in job.why)
    return text


def refused(reasons: Iterable[str]) -> list[str]:
    """Return a line for each reason, in sbatch's words, for which it refused a job."""
    return [f"Slurm refuses a job: {SBATCH.sub('', reason).rstrip('.')}. {_remedy(reason)}" for reason in reasons]


def _remedy(reason: str) -> str:
    otherwise = "Look at the scenario's 'resources' and at 'job_options' of the site."
    return next((remedy for part, remedy in REFUSED.items() if part in reason), otherwise)


def refusals_file(root: Path) -> Path:
    """Return the file with a line for each time that Slurm refused a job of a study's latest run."""
    return root / ".seamark" / "refused.txt"


def record_refusal(root: Path, reason: str) -> None:
    """Record why Slurm refused a job."""
    refusals_file(root).parent.mkdir(parents=True, exist_ok=True)
    with refusals_file(root).open("a", encoding="utf-8") as file:
        file.write(" ".join(reason.split()) + "\n")


def refusals(root: Path) -> list[str]:
    """Return each different reason why Slurm refused jobs of a study's latest run."""
    try:
        return list(dict.fromkeys(refusals_file(root).read_text(encoding="utf-8", errors="replace").splitlines()))
    except OSError:
        return []
