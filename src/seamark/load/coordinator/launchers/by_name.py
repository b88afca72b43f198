"""One of the carriers by its name and address."""

from collections.abc import Sequence
from pathlib import Path

from seamark.errors import UserError
from seamark.load.coordinator.launchers.launched_worker import Launched
from seamark.load.coordinator.launchers.launcher import Carrier
from seamark.load.coordinator.launchers.srun import Srun
from seamark.load.coordinator.launchers.task_cluster import Executor
from seamark.load.coordinator.local_worker import Local
from seamark.model.launcher import misplaced


def carrier_of(
    name: str,
    address: str | None = None,
    python: Path | None = None,
    owner: int | None = None,
    nodes: Sequence[str] = (),
) -> Carrier:
    """Return the carrier of that name. `python` is an interpreter with the cluster's package (None: this one);
    `owner` is as `run_load` has it; `nodes` are those of a Slurm job that it keeps to (none: to no particular ones).
    Raises UserError for a name or address that cannot be, SiteError for what this machine lacks."""
    if wrong := misplaced(name, address):
        raise UserError(f"carrier: {wrong}")
    if name == "local":
        return Local(owner)
    if name == "srun":
        return Launched(Srun(nodes))
    assert address is not None
    return Launched(Executor(name, address, python))
