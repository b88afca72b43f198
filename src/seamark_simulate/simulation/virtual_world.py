"""A workload run on a virtual clock under a policy: costs are those that the machine's rules expect, times those of
the workload."""

from dataclasses import replace
from heapq import heappop, heappush

from seamark_simulate.simulation.engine import Policy, simulate
from seamark_simulate.simulation.general_loop import run_in
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.schedule import Schedule
from seamark_simulate.simulation.workload import Workload, require_windows
from seamark_simulate.simulation.world import End, Start


class VirtualWorld:
    """Knows the end of an execution when it starts: fetch of its model, its data, then the node's time."""

    def __init__(self, work: Workload) -> None:
        self._duration_s = work.duration_s
        self._ends: list[tuple[float, int]] = []
        self._running: dict[int, tuple[Start, float]] = {}

    def start(self, start: Start) -> float:
        """Begin an execution at once."""
        whole_s = self._duration_s[start.node]
        duration_s = whole_s if start.speed == start.left_ratio == 1 else whole_s * start.left_ratio / start.speed
        self._running[start.execution] = start, duration_s
        heappush(self._ends, (_end_s(start, duration_s), start.execution))
        return start.at_s

    def next_end(self, until_s: float) -> End | None:
        """Return the next end before `until_s`."""
        while self._ends and self._ends[0][0] < until_s:
            at_s, execution = heappop(self._ends)
            if execution in self._running:
                start, duration_s = self._running.pop(execution)
                return End(
                    execution=execution,
                    at_s=at_s,
                    fetch_s=start.fetch_s,
                    transfer_s=start.transfer_s,
                    duration_s=duration_s,
                    done_ratio=start.left_ratio,
                )
        return None

    def interrupt(self, execution: int, at_s: float) -> End | None:
        """End an execution. A model that was on its way is not on the GPUs then."""
        start, duration_s = self._running[execution]
        if _end_s(start, duration_s) <= at_s:
            return None
        del self._running[execution]
        passed_s = max(0.0, at_s - start.at_s)  # 0 while its data were on their way
        fetch_s = min(start.fetch_s, passed_s)
        transfer_s = min(start.transfer_s, max(0.0, passed_s - start.fetch_s))
        ran_s = max(0.0, passed_s - start.fetch_s - start.transfer_s)
        return End(
            execution=execution,
            at_s=at_s,
            fetch_s=fetch_s,
            transfer_s=transfer_s,
            duration_s=ran_s,
            done_ratio=start.left_ratio * min(1.0, ran_s / duration_s) if duration_s else 0.0,
            gpus="kept" if passed_s >= start.fetch_s else "emptied",
        )


def _end_s(start: Start, duration_s: float) -> float:
    return start.at_s + start.fetch_s + start.transfer_s + duration_s


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
