"""Priorities with preemption: a node may take the GPUs of nodes with lower priority that run."""

from collections.abc import Callable
from itertools import count

from seamark.simulation.engine import Dispatch, Running, View


def by_key_with_preemption(view: View, key: Callable[[int], float], priority: Callable[[int], float]) -> Dispatch:
    """List scheduling by a key, lowest first. Where no node fits any more, the first for which executions of strictly
    lower priority can be ended takes their GPUs: those of the lowest priority, of equals the latest started.
    """
    cluster, model, need = view.cluster, view.model, view.need
    preempt = view.preempt
    assert preempt is not None, "the machine allows preemption"
    waiting: list[tuple[float, int, int]] = []
    serial = count()

    def take_ready() -> None:
        waiting.extend((key(node), next(serial), node) for node in view.ready)
        view.ready.clear()
        waiting.sort()

    def start_fitting() -> None:
        for entry in tuple(waiting):
            node = entry[2]
            place = cluster.place(model[node], need[node])
            if place >= 0:
                waiting.remove(entry)
                view.start(node, place)

    def dispatch() -> None:
        take_ready()
        start_fitting()
        while entry := next((entry for entry in waiting if _victims(view, entry[2], priority)), None):
            node = entry[2]
            for victim in _victims(view, node, priority):
                preempt(victim.execution)
            place = cluster.place(model[node], need[node])
            if place < 0:
                break  # a victim ends at this time anyway, which is the next event
            waiting.remove(entry)
            view.start(node, place)
            take_ready()
            start_fitting()

    return dispatch


def _victims(view: View, node: int, priority: Callable[[int], float]) -> list[Running]:
    """Return the executions to end for a node, none where those of lower priority do not make room for it."""
    cluster, mine = view.cluster, priority(node)
    lower = [each for each in view.running() if priority(each.node) < mine]
    lower.sort(key=lambda each: (priority(each.node), -each.taken_s, -each.execution))
    mask = cluster.free
    for each in lower:
        mask |= each.gpus
        place = cluster.window_in(mask & cluster.up, view.model[node], view.need[node])
        if place >= 0:
            taken = cluster.mask_of(place, view.need[node])
            return [other for other in lower if other.gpus & taken]
    return []
