"""Identity of this process: node, machine, batch allocation. The only reader of batch systems' environment variables.

A process on a compute node knows its environment, not the site from which it was submitted. So identity is read from
the environment, by functions: a further batch system adds its variables here.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

BATCH_JOB = (
    *("SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_PARTITION", "SLURM_JOB_ACCOUNT", "SLURM_JOB_QOS"),
    *("SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_GPUS", "SLURM_MEM_PER_NODE"),
    *("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_STEP_ID", "SLURM_CLUSTER_NAME", "SLURM_RESTART_COUNT"),
    *("SLURM_JOB_RESERVATION", "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME", "SLURMD_NODENAME"),
)
"""Variables that meta.json keeps of the batch job of a trial."""

BOOT_FILE = Path("/proc/sys/kernel/random/boot_id")


def node(environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of this node: the batch system's inside a job step, else the host name."""
    return environment.get("SLURMD_NODENAME") or socket.gethostname()


def node_names() -> tuple[str, ...]:
    """Return every name that a batch system may have for this node, its own first."""
    host = socket.gethostname()
    return tuple(dict.fromkeys((node(), host, host.partition(".")[0])))


def boot_id() -> str:
    """Return an id of this boot and process-id namespace: processes with the same id see each other."""
    try:
        return f"{BOOT_FILE.read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return f"{node()}-unknown-boot"


def allocation(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the id of the batch job that this process runs in, None outside of one."""
    return environment.get("SLURM_JOB_ID") or None


def allocated_nodes(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of nodes of this process's allocation; 1 outside of one."""
    count = environment.get("SLURM_JOB_NUM_NODES") or environment.get("SLURM_NNODES") or ""
    return int(count) if count.isdigit() and allocation(environment) else 1


def cluster(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the name of the cluster whose batch job this process runs in, None outside of one."""
    return environment.get("SLURM_CLUSTER_NAME") if allocation(environment) else None


def task_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Return the rank of this process among the tasks of its job step. Raises KeyError outside of one."""
    return int(environment["SLURM_PROCID"])


def batch_job(environment: Mapping[str, str] = os.environ) -> dict[str, str] | None:
    """Return the batch job as its environment describes it, None outside of one.

    Slurm sets no restart count for a job that was never requeued; it is given as 0.
    """
    if not allocation(environment):
        return None
    return {"slurm_restart_count": "0"} | {key.lower(): environment[key] for key in BATCH_JOB if key in environment}


def job_step(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the id of the job step of this process, `JOB.batch` for the job script; None outside of a job."""
    number = environment.get("SLURM_STEP_ID", "")
    step = number if number.isdigit() and int(number) < 1 << 31 else "batch"
    return f"{job}.{step}" if (job := allocation(environment)) else None
