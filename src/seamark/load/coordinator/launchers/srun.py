"""Workers as the tasks of one Slurm step over the nodes of the current allocation."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seamark.errors import SiteError
from seamark.platform.fork_server.client import ISOLATED_MAIN

KEPT = ("SLURM_CONF",)
"""The only Slurm variables passed on: others of this step would shape the new one."""


def step(job: str, tasks: int, nodes: Sequence[str], command: Sequence[str]) -> list[str]:
    """Return the command of a step with `tasks` tasks over `nodes`, or over all nodes of the job.

    It shares the resources of other steps, binds no task to CPUs, and no task's end ends another.
    """
    return [
        *("srun", f"--jobid={job}", f"--ntasks={tasks}", "--overlap", "--distribution=cyclic"),
        *((f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}") if nodes else ()),
        *("--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--mem=0", "--cpu-bind=none", "--export=ALL"),
        *("--label", "--quiet", *command),
    ]


def step_environment() -> dict[str, str]:
    """Return the environment without the Slurm variables of this step."""
    return {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith("SLURM_")}


class Srun:
    """`srun` within an allocation. The tasks inherit the environment."""

    name = "srun"
    detached = False

    def __init__(self, nodes: Sequence[str] = ()) -> None:
        """Use `nodes` only, if given. Raise SiteError outside of an allocation."""
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

    def nearby_host(self) -> str | None:
        """Return None: nodes of an allocation know each other by name."""
        return None

    def command(self, workers: int, python: Path) -> list[str]:
        """Return one step with that many tasks, spread over the nodes."""
        return step(
            self.job,
            workers,
            self.nodes[:workers],
            (str(python), ISOLATED_MAIN, "seamark.load.workers.remote_worker"),
        )

    def environment(self) -> dict[str, str]:
        """Return the environment without the Slurm variables of this step."""
        return step_environment()

    def spec(self) -> Mapping[str, Any]:
        """Return nothing: a task's number is its worker's."""
        return {}
