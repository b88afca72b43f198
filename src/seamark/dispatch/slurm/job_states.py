"""What Snakemake is told of its Slurm jobs, and what is noted of them: it must never wait for one that will not end.

Its Slurm executor asks `squeue`, and waits for ever for a job that was preempted, that Slurm no longer knows, or that
is held, and for every job after a controller that did not answer. It asks `sacct` instead where the controller does
not say how long it remembers jobs; without accounting it then waits for ever too. So a `squeue` and a `scontrol` of
ours stand before Slurm's in the PATH of a run, and an `sbatch` (submission.py). All other questions they hand on.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import join

from seamark.dispatch.path_shims import folder_of, path_without, stand_before
from seamark.dispatch.slurm.submission import hand_over
from seamark.storage.paths import read_json, write_json

ANSWER_S = {"squeue": 50.0, "scontrol": 8.0, "sacct": 8.0, "scancel": 50.0}
"""How long Slurm may take to answer: the executor waits for 60 s for a listing, 10 s for the configuration."""

REMEMBERS = "MinJobAge               = 300 sec"
"""What the executor is told of how long the controller remembers jobs: what it forgets, we remember."""

WAITING = ("PENDING", "SPECIAL_EXIT", "REQUEUE_HOLD")
ENDED = {
    "BOOT_FAIL": "FAILED",
    "CANCELLED": "CANCELLED",
    "COMPLETED": "COMPLETED",
    "DEADLINE": "FAILED",
    "FAILED": "FAILED",
    "LAUNCH_FAILED": "FAILED",
    "NODE_FAIL": "FAILED",
    "OUT_OF_MEMORY": "FAILED",
    "PREEMPTED": "CANCELLED",
    "RECONFIG_FAIL": "FAILED",
    "REVOKED": "CANCELLED",
    "TIMEOUT": "TIMEOUT",
}
"""States in which a job has ended, and what the executor is told of each: words that it knows as an end."""

OVERDUE = "OVERDUE"
FORGOTTEN = "FORGOTTEN"
"""States of ours: waited too long and was cancelled; ended while nobody looked, and Slurm knows it no more."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One job as Slurm last told of it, or as it ended. `submitted_unix_s` counts from its last requeue."""

    state: str
    submitted_unix_s: float
    nodes: str
    why: str
    comment: str

    @property
    def ended(self) -> bool:
        """Whether it will not run any more."""
        return self.state in (*ENDED, OVERDUE, FORGOTTEN)


def parsed(listing: str) -> dict[str, Seen]:
    """Return the jobs of a listing in the format of `FORMAT`, by number; passes over lines that are none."""
    found = {}
    for line in listing.splitlines():
        words = line.strip().split("|", 5)
        if len(words) == 6 and words[2].isdigit():
            number, state, submitted, nodes, why, comment = words
            found[number] = Seen(
                state=state, submitted_unix_s=float(submitted), nodes=nodes, why=why, comment=comment
            )
    return found


FORMAT = "%i|%T|%V|%N|%r|%k"


def judged(
    now: Mapping[str, Seen], before: Mapping[str, Seen], unix_s: float, deadline_s: float | None
) -> dict[str, Seen]:
    """Return what becomes of each job that Slurm lists or has listed before.

    One that waits longer than `deadline_s` is overdue; one that has vanished without an end is forgotten. An end that
    was seen once stays.
    """
    jobs = {number: seen for number, seen in before.items() if seen.ended}
    for number, seen in before.items():
        if number not in now and number not in jobs:
            jobs[number] = _as(seen, FORGOTTEN)
    for number, seen in now.items():
        late = deadline_s is not None and unix_s - seen.submitted_unix_s > deadline_s
        jobs.setdefault(number, _as(seen, OVERDUE) if late and seen.state in WAITING else seen)
    return jobs


def _as(seen: Seen, state: str) -> Seen:
    return Seen(**(asdict(seen) | {"state": state}))


def told(seen: Seen) -> str:
    """Return the state that the executor is told."""
    return {OVERDUE: "CANCELLED", FORGOTTEN: "FAILED"}.get(seen.state) or ENDED.get(seen.state, seen.state)


def notes_in(root: Path) -> Path:
    """Return where it is noted how the jobs of a study's latest run ended."""
    return root / ".seamark" / "jobs.json"


def noted(root: Path) -> dict[str, Seen]:
    """Return the jobs of a study's latest run, by number; nothing where none was noted."""
    try:
        return {number: Seen(**each) for number, each in read_json(notes_in(root))["jobs"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def stand_before_slurm(root: Path, deadline_s: float | None) -> None:
    """Write the commands of a study, and put their folder first in the PATH of this process and of what it starts."""
    words = [sys.executable, "-P", "-m", "seamark.dispatch.slurm.job_states", str(root), str(deadline_s or "")]
    names = ("squeue", "scontrol", "sbatch")
    stand_before(root, {name: f'#!/bin/sh\nexec {join([*words, name])} "$@"\n' for name in names})


def main(argv: Sequence[str]) -> int:
    """Answer for a command of Slurm's: `ROOT DEADLINE_S NAME OPTIONS...`."""
    root, deadline, name, *options = argv
    os.environ["PATH"] = path_without(Path(root))
    if name == "scontrol" and options == ["show", "config"]:
        lines = (_said(name, *options) or "").splitlines()
        print("\n".join([*(line for line in lines if not line.startswith("MinJobAge")), REMEMBERS]))
        return 0
    if name == "squeue" and "--states=all" in options and "--name" in options:
        run = options[options.index("--name") + 1]
        for number, seen in _look(Path(root), run, float(deadline) if deadline else None).items():
            print(f"{number}|{told(seen)}")
        return 0
    if real := shutil.which(name):
        if name == "sbatch":
            return hand_over(Path(root), real, options)
        os.execv(real, [name, *options])
    print(f"{name}: there is none but that in {folder_of(Path(root))}", file=sys.stderr)
    return 127


def _look(root: Path, run: str, deadline_s: float | None) -> dict[str, Seen]:
    """Return the run's jobs and note them; nothing where Slurm is silent: then all is as it was."""
    listing = _said("squeue", "--states=all", "--noheader", f"--format={FORMAT}", "--name", run)
    if listing is None:
        return {}
    before = noted(root) if _run_of(root) == run else {}
    jobs = judged(parsed(listing), before, time.time(), deadline_s)
    jobs = {n: _as(seen, _accounted(n)) if seen.state == FORGOTTEN else seen for n, seen in jobs.items()}
    write_json(notes_in(root), {"schema_version": 1, "run": run, "jobs": {n: asdict(j) for n, j in jobs.items()}})
    if late := [number for number, seen in jobs.items() if seen.state == OVERDUE]:
        _said("scancel", *late)
    return jobs


def _accounted(number: str) -> str:
    """Return how a job ended by Slurm's accounting, FORGOTTEN where there is none or it does not know."""
    words = (_said("sacct", "-X", "--noheader", "--parsable2", "--format=State", f"--jobs={number}") or "").split()
    return words[0] if words and words[0] in ENDED else FORGOTTEN


def _said(name: str, *options: str) -> str | None:
    """Return what a command of Slurm's prints, with times in seconds; None where it fails or takes too long."""
    told = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(
            [name, *options], capture_output=True, text=True, timeout=ANSWER_S[name], check=True, env=told
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _run_of(root: Path) -> str | None:
    try:
        return str(read_json(notes_in(root))["run"])
    except (OSError, ValueError, KeyError):
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
