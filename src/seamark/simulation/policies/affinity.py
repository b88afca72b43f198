"""Policies that weigh which model is where: batches by model, a greedy score, and a fixed place for each model."""

from collections import deque

from seamark.simulation.cluster import lowest, window_starts
from seamark.simulation.engine import Dispatch, View

WAIT, SWITCH, FUTURE, BALANCE = 1.0, 1.5, 0.3, 0.5
"""Weights of the greedy score."""
LOOKAHEAD = 3
DEPTH = 32
"""Nodes at the head of the queue that the greedy policy compares."""


def batch_by_model(view: View) -> Dispatch:
    """Nodes whose model a free GPU holds go first; else the model with the most estimated work waiting gets a GPU."""
    cluster, ready, model, need, start = view.cluster, view.ready, view.model, view.need, view.start
    queues: list[deque[int]] = [deque() for _ in view.models]
    work_s = [0.0] * len(view.models)

    def dispatch() -> None:
        for node in ready:
            queues[model[node]].append(node)
            work_s[model[node]] += view.estimate_s[node]
        ready.clear()
        blocked: set[int] = set()
        while cluster.free:
            waiting = [number for number, queue in enumerate(queues) if queue and number not in blocked]
            if not waiting:
                return
            chosen = min(waiting, key=lambda number: (not cluster.free_of[number], -work_s[number], number))
            node = queues[chosen][0]
            gpu = cluster.place(chosen, need[node])
            if gpu < 0:
                blocked.add(chosen)
                continue
            queues[chosen].popleft()
            work_s[chosen] -= view.estimate_s[node]
            start(node, gpu)

    return dispatch


def greedy(view: View) -> Dispatch:
    """The pair of node and GPU with the lowest score first, in seconds: SWITCH x time to fetch the model - WAIT x
    time waited - FUTURE x fetches that the next LOOKAHEAD nodes of the queue would save there + BALANCE x the time
    for which the GPU was used beyond the average."""
    cluster, ready, model, need, start = view.cluster, view.ready, view.model, view.need, view.start
    queue: list[int] = []
    since_s: dict[int, float] = {}
    used_s = [0.0] * cluster.gpus

    def score(place: int, gpu: int) -> float:
        node = queue[place]
        fetch_s = cluster.fetch_s[model[node]][cluster.resident[gpu]]
        alike = sum(model[other] == model[node] for other in queue[place + 1 : place + 1 + LOOKAHEAD])
        saved_s = alike * max(cluster.fetch_s[model[node]])
        beyond_s = used_s[gpu] - sum(used_s) / len(used_s)
        waited_s = view.now_s - since_s[node]
        return SWITCH * fetch_s - WAIT * waited_s - FUTURE * saved_s + BALANCE * beyond_s

    def dispatch() -> None:
        queue.extend(ready)
        since_s.update(dict.fromkeys(ready, view.now_s))
        ready.clear()
        while queue and cluster.free:
            pairs = [
                (score(place, gpu), place, gpu)
                for place in range(min(DEPTH, len(queue)))
                for gpu in _starts(cluster.free, need[queue[place]])
            ]
            if not pairs:
                return
            _, place, gpu = min(pairs)
            node = queue.pop(place)
            del since_s[node]
            fetch_s = cluster.fetch_s[model[node]][cluster.resident[gpu]]
            for each in range(gpu, gpu + need[node]):
                used_s[each] += fetch_s + view.estimate_s[node]
            start(node, gpu)

    return dispatch


def _starts(free: int, count: int) -> list[int]:
    """Return the first GPU of every window of that many free GPUs."""
    found, left = [], window_starts(free, count)
    while left:
        found.append(lowest(left))
        left &= left - 1
    return found


def static_placement(view: View) -> Dispatch:
    """Each model has fixed GPUs, first in, first out on each: GPUs are dealt in turn to the models of one GPU, and a
    model of several uses the windows that begin at its multiples."""
    cluster, ready, model, need, start = view.cluster, view.ready, view.model, view.need, view.start
    ones = [number for number, each in enumerate(view.models) if each.gpus_required == 1]
    masks = {number: _dealt(place, len(ones), cluster.gpus) for place, number in enumerate(ones)}
    queues: list[deque[int]] = [deque() for _ in view.models]
    order = {}
    count = 0

    def first_gpu(node: int) -> int:
        many = need[node]
        if many == 1:
            return cluster.place_among(model[node], 1, masks[model[node]])
        starts = [gpu for gpu in _starts(cluster.free, many) if gpu % many == 0]
        return starts[0] if starts else -1

    def dispatch() -> None:
        nonlocal count
        for node in ready:
            queues[model[node]].append(node)
            order[node] = count
            count += 1
        ready.clear()
        waiting = {queue[0] for queue in queues if queue}
        while waiting and cluster.free:
            node = min(waiting, key=order.__getitem__)
            waiting.remove(node)
            gpu = first_gpu(node)
            if gpu >= 0:
                queue = queues[model[node]]
                queue.popleft()
                del order[node]
                start(node, gpu)
                if queue:
                    waiting.add(queue[0])

    return dispatch


def _dealt(place: int, models: int, gpus: int) -> int:
    """Return the mask of the GPUs of a model, when models are dealt to GPUs in turn."""
    if models >= gpus:
        return 1 << place % gpus
    return sum(1 << gpu for gpu in range(place, gpus, models))
