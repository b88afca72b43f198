"""A world on a virtual clock: what a start costs follows from the machine and the times of the workload."""

from heapq import heappop, heappush

from seamark.simulation.machine import Machine
from seamark.simulation.workload import Workload
from seamark.simulation.world import End, Start


class VirtualWorld:
    """Computes the end of an execution when it starts: fetch of its model by the machine, then the node's time."""

    def __init__(self, work: Workload, machine: Machine) -> None:
        self._fetch_s = machine.fetch_table(work.models)
        self._duration_s = work.duration_s
        self._ends: list[tuple[float, int, float, float]] = []

    def start(self, start: Start) -> float:
        """Begin an execution at once."""
        fetch_s = self._fetch_s[start.model][-1 if start.old_model is None else start.old_model]
        duration_s = self._duration_s[start.node]
        heappush(self._ends, (start.at_s + fetch_s + duration_s, start.execution, fetch_s, duration_s))
        return start.at_s

    def next_end(self, until_s: float) -> End | None:
        """Return the next end before `until_s`."""
        if not self._ends or self._ends[0][0] >= until_s:
            return None
        at_s, execution, fetch_s, duration_s = heappop(self._ends)
        return End(execution=execution, at_s=at_s, fetch_s=fetch_s, duration_s=duration_s)
