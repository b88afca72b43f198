"""Policies that take ready nodes from queues and place each as the baseline does."""

from array import array
from collections import deque

from seamark.simulation.engine import Dispatch, View


def baseline(view: View) -> Dispatch:
    """First in, first out with skipping: every ready node is tried once after each event.

    Whether a node can start depends on its number of GPUs alone, and a start only takes GPUs. So a pass over all ready
    nodes gives what the heads of one queue for each number of GPUs give, the earliest first: a queue whose head does not
    fit is done.
    """
    cluster, ready, model, need, start = view.cluster, view.ready, view.model, view.need, view.start
    queues: dict[int, deque[int]] = {}
    serial = array("q", bytes(8 * len(model)))
    count_ready = 0

    def dispatch() -> None:
        nonlocal count_ready
        if ready:
            for node in ready:
                serial[node] = count_ready
                count_ready += 1
                queue = queues.get(need[node])
                if queue is None:
                    queue = queues[need[node]] = deque()
                queue.append(node)
            ready.clear()
        if not cluster.free:
            return
        if len(queues) == 1:
            [(count, queue)] = queues.items()
            while queue:
                gpu = cluster.place(model[queue[0]], count)
                if gpu < 0:
                    return
                start(queue.popleft(), gpu)
            return
        waiting = [(serial[queue[0]], count) for count, queue in queues.items() if queue]
        while waiting and cluster.free:
            first = min(waiting)
            count = first[1]
            queue = queues[count]
            waiting.remove(first)
            gpu = cluster.place(model[queue[0]], count)
            if gpu >= 0:
                start(queue.popleft(), gpu)
                if queue:
                    waiting.append((serial[queue[0]], count))

    return dispatch


def fifo(view: View) -> Dispatch:
    """First in, first out without skipping: a node that does not fit holds back all behind it."""
    cluster, ready, model, need, start = view.cluster, view.ready, view.model, view.need, view.start
    queue: deque[int] = deque()

    def dispatch() -> None:
        queue.extend(ready)
        ready.clear()
        while queue and cluster.free:
            gpu = cluster.place(model[queue[0]], need[queue[0]])
            if gpu < 0:
                return
            start(queue.popleft(), gpu)

    return dispatch
