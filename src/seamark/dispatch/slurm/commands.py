"""What we ask of Slurm by its own commands: submit a job, how jobs are, end them. Says when it is not there."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join

from seamark.dispatch.slurm.job_states import ENDED
from seamark.errors import SiteError

ANSWER_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job of ours in the queue. `nodes` is empty until it runs; `why` says what a pending one waits for."""

    number: str
    name: str
    state: str
    nodes: str
    folder: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A job to be: it runs `words` in `folder`. `options` are long options of sbatch, without those whose value is
    None, and `more` whole ones; output goes to `logs/%x_%j.out` and `.err`."""

    words: Sequence[str]
    name: str
    logs: Path
    folder: Path
    options: Mapping[str, object]
    more: Sequence[str] = ()


def sbatch(batch: Batch) -> str:
    """Submit a job; return its number. Raises SiteError when there is no Slurm or it refuses."""
    return _submitted(batch, (), ANSWER_S)[0]


def run(batch: Batch) -> tuple[str, int]:
    """Submit a job as `sbatch` does and wait until it has ended; return its number and exit code."""
    return _submitted(batch, ("--wait",), None)


def _submitted(batch: Batch, more: Sequence[str], within_s: float | None) -> tuple[str, int]:
    batch.logs.mkdir(parents=True, exist_ok=True)
    command = ["sbatch", "--parsable", f"--job-name={batch.name}", f"--chdir={batch.folder}"]
    logs = str(batch.logs).replace("%", "%%")
    command += [f"--output={logs}/%x_%j.out", f"--error={logs}/%x_%j.err"]
    command += [f"--{option}={value}" for option, value in batch.options.items() if value is not None]
    command += [*more, *batch.more]
    done = _said([*command, f"--wrap=exec {join(batch.words)}"], within_s)
    number = done.stdout.strip().partition(";")[0]
    if not number.isdigit():
        raise SiteError(f"sbatch refuses the job '{batch.name}': {done.stderr.strip()}", f"    {join(command)}")
    return number, done.returncode


def jobs(*, folder: Path | None = None) -> list[Job]:
    """Return our jobs that have not ended, of any folder or of one. Raises SiteError when Slurm does not answer."""
    done = _said(["squeue", "--me", "--noheader", "--format=%i|%j|%T|%N|%Z|%r"])
    if done.returncode != 0:
        raise SiteError(f"squeue does not answer: {done.stderr.strip()}")
    found = []
    for line in done.stdout.splitlines():
        number, name, state, nodes, place, why = line.strip().split("|", 5)
        if state not in ENDED and (folder is None or Path(place).resolve() == folder.resolve()):
            found.append(Job(number=number, name=name, state=state, nodes=nodes, folder=place, why=why))
    return found


def job(number: str) -> Job | None:
    """Return a job of ours, None when it has ended or never was."""
    return next((each for each in jobs() if each.number == number), None)


def cancel(numbers: Sequence[str]) -> None:
    """End jobs; what has ended already is passed over."""
    if numbers:
        _said(["scancel", *numbers])


def end(numbers: Sequence[str], *, within_s: float) -> list[Job]:
    """End jobs and wait until the queue does not show them; return those it still shows after `within_s`."""
    cancel(numbers)
    limit_s, wait_s = time.monotonic() + within_s, 0.2
    while left := [each for each in jobs() if each.number in numbers] if numbers else []:
        if time.monotonic() >= limit_s:
            break
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, 5.0)
    return left


def address_of(node: str) -> str:
    """Return the address by which other nodes reach a node: Slurm's own, else its name."""
    try:
        words = _said(["scontrol", "show", "node", node, "--oneliner"]).stdout.split()
    except SiteError:
        return node
    return next((word.removeprefix("NodeAddr=") for word in words if word.startswith("NodeAddr=")), node)


def _said(command: list[str], within_s: float | None = ANSWER_S) -> "subprocess.CompletedProcess[str]":
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=within_s)
    except FileNotFoundError:
        raise SiteError(
            f"no `{command[0]}` here: this needs Slurm. Call it on the site's login node, or name a site without"
            " Slurm with --site."
        ) from None
    except subprocess.TimeoutExpired:
        raise SiteError(f"`{command[0]}` did not answer in {ANSWER_S:g} s. Is Slurm's controller up?") from None
