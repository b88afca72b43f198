"""States of a run's Slurm jobs, recorded from poll to poll, so that forgotten and never started jobs end as well."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from seamark.dispatch.slurm.commands import ENDED, query
from seamark.storage.documents import read_or_none, write

WAITING = ("PENDING", "SPECIAL_EXIT", "REQUEUE_HOLD")
OVERDUE = "OVERDUE"
FORGOTTEN = "FORGOTTEN"
"""Synthetic states. OVERDUE: cancelled after the queue deadline. FORGOTTEN: gone from squeue, no end recorded."""

FORMAT = "%i|%T|%V|%N|%r|%k"


@dataclass(frozen=True, kw_only=True)
class JobState:
    """Last known state of a job. `submitted_unix_s` counts from its last requeue; `why` is Slurm's reason."""

    state: str
    submitted_unix_s: float
    nodes: str
    why: str
    comment: str

    @property
    def has_ended(self) -> bool:
        """Whether it will not run any more."""
        return self.state in ENDED or self.state in (OVERDUE, FORGOTTEN)


@dataclass(frozen=True, kw_only=True)
class RecordedJobs:
    """jobs.json: the jobs of a study's latest run by number."""

    schema_version: int = 1
    run: str
    jobs: Mapping[str, JobState]


def poll(root: Path, run: str, queue_deadline_s: float | None) -> Mapping[str, JobState]:
    """Return the jobs of the run named `run` by their numbers, and record them; cancel those that are overdue.

    Nothing where Slurm does not answer: then no state has changed.
    """
    listing = query("squeue", "--states=all", "--noheader", f"--format={FORMAT}", "--name", run, within_s=50.0)
    if listing is None:
        return {}
    recorded = read_or_none(record_of(root), RecordedJobs)
    before = recorded.jobs if recorded and recorded.run == run else {}
    jobs = update_states(parsed(listing), before, time.time(), queue_deadline_s)
    jobs = {
        number: replace(job, state=_accounted(number)) if job.state == FORGOTTEN else job
        for number, job in jobs.items()
    }
    write(record_of(root), RecordedJobs(run=run, jobs=jobs))
    if overdue := [number for number, job in jobs.items() if job.state == OVERDUE]:
        query("scancel", *overdue, within_s=50.0)
    return jobs


def parsed(listing: str) -> dict[str, JobState]:
    """Return the jobs of a listing in the format of `FORMAT`, by number; other lines are passed over."""
    found = {}
    for line in listing.splitlines():
        words = line.strip().split("|", 5)
        if len(words) == 6 and words[2].isdigit():
            number, state, submitted, nodes, why, comment = words
            found[number] = JobState(
                state=state, submitted_unix_s=float(submitted), nodes=nodes, why=why, comment=comment
            )
    return found


def update_states(
    listed: Mapping[str, JobState], before: Mapping[str, JobState], unix_s: float, queue_deadline_s: float | None
) -> dict[str, JobState]:
    """Return the state of each job that Slurm lists or has listed before.

    A job that waits longer than `queue_deadline_s` is overdue; one that is no longer listed and had no end is
    forgotten. An end stays, also that of a job which Slurm lists again.
    """
    jobs = {number: job for number, job in before.items() if job.has_ended}
    for number, job in before.items():
        if number not in listed and number not in jobs:
            jobs[number] = replace(job, state=FORGOTTEN)
    for number, job in listed.items():
        late = queue_deadline_s is not None and unix_s - job.submitted_unix_s > queue_deadline_s
        jobs.setdefault(number, replace(job, state=OVERDUE) if late and job.state in WAITING else job)
    return jobs


def record_of(root: Path) -> Path:
    """Return the file that records the jobs of a study's latest run."""
    return root / ".seamark" / "jobs.json"


def recorded_jobs(root: Path) -> Mapping[str, JobState]:
    """Return the jobs of a study's latest run, by number; none where none is recorded."""
    recorded = read_or_none(record_of(root), RecordedJobs)
    return recorded.jobs if recorded else {}


def _accounted(number: str) -> str:
    """Return how a job ended by Slurm's accounting, FORGOTTEN without accounting or an end."""
    command = ("sacct", "-X", "--noheader", "--parsable2", "--format=State", f"--jobs={number}")
    words = (query(*command, within_s=8.0) or "").split()
    return words[0] if words and words[0] in ENDED else FORGOTTEN
