"""HEFT and CPOP: planners of one task graph on unlike processors (Topcuoglu, Hariri and Wu, IEEE TPDS 13(3),
2002)."""

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, kw_only=True)
class TaskGraph:
    """Tasks by number. `cost_s[task][processor]` is the time of a task, `transfer_s[source, target]` that of the data
    on an edge between two processors; on one processor it takes no time."""

    cost_s: Sequence[Sequence[float]]
    transfer_s: Mapping[tuple[int, int], float]

    @cached_property
    def after(self) -> list[list[int]]:
        """Successors of each task."""
        successors: list[list[int]] = [[] for _ in self.cost_s]
        for source, target in self.transfer_s:
            successors[source].append(target)
        return successors

    @cached_property
    def before(self) -> list[list[int]]:
        """Predecessors of each task."""
        predecessors: list[list[int]] = [[] for _ in self.cost_s]
        for source, target in self.transfer_s:
            predecessors[target].append(source)
        return predecessors

    @cached_property
    def order(self) -> list[int]:
        """Tasks in a topological order. Raises ValueError for a cycle."""
        left = [len(before) for before in self.before]
        order = [task for task, count in enumerate(left) if not count]
        for task in order:
            for target in self.after[task]:
                left[target] -= 1
                if not left[target]:
                    order.append(target)
        if len(order) < len(left):
            raise ValueError("the task graph has a cycle")
        return order

    def mean_s(self, task: int) -> float:
        """Return the mean time of a task over the processors."""
        return sum(self.cost_s[task]) / len(self.cost_s[task])


@dataclass(frozen=True, kw_only=True)
class Slot:
    """Place of a task in a plan."""

    processor: int
    start_s: float
    end_s: float


def upward_ranks(graph: TaskGraph, transfers: float = 1.0) -> list[float]:
    """Return by task its mean time and the longest path below it (eq. 11).

    Transfers count by their time between two processors times `transfers`. The paper's mean is over pairs of
    different processors, which is 1; a mean that counts a processor's free transfers to itself is less.
    """
    ranks = [0.0] * len(graph.cost_s)
    for task in reversed(graph.order):
        below = (transfers * graph.transfer_s[task, target] + ranks[target] for target in graph.after[task])
        ranks[task] = graph.mean_s(task) + max(below, default=0.0)
    return ranks


def downward_ranks(graph: TaskGraph) -> list[float]:
    """Return by task the longest path above it, without itself (eq. 13)."""
    ranks = [0.0] * len(graph.cost_s)
    for task in graph.order:
        above = (
            ranks[source] + graph.mean_s(source) + graph.transfer_s[source, task] for source in graph.before[task]
        )
        ranks[task] = max(above, default=0.0)
    return ranks


def heft(graph: TaskGraph, transfers: float = 1.0) -> list[Slot]:
    """Return the plan of HEFT: tasks by decreasing upward rank, each where it ends first, also in a gap between
    others. Of equal ranks the earlier task goes first, of equal ends the lower processor. `transfers` is that of the
    ranks."""
    ranks, plan = upward_ranks(graph, transfers), _Plan(graph)
    places = {task: position for position, task in enumerate(graph.order)}
    for task in sorted(graph.order, key=lambda task: (-ranks[task], places[task])):
        plan.add(task, range(len(graph.cost_s[task])))
    return plan.slots()


def cpop(graph: TaskGraph) -> list[Slot]:
    """Return the plan of CPOP: ready tasks by upward and downward rank; those on the critical path all on the
    processor that takes the least time for them, the others where they end first."""
    up, down = upward_ranks(graph), downward_ranks(graph)
    rank = [above + below for above, below in zip(up, down, strict=True)]
    path = critical_path(graph, rank)
    processors = range(len(graph.cost_s[0]))
    fastest = min(processors, key=lambda processor: sum(graph.cost_s[task][processor] for task in path))
    left = [len(before) for before in graph.before]
    ready = [task for task, count in enumerate(left) if not count]
    plan = _Plan(graph)
    while ready:
        task = min(ready, key=lambda task: (-rank[task], task))
        ready.remove(task)
        plan.add(task, [fastest] if task in path else processors)
        for target in graph.after[task]:
            left[target] -= 1
            if not left[target]:
                ready.append(target)
    return plan.slots()


def critical_path(graph: TaskGraph, rank: Sequence[float]) -> list[int]:
    """Return the tasks of one critical path: from the first task with the highest rank on, of that rank."""
    entries = [task for task, before in enumerate(graph.before) if not before]
    path = [max(entries, key=lambda task: (rank[task], -task))]
    while graph.after[path[-1]]:
        path.append(max(graph.after[path[-1]], key=lambda task: (rank[task], -task)))
    return path


class _Plan:
    """Slots of the tasks that are planned, and what each processor does."""

    def __init__(self, graph: TaskGraph) -> None:
        self.graph = graph
        self.slot: dict[int, Slot] = {}
        self.busy: dict[int, list[tuple[float, float]]] = {}

    def add(self, task: int, processors: Sequence[int]) -> None:
        """Plan a task on the processor where it ends first."""
        slots = [self._earliest(task, processor) for processor in processors]
        slot = min(slots, key=lambda slot: (slot.end_s, slot.processor))
        self.slot[task] = slot
        insort(self.busy.setdefault(slot.processor, []), (slot.start_s, slot.end_s))

    def _earliest(self, task: int, processor: int) -> Slot:
        """Return the first gap of a processor that holds the task once its data are there."""
        ready_s = 0.0
        for source in self.graph.before[task]:
            slot = self.slot[source]
            away = slot.processor != processor
            ready_s = max(ready_s, slot.end_s + (self.graph.transfer_s[source, task] if away else 0.0))
        length_s, begin_s = self.graph.cost_s[task][processor], ready_s
        for start_s, end_s in self.busy.get(processor, ()):
            if begin_s + length_s <= start_s:
                break
            begin_s = max(begin_s, end_s)
        return Slot(processor=processor, start_s=begin_s, end_s=begin_s + length_s)

    def slots(self) -> list[Slot]:
        return [self.slot[task] for task in range(len(self.graph.cost_s))]
