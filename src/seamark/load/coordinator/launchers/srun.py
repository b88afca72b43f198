"""Workers as the tasks of one Slurm step over the nodes of the current allocation."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seamark.dispatch.identity import allocation
from seamark.dispatch.slurm.allocation import step, step_environment
from seamark.errors import SiteError
from seamark.platform.fork_server.client import ISOLATED_MAIN


class Srun:
    """`srun` within an allocation. The tasks inherit the environment."""

    name = "srun"
    detached = False

    def __init__(self, nodes: Sequence[str] = ()) -> None:
        """Use `nodes` only, if given. Raise SiteError outside of an allocation."""
        job = allocation()
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
