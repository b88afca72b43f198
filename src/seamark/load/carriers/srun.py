"""Workers as the tasks of one Slurm step, over the nodes of the allocation that we are in."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seamark.errors import SiteError
from seamark.forkserver.client import OUTSIDE

KEPT = ("SLURM_CONF",)
"""Of Slurm's variables only these are handed on: others of the step we are in would shape the step we ask for."""


class Srun:
    """`srun` within an allocation. The tasks see our environment."""

    name = "srun"
    alone = False

    def __init__(self) -> None:
        """Raise SiteError where there is no allocation."""
        job = os.environ.get("SLURM_JOB_ID")
        if shutil.which("srun") is None:
            raise SiteError("carrier srun: there is no srun on PATH. Choose another carrier, or load Slurm's module.")
        if not job:
            raise SiteError(
                "carrier srun: no Slurm allocation here (SLURM_JOB_ID is not set). Run within one, "
                "as `salloc --nodes=2 bench ...`, or choose another carrier."
            )
        self.job = job

    def near(self) -> str | None:
        """Return None: every node of an allocation knows the others by name."""
        return None

    def command(self, workers: int, python: Path) -> list[str]:
        """Return one step of so many tasks, spread over the nodes. No task's end ends another."""
        return [
            *("srun", f"--jobid={self.job}", f"--ntasks={workers}", "--overlap", "--distribution=cyclic"),
            *("--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--mem=0", "--cpu-bind=none", "--export=ALL"),
            *("--label", "--quiet", str(python), OUTSIDE, "seamark.load.remote"),
        ]

    def environment(self) -> dict[str, str]:
        """Return our environment without what Slurm said of our own step."""
        return {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith("SLURM_")}

    def order(self) -> Mapping[str, Any]:
        """Return nothing: a task's number is its worker's."""
        return {}
