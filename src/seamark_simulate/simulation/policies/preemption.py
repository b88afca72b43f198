"""Priorities with preemption: a node may take the GPUs of nodes with lower priority that run."""

from collections.abc import Callable, Hashable, Sequence
from heapq import heappop, heappush
from itertools import count

from seamark_simulate.simulation.engine import Dispatch, Running, View

Entry = tuple[float, int, int]
"""Key, serial number and number of a node that waits."""


def by_key_with_preemption(view: View, key: Callable[[int], float], priority: Callable[[int], float]) -> Dispatch:
    """List scheduling by a key, lowest first. Where no node fits any more, the first for which executions of strictly
    lower priority can be ended takes their GPUs: those of the lowest priority, of equals the latest started.

    Whether a node fits, and which executions make room for it, depends on its group of GPUs and its priority alone.
    So the heads of one heap for each of both give what a pass over all waiting nodes would give.
    """
    cluster, model, need = view.cluster, view.model, view.need
    preempt = view.preempt
    assert preempt is not None, "the machine allows preemption"
    heaps: dict[tuple[Hashable, float], list[Entry]] = {}
    serial = count()

    def take_ready() -> None:
        for node in view.ready:
            of = cluster.groups[model[node]], priority(node)
            heappush(heaps.setdefault(of, []), (key(node), next(serial), node))
        view.ready.clear()

    def start_fitting() -> None:
        heads = [(heap[0], of) for of, heap in heaps.items() if heap] if cluster.free else []
        while heads and cluster.free:
            head = min(heads)
            (_, _, node), of = head
            place = cluster.place(model[node], need[node])
            if place < 0:
                heads = [other for other in heads if other[1][0] != of[0]]
                continue
            heads.remove(head)
            heappop(heaps[of])
            view.start(node, place)
            if heaps[of]:
                heads.append((heaps[of][0], of))

    def start_instead() -> bool:
        """Start the first node that others make room for; false without one, or where one of them ends just now."""
        lowest_first = _lowest_first(view, priority) if any(heaps.values()) else []
        if not lowest_first:
            return False
        least = lowest_first[0][0]
        for (_, _, node), of in sorted((heap[0], of) for of, heap in heaps.items() if heap and of[1] > least):
            victims = _victims(view, node, of[1], lowest_first)
            if not victims:
                continue
            for victim in victims:
                preempt(victim.execution)
            place = cluster.place(model[node], need[node])
            if place < 0:
                return False  # a victim ends at this time anyway, which is the next event
            heappop(heaps[of])
            view.start(node, place)
            return True
        return False

    def dispatch() -> None:
        take_ready()
        start_fitting()
        while start_instead():
            take_ready()
            start_fitting()

    return dispatch


def _lowest_first(view: View, priority: Callable[[int], float]) -> list[tuple[float, Running]]:
    """Return what runs with its priority, in the order in which it is ended for others."""
    running = [(priority(run.node), run) for run in view.running()]
    return sorted(running, key=lambda pair: (pair[0], -pair[1].taken_s, -pair[1].execution))


def _victims(view: View, node: int, mine: float, lowest_first: Sequence[tuple[float, Running]]) -> list[Running]:
    """Return the executions to end for a node of priority `mine`, none where those of lower priority do not make room
    for it."""
    cluster, lower = view.cluster, [run for priority, run in lowest_first if priority < mine]
    mask = cluster.free
    for run in lower:
        mask |= run.gpus
        place = cluster.window_in(mask & cluster.up, view.model[node], view.need[node])
        if place >= 0:
            taken = cluster.mask_of(place, view.need[node])
            return [other for other in lower if other.gpus & taken]
    return []
