"""Workers as the tasks of one Slurm step, over the nodes of the allocation that we are in."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seamark.errors import SiteError
from seamark.platform.fork_server.client import OUTSIDE

KEPT = ("SLURM_CONF",)
"""Of Slurm's variables only these are handed on: others of the step we are in would shape the step we ask for."""


def step(job: str, tasks: int, nodes: Sequence[str], command: Sequence[str]) -> list[str]:
    """Return the command line of one step of so many tasks over `nodes`; of none, over all nodes of the job.

    It shares what other steps have, no task is kept to some of the CPUs, and no task's end ends another.
    """
    return [
        *("srun", f"--jobid={job}", f"--ntasks={tasks}", "--overlap", "--distribution=cyclic"),
        *((f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}") if nodes else ()),
        *("--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--mem=0", "--cpu-bind=none", "--export=ALL"),
        *("--label", "--quiet", *command),
    ]


def step_environment() -> dict[str, str]:
    """Return our environment without what Slurm said of our own step."""
    return {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith("SLURM_")}


class Srun:
    """`srun` within an allocation. The tasks see our environment."""

    name = "srun"
    alone = False

    def __init__(self, nodes: Sequence[str] = ()) -> None:
        """Keep to `nodes`, where some are named. Raise SiteError where there is no allocation."""
        job = os.environ.get("SLURM_JOB_ID")
        if shutil.which("srun") is None:
            raise SiteError("carrier srun: there is no srun on PATH. Choose another carrier, or load Slurm's module.")
        if not job:
            raise SiteError(
                "carrier srun: no Slurm allocation here (SLURM_JOB_ID is not set). Run within one, "
                "as `salloc --nodes=2 bench ...`, or choose another carrier."
            )
        self.job = job
        self.nodes = tuple(nodes)

    def near(self) -> str | None:
        """Return None: every node of an allocation knows the others by name."""
        return None

    def command(self, workers: int, python: Path) -> list[str]:
        """Return one step of so many tasks, spread over the nodes."""
        return step(
            self.job, workers, self.nodes[:workers], (str(python), OUTSIDE, "seamark.load.workers.remote_worker")
        )

    def environment(self) -> dict[str, str]:
        """Return our environment without what Slurm said of our own step."""
        return step_environment()

    def order(self) -> Mapping[str, Any]:
        """Return nothing: a task's number is its worker's."""
        return {}
