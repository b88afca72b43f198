"""The event loop for first in, first out on nodes of one GPU each: that of `engine.simulate` with policy and start
written out.

It is the most common case, and calls between loop, policy and start would take a fifth of its time.
"""

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush, heapreplace

from seamark_simulate.simulation.cluster import Cluster
from seamark_simulate.simulation.workload import Workload

NONE = (float("inf"), -1)
"""Time and number in the place of a request after the last."""

Columns = tuple["array[int]", "array[int]", "array[int]", "array[int]"]


def serve_in_order(
    work: Workload,
    cluster: Cluster,
    coming: Iterator[tuple[float, int]],
    duration_s: Sequence[float],
    columns: Columns,
    taken_s: "array[float]",
    ready_s: "array[float]",
) -> int:
    """Run all requests, and return the number of executions: after each event the first ready nodes take free GPUs.

    `coming` yields time and number of requests in the order of arrival; `duration_s` are the times of nodes. Events,
    places and times are to the bit those of `simulate` with a policy that starts `ready` from its head on `best_gpu`.
    A row for each start is added to `columns` (node, GPU, old model, number of events until then) and `taken_s`;
    `ready_s` gets the times at which nodes with predecessors became ready.
    """
    fetch_s, free_of, resident = cluster.fetch_s, cluster.free_of, cluster.resident
    empty, best_gpu, idle = cluster.empty, cluster.best_gpu, cluster.gpus
    model, successors, first_node = work.model, work.successors, work.first_node
    templates, waits_for = work.templates, work.waits_for.copy()
    bits = [1 << gpu for gpu in range(cluster.gpus)]
    add_node, add_gpu, add_old, add_step = (column.append for column in columns)
    add_taken = taken_s.append
    ready: deque[int] = deque()
    add_ready, take = ready.append, ready.popleft
    running: list[tuple[float, int, int, int]] = []
    step, begun, has_ended = 0, 0, False
    next_s, request = next(coming, NONE)
    while request >= 0 or running:
        if running and running[0][0] < next_s:
            now_s, _, node, gpu = running[0]
            has_ended = True  # it leaves the heap as the next one comes: one operation instead of two
            idle += 1
            free_of[model[node]] |= bits[gpu]
            if after := successors[node]:
                for distance in after:
                    child = node + distance
                    waits_for[child] -= 1
                    if not waits_for[child]:
                        ready_s[child] = now_s
                        add_ready(child)
        else:
            now_s, first = next_s, first_node[request]
            for root in templates[request].roots:
                add_ready(first + root)
            next_s, request = next(coming, NONE)
        step += 1
        while ready and idle:
            node = take()
            number = model[node]
            mask = free_of[number] or free_of[empty]
            gpu = (mask & -mask).bit_length() - 1 if mask else best_gpu(number)
            old = resident[gpu]
            idle -= 1
            free_of[old] ^= bits[gpu]
            resident[gpu] = number
            add_node(node)
            add_gpu(gpu)
            add_old(old)
            add_step(step)
            add_taken(now_s)
            execution = (now_s + fetch_s[number][old] + duration_s[node], begun, node, gpu)
            begun += 1
            if has_ended:
                has_ended = False
                heapreplace(running, execution)
            else:
                heappush(running, execution)
        if has_ended:
            has_ended = False
            heappop(running)
    return begun
