"""Policies that weigh which model is where: batches by model, a greedy score, and a fixed place for each model."""

from collections import deque

from seamark_simulate.simulation.engine import Dispatch, View

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
            chosen = min(waiting, key=lambda number: (not cluster.holds(number), -work_s[number], number))
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
    """The pair of node and GPU with the lowest score first, in seconds.

    SWITCH x time to fetch the model and data, and by which the GPU is slower than the mean - WAIT x time waited -
    FUTURE x fetches that the next LOOKAHEAD nodes of the queue would save there + BALANCE x the time for which the
    GPU was used beyond the average.
    """
    cluster, ready, model, need, start = view.cluster, view.ready, view.model, view.need, view.start
    queue: list[int] = []
    since_s: dict[int, float] = {}
    used_s = [0.0] * cluster.gpus

    def score(place: int, gpu: int) -> float:
        node = queue[place]
        slower_s = view.run_s(node, gpu) - view.estimate_s[node] + view.input_s(node, gpu, view.now_s, None)
        fetch_s = cluster.fetch_to_s(model[node], gpu) + slower_s
        alike = sum(model[other] == model[node] for other in queue[place + 1 : place + 1 + LOOKAHEAD])
        saved_s = alike * cluster.worst_fetch_s(model[node])
        beyond_s = used_s[cluster.gpus_of(gpu, need[node])[0]] - sum(used_s) / len(used_s)
        waited_s = view.now_s - since_s[node]
        return SWITCH * fetch_s - WAIT * waited_s - FUTURE * saved_s + BALANCE * beyond_s

    def dispatch() -> None:
        queue.extend(ready)
        since_s.update(dict.fromkeys(ready, view.now_s))
        ready.clear()
        while queue and cluster.free:
            pairs = [
                (score(position, gpu), position, gpu)
                for position in range(min(DEPTH, len(queue)))
                for gpu in cluster.places(model[queue[position]], need[queue[position]])
            ]
            if not pairs:
                return
            _, position, gpu = min(pairs)
            node = queue.pop(position)
            del since_s[node]
            fetch_s = cluster.fetch_to_s(model[node], gpu)
            for member in cluster.gpus_of(gpu, need[node]):
                used_s[member] += fetch_s + view.run_s(node, gpu)
            start(node, gpu)

    return dispatch


def static_placement(view: View) -> Dispatch:
    """Each model has fixed GPUs, first in, first out on each.

    GPUs are dealt in turn to the models of one GPU, and a model of several uses the windows that begin at its
    multiples. They are dealt anew when GPUs leave or come back.
    """
    cluster, ready, model, need, start = view.cluster, view.ready, view.model, view.need, view.start
    queues: list[deque[int]] = [deque() for _ in view.models]
    order = {}
    count, up = 0, 0
    masks: dict[int, int] = {}
    aligned: dict[int, set[int]] = {}

    def first_gpu(node: int) -> int:
        many, number = need[node], model[node]
        if many == 1:
            return cluster.place_among(number, 1, masks[number])
        fixed = aligned[number]
        return next((gpu for gpu in cluster.places(number, many) if not fixed or gpu in fixed), -1)

    def dispatch() -> None:
        nonlocal count, up
        if up != cluster.up:
            up = cluster.up
            masks.update(_dealt_masks(view))
            aligned.update(_aligned(view))
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


def _dealt_masks(view: View) -> dict[int, int]:
    """Return the masks of the GPUs of each model of one GPU, dealt in turn among those that are there; all that it
    fits, where it fits none of its own."""
    ones = [number for number, model in enumerate(view.models) if model.gpus_required == 1]
    gpus = [gpu for gpu in range(view.cluster.gpus) if view.cluster.up >> gpu & 1] or [0]
    masks = {}
    for turn, number in enumerate(ones):
        dealt = set(gpus[turn % len(gpus) :: len(ones)] if len(ones) < len(gpus) else gpus[turn % len(gpus) :][:1])
        fits = list(view.cluster.windows(number, 1, ()))
        masks[number] = sum(1 << gpu for gpu in (dealt.intersection(fits) or fits))
    return masks


def _aligned(view: View) -> dict[int, set[int]]:
    """Return for each model of several GPUs its windows that begin at multiples of their number."""
    free_s = [0.0] * view.cluster.gpus
    return {
        number: {
            window
            for window in view.cluster.windows(number, model.gpus_required, free_s)
            if window < view.cluster.gpus and window % model.gpus_required == 0
        }
        for number, model in enumerate(view.models)
        if model.gpus_required > 1
    }
