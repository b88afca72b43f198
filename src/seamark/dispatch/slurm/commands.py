"""Slurm's commands: sbatch, squeue, scancel and queries. Contains every option with which a job is submitted."""

import os
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import join, quote

from seamark.dispatch.job import Job, JobResources, JobSpec
from seamark.errors import SiteError
from seamark.model.site import Partition, Site

ANSWER_S = 60.0
ENDED = frozenset(
    (
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT"),
    )
)
"""States of a job that will not run any more."""


def sbatch_options(resources: JobResources, site: Site) -> dict[str, str | int]:
    """Return the long options of sbatch for a job's resources, in their usual order."""
    options = {
        "partition": resources.partition,
        "account": resources.account,
        "qos": resources.qos,
        "nodes": resources.nodes,
        "ntasks": resources.tasks or resources.nodes,
        **gpu_option(resources, site),
        "cpus-per-task": resources.cpus_per_task,
        "mem": None if resources.mem_gb is None else f"{resources.mem_gb}G",
        "time": None if resources.time_min is None else clock(resources.time_min),
    }
    return {name: value for name, value in options.items() if value}


def executor_resources(resources: JobResources, site: Site) -> dict[str, str | int]:
    """Return a job's resources as Snakemake's Slurm executor plugin names them.

    The CPUs are among them since Snakemake cuts threads to the cores of the machine on which it runs. For a job with
    a `gres` of GPUs the plugin takes `tasks` per GPU, so there is none: Slurm then starts one on each node, or as
    many as an extra option says. It would ask one node for the GPUs of all, so `--gpus-per-node` is an extra option.
    """
    gpus = gpu_option(resources, site)
    extra = [*site.job_options, *(f"--{name}={value}" for name, value in gpus.items() if name != "gres")]
    if "gres" in gpus and resources.tasks:
        extra.append(f"--ntasks-per-node={resources.tasks // resources.nodes}")
    named: dict[str, str | int] = {
        "slurm_account": resources.account or "",
        "slurm_partition": resources.partition or "",
        "cpus_per_task": resources.cpus_per_task or 1,
        "nodes": resources.nodes,
        "tasks": 0 if "gres" in gpus else resources.tasks or resources.nodes,
        "slurm_extra": " ".join(map(quote, extra)),
        "gres": gpus.get("gres", ""),
    }
    return named | ({"qos": resources.qos} if resources.qos else {})


def gpu_option(resources: JobResources, site: Site) -> dict[str, str]:
    """Return the option of sbatch for the GPUs of each node as the site wants it; empty without GPUs."""
    if not resources.gpus_per_node:
        return {}
    if site.gpu_request == "gpus":
        return {"gpus-per-node": str(resources.gpus_per_node)}
    partition = site.partitions.get(resources.partition or "") or Partition(nodes=1, cpus=1, mem_gb=1)
    gres = resources.gres or partition.gres
    return {"gres": f"{gres}:{resources.gpus_per_node}"}


def clock(minutes: int) -> str:
    """Return minutes as a time limit of Slurm: HH:MM:00, with days before that."""
    days, rest = divmod(minutes, 24 * 60)
    return (f"{days}-" if days else "") + f"{rest // 60:02d}:{rest % 60:02d}:00"


def submit(job: JobSpec, site_options: Mapping[str, str | int], *, wait: bool = False) -> tuple[str, int]:
    """Submit a job; return its number and the exit code of sbatch, which with `wait` is that of the job.

    Raises SiteError if Slurm is missing or refuses the job.
    """
    job.logs.mkdir(parents=True, exist_ok=True)
    command = ["sbatch", "--parsable", f"--job-name={job.name}", f"--chdir={job.folder}"]
    logs = str(job.logs).replace("%", "%%")
    command += [f"--output={logs}/%x_%j.out", f"--error={logs}/%x_%j.err"]
    command += [f"--{option}={value}" for option, value in site_options.items()]
    command += [*(("--wait",) if wait else ()), *job.options]
    done = run([*command, f"--wrap=exec {join(job.command)}"], None if wait else ANSWER_S)
    number = done.stdout.strip().partition(";")[0]
    if not number.isdigit():
        raise SiteError(f"sbatch refuses the job '{job.name}': {done.stderr.strip()}", f"    {join(command)}")
    return number, done.returncode


def submit_script(script: Path, options: Sequence[str]) -> str:
    """Submit a job script; return the job's number. Raises SiteError if Slurm is missing or refuses the job."""
    done = run(["sbatch", "--parsable", *options, str(script)])
    if done.returncode != 0:
        raise SiteError(f"sbatch refuses {script}: {done.stderr.strip()}")
    return done.stdout.strip().partition(";")[0]


def queued_by_qos() -> Counter[str] | None:
    """Return the number of this user's jobs by QoS; each task of an array counts, as for Slurm's limits. None without
    an answer."""
    listing = query("squeue", "--me", "--noheader", "--array", "--format=%q")
    return None if listing is None else Counter(listing.split())


def queued_numbers() -> set[str]:
    """Return the numbers of this user's jobs that have not ended, one for an array. SiteError without an answer."""
    return set(answer("squeue", "--me", "--noheader", "--format=%F").split())


def jobs(folder: Path | None = None) -> list[Job]:
    """Return this user's jobs that have not ended, of all folders or of one."""
    done = run(["squeue", "--me", "--noheader", "--format=%i|%j|%T|%N|%Z|%r"])
    if done.returncode != 0:
        raise SiteError(f"squeue does not answer: {done.stderr.strip()}")
    found = []
    for line in done.stdout.splitlines():
        number, name, state, nodes, place, reason = line.strip().split("|", 5)
        if state not in ENDED and (folder is None or Path(place).resolve() == folder.resolve()):
            found.append(Job(id=number, name=name, state=state, nodes=nodes, folder=place, reason=reason))
    return found


def run(command: list[str], within_s: float | None = ANSWER_S) -> "subprocess.CompletedProcess[str]":
    """Run a command of Slurm. Raises SiteError if it is not installed or exceeds its time-out."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=within_s
        )
    except FileNotFoundError:
        raise SiteError(
            f"no `{command[0]}` here: this needs Slurm. Call it on the site's login node, or name a site without"
            " Slurm with --site."
        ) from None
    except subprocess.TimeoutExpired:
        raise SiteError(f"`{command[0]}` did not answer in {ANSWER_S:g} s. Is Slurm's controller up?") from None


def answer(*command: str) -> str:
    """Return the output of a command. Raises SiteError when it fails."""
    done = run([*command])
    if done.returncode != 0:
        raise SiteError(f"`{' '.join(command)}` failed: {done.stderr.strip() or done.returncode}.")
    return done.stdout


def query(*command: str, within_s: float = ANSWER_S) -> str | None:
    """Return the output of a command with times in seconds since 1970, None on failure or time-out."""
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=within_s, check=True, env=environment
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
