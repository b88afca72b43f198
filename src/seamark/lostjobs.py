"""Why a run lost jobs of its batch system, in words: how each ended, and what helps. Pure; none is called."""

from collections.abc import Iterable, Mapping

from seamark.jobstates import FORGOTTEN, OVERDUE, Seen

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
"""What helps a job that waits, by a part of Slurm's reason."""


def lost(jobs: Mapping[str, Seen], deployments: Iterable[str]) -> list[str]:
    """Return a line for each job that has ended without being completed, in the order of their numbers."""
    names = list(deployments)
    return [
        _line(number, seen, [name for name in names if name in seen.comment])
        for number, seen in sorted(jobs.items())
        if seen.ended and seen.state != "COMPLETED"
    ]


def _line(number: str, seen: Seen, deployments: list[str]) -> str:
    of = f" of {', '.join(deployments)}" if deployments else ""
    on = f" on {seen.nodes}" if seen.nodes else ""
    words = f"Slurm job {number}{of}{on}: {seen.state}. {HELPS.get(seen.state, 'Its own output says more.')}"
    if seen.state == OVERDUE:
        words += f" Slurm's reason: {seen.why}."
        words += "".join(f" {remedy}" for part, remedy in STUCK.items() if part in seen.why)
    return words


def refused(reasons: Iterable[str]) -> list[str]:
    """Return a line for each reason why sbatch took no job."""
    return [
        f"Slurm refuses a job: {reason}. Look at account, partition, qos and resources of the scenario, and at"
        " what the site says of them."
        for reason in reasons
    ]
