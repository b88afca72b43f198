"""The batch job as Slurm's environment names it."""

from collections.abc import Mapping

KEYS = (
    *("SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_PARTITION", "SLURM_JOB_ACCOUNT", "SLURM_JOB_QOS"),
    *("SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES", "SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_GPUS", "SLURM_MEM_PER_NODE"),
    *("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_STEP_ID", "SLURM_CLUSTER_NAME", "SLURM_RESTART_COUNT"),
    *("SLURM_JOB_RESERVATION", "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME", "SLURMD_NODENAME"),
)


def slurm(environment: Mapping[str, str]) -> dict[str, str] | None:
    """Return the batch job's own names, or None outside of one.

    A job that was never requeued has no restart count in its environment; it is given as 0.
    """
    found = {key.lower(): environment[key] for key in KEYS if key in environment}
    if "slurm_job_id" not in found:
        return None
    return {**found, "slurm_restart_count": found.get("slurm_restart_count", "0")}


def node_count(environment: Mapping[str, str]) -> int:
    """Return how many nodes the allocation has; 1 outside of one."""
    said = environment.get("SLURM_JOB_NUM_NODES") or environment.get("SLURM_NNODES") or ""
    return int(said) if said.isdigit() and environment.get("SLURM_JOB_ID") else 1
