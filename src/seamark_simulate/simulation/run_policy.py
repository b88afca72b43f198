"""A workload run on a virtual clock under a policy: by the fast loop, or by the general one if a machine needs it."""

from dataclasses import replace

from seamark_simulate.simulation.engine import Policy, simulate
from seamark_simulate.simulation.general_loop import run_in
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.schedule import Schedule
from seamark_simulate.simulation.virtual_world import VirtualWorld
from seamark_simulate.simulation.workload import Workload, require_windows


def run_policy(
    work: Workload, machine: Machine, policy: Policy, *, instants: bool = False, seed: int = 0
) -> Schedule:
    """Return the schedule of a workload. `seed` decides when GPUs fail, where they may. Raises as `simulate`."""
    require_windows(work, machine)
    layout = machine.layout
    if layout is None:
        return simulate(work, machine, policy, instants=instants)
    if work.has_data or not layout.has_equal_gpus:
        return run_in(VirtualWorld(work), work, machine, policy, instants=instants, seed=seed)
    equal = replace(
        machine,
        pcie_gb_per_s=layout.hosts[0].kind.pcie_gb_per_s,
        switch_overhead_s=layout.switch_overhead_s,
        layout=None,
    )
    return replace(simulate(work, equal, policy, instants=instants), machine=replace(equal, layout=layout))
