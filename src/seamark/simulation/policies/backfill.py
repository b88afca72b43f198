"""Backfill: nodes may start before those ahead of them where that delays no reservation, by estimated times."""

from collections.abc import Sequence
from math import inf

from seamark.simulation.engine import Dispatch, View

DEPTH = 64
"""Nodes at the head of the queue that conservative backfill reserves for; those behind wait."""


def easy(view: View) -> Dispatch:
    """EASY backfill (Lifka 1995): the first node that does not fit gets a reservation, and later ones start only
    where they end before it or leave its GPUs alone."""
    cluster, ready, model, need, start = view.cluster, view.ready, view.model, view.need, view.start
    queue: list[int] = []

    def dispatch() -> None:
        queue.extend(ready)
        ready.clear()
        while queue and cluster.free:
            gpu = cluster.place(model[queue[0]], need[queue[0]])
            if gpu < 0:
                break
            start(queue.pop(0), gpu)
        if not queue or not cluster.free:
            return
        reserved, begin_s = _reservation(view, queue[0])
        kept = [queue[0]]
        for place, node in enumerate(queue[1:], 1):
            if not cluster.free:
                kept.extend(queue[place:])
                break
            gpu = cluster.place(model[node], need[node])
            if gpu >= 0 and _end_s(view, node, gpu) > begin_s and cluster.mask_of(gpu, need[node]) & reserved:
                gpu = cluster.place_among(model[node], need[node], ~reserved)
            if gpu >= 0:
                start(node, gpu)
            else:
                kept.append(node)
        queue[:] = kept

    return dispatch


def _end_s(view: View, node: int, gpu: int) -> float:
    """Return the estimated end of a node that starts now on a GPU."""
    fetch_s = view.cluster.fetch_to_s(view.model[node], gpu)
    return view.now_s + fetch_s + view.run_s(node, gpu) + view.input_s(node, gpu, {})


def _free_from_s(view: View) -> list[float]:
    """Return by GPU when it should be free, inf for one that is not there; a node that takes longer than estimated
    should end now."""
    now_s, free = view.now_s, view.cluster.free
    return [now_s if free >> gpu & 1 else max(now_s, end_s) for gpu, end_s in enumerate(view.expected_end_s())]


def _reservation(view: View, node: int) -> tuple[int, float]:
    """Return the mask of the window for a node that should be free first, and when; of equals the lowest."""
    cluster, free_s, count = view.cluster, _free_from_s(view), view.need[node]
    windows = cluster.windows(view.model[node], count, free_s)
    begins = [(max(map(free_s.__getitem__, cluster.gpus_of(place, count))), place) for place in windows]
    if not begins:
        return 0, inf
    begin_s, place = min(begins)
    return cluster.mask_of(place, count), begin_s


def conservative(view: View) -> Dispatch:
    """Conservative backfill (Mu'alem and Feitelson 2001): every node has a reservation, in the order of the queue,
    and starts when that has come. Reservations are made anew at each event; before a start they assume the costliest
    fetch.
    """
    cluster, ready, model, need, start = view.cluster, view.ready, view.model, view.need, view.start
    queue: list[int] = []

    def dispatch() -> None:
        queue.extend(ready)
        ready.clear()
        if not queue or not cluster.free:
            return
        taken: list[list[tuple[float, float]]] = [
            [(view.now_s, free_s)] if free_s > view.now_s else [] for free_s in _free_from_s(view)
        ]
        busy = (1 << cluster.gpus) - 1 ^ cluster.free
        kept: list[int] = []
        for place, node in enumerate(queue):
            if len(kept) >= DEPTH or not cluster.free:
                kept.extend(queue[place:])
                break
            gpu = _start_now(view, node, taken, busy)
            if gpu >= 0:
                length_s = _end_s(view, node, gpu) - view.now_s
                _hold(taken, cluster.gpus_of(gpu, need[node]), view.now_s, length_s)
                busy |= cluster.mask_of(gpu, need[node])
                start(node, gpu)
            else:
                length_s = cluster.worst_fetch_s(model[node]) + view.estimate_s[node]
                begin_s, gpu = _earliest(view, node, taken, length_s)
                _hold(taken, cluster.gpus_of(gpu, need[node]), begin_s, length_s)
                kept.append(node)
        queue[:] = kept

    return dispatch


def _start_now(view: View, node: int, taken: Sequence[Sequence[tuple[float, float]]], busy: int) -> int:
    """Return the first GPU on which a node can start now and end before every later reservation, -1 for none."""
    cluster, count = view.cluster, view.need[node]
    allowed = ~busy
    while True:
        gpu = cluster.place_among(view.model[node], count, allowed)
        if gpu < 0:
            return -1
        end_s = _end_s(view, node, gpu)
        gpus = cluster.gpus_of(gpu, count)
        blocked = [each for each in gpus if any(begin_s < end_s for begin_s, _ in taken[each])]
        if not blocked:
            return gpu
        for each in blocked:
            allowed &= ~(1 << each)


def _earliest(
    view: View, node: int, taken: Sequence[Sequence[tuple[float, float]]], length_s: float
) -> tuple[float, int]:
    """Return the earliest time at which a place for a node is not taken for a length of time, and that place."""
    times_s = sorted({view.now_s, *(end_s for held in taken for _, end_s in held)})
    for begin_s in times_s:
        free = 0
        for gpu, held in enumerate(taken):
            if all(end_s <= begin_s or other_s >= begin_s + length_s for other_s, end_s in held):
                free |= 1 << gpu
        place = view.cluster.window_in(free, view.model[node], view.need[node])
        if place >= 0:
            return begin_s, place
    raise AssertionError("after the last reservation every window is free")


def _hold(taken: Sequence[list[tuple[float, float]]], gpus: Sequence[int], begin_s: float, length_s: float) -> None:
    for each in gpus:
        taken[each].append((begin_s, begin_s + length_s))
