"""Policies that take ready nodes from queues and place each as the baseline does; with preemption a node may take the
GPUs of nodes with lower priority that run."""

from array import array
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from heapq import heappop, heappush
from itertools import count

from seamark_simulate.simulation.cluster import Cluster
from seamark_simulate.simulation.engine import Dispatch, Running, View


def baseline(view: View) -> Dispatch:
    """First in, first out with skipping: every ready node is tried once after each event.

    Whether a node can start depends on its number of GPUs alone (and on their memory, where that is limited), and a
    start only takes GPUs. So a pass over all ready nodes gives what the heads of one queue for each number of GPUs
    give, the earliest first: a queue whose head does not fit is done.
    """
    cluster, ready, model, need, start = view.cluster, view.ready, view.model, view.need, view.start
    if isinstance(cluster, Cluster) and set(need) <= {1}:
        return _baseline_of_single_gpus(view, cluster)
    groups: Sequence[Hashable] = cluster.groups
    queues: dict[Hashable, deque[int]] = {}
    serial = array("q", bytes(8 * len(model)))
    count_ready = 0

    def dispatch() -> None:
        nonlocal count_ready
        if ready:
            for node in ready:
                serial[node] = count_ready
                count_ready += 1
                group = groups[model[node]]
                queue = queues.get(group)
                if queue is None:
                    queue = queues[group] = deque()
                queue.append(node)
            ready.clear()
        if not cluster.free:
            return
        waiting = [(serial[queue[0]], queue) for queue in queues.values() if queue]
        while waiting and cluster.free:
            first = min(waiting)
            queue = first[1]
            waiting.remove(first)
            gpu = cluster.place(model[queue[0]], need[queue[0]])
            if gpu >= 0:
                start(queue.popleft(), gpu)
                if queue:
                    waiting.append((serial[queue[0]], queue))

    return dispatch


def _baseline_of_single_gpus(view: View, cluster: Cluster) -> Dispatch:
    """The baseline where every node needs one GPU: whatever is free serves the first in the queue."""
    model, start = view.model, view.start
    free_of, empty, best_gpu = cluster.free_of, cluster.empty, cluster.best_gpu
    queue: deque[int] = deque()
    view.ready = queue
    take = queue.popleft

    def dispatch() -> None:
        while queue and cluster.free:
            node = take()
            mask = free_of[model[node]] or free_of[empty]
            start(node, (mask & -mask).bit_length() - 1 if mask else best_gpu(model[node]))

    view.in_order = dispatch
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


def by_key(view: View, key: Callable[[int], float]) -> Dispatch:
    """List scheduling: ready nodes are tried in order of a key, lowest first, then as they became ready.

    As in the baseline, one heap for each number of GPUs gives what a pass over all ready nodes would give.
    """
    cluster, ready, model, need, start = view.cluster, view.ready, view.model, view.need, view.start
    groups: Sequence[Hashable] = cluster.groups
    heaps: dict[Hashable, list[tuple[float, int, int]]] = {}
    serial = count()

    def dispatch() -> None:
        for node in ready:
            heappush(heaps.setdefault(groups[model[node]], []), (key(node), next(serial), node))
        ready.clear()
        waiting = [(heap[0], group) for group, heap in heaps.items() if heap]
        while waiting and cluster.free:
            head = min(waiting)
            (_, _, node), group = head
            waiting.remove(head)
            gpu = cluster.place(model[node], need[node])
            if gpu >= 0:
                heappop(heaps[group])
                start(node, gpu)
                if heaps[group]:
                    waiting.append((heaps[group][0], group))

    return dispatch


def shortest_first(view: View) -> Dispatch:
    """The node with the shortest estimated time first, with skipping."""
    return by_key(view, view.estimate_s.__getitem__)


def longest_first(view: View) -> Dispatch:
    """The node with the longest estimated time first, with skipping (LPT: Graham 1969)."""
    return by_key(view, lambda node: -view.estimate_s[node])


def static_list(view: View) -> Dispatch:
    """List scheduling (Graham 1966): the first ready node in the order of requests and nodes, with skipping."""
    return by_key(view, float)


AGEING_PER_S = 0.01
"""Priority that a ready node gains for each second of waiting."""


def priority(view: View) -> Dispatch:
    """The node of the request with the highest priority first; waiting raises it by AGEING_PER_S each second.

    Two nodes age alike, so their order stays: it is that of priority - AGEING_PER_S x time of becoming ready. On a
    machine with preemption a node takes the GPUs of running ones of lower priority, which does not age.
    """

    def given(node: int) -> float:
        return float(view.requests[view.request_of[node]].priority)

    def key(node: int) -> float:
        return AGEING_PER_S * view.now_s - given(node)

    return by_key(view, key) if view.preempt is None else by_key_with_preemption(view, key, given)


SLACK_FACTOR = 2.0
"""Deadline of a request without one, in lengths of its longest path after its arrival."""


def least_slack(view: View) -> Dispatch:
    """The node with the least slack first: deadline - now - longest estimated path from the node to the end.

    Slack falls alike for all nodes, so their order stays. A request without a deadline has SLACK_FACTOR longest paths
    of time.
    """
    latest_s: dict[int, float] = {}

    def latest_start_s(node: int) -> float:
        if node not in latest_s:
            request = int(view.request_of[node])
            nodes = view.request_nodes(request)
            path_s = path_lengths(view, nodes)
            given_s = view.requests[request].deadline_s
            allowed_s = SLACK_FACTOR * max(path_s.values()) if given_s is None else given_s
            due_s = view.arrival_s[request] + allowed_s
            latest_s.update({member: due_s - path_s[member] for member in nodes})
        return latest_s.pop(node)

    return by_key(view, latest_start_s)


def path_lengths(view: View, nodes: range) -> dict[int, float]:
    """Return by node of a request the longest estimated path from its start to the end of the request, with the
    data on the path where their transfers overlap."""
    left = {node: len(view.successors[node]) for node in nodes}
    before: dict[int, list[int]] = {node: [] for node in nodes}
    for node in nodes:
        for distance in view.successors[node]:
            before[node + distance].append(node)
    path_s = {node: view.estimate_s[node] for node in nodes}
    ahead = [node for node in nodes if not left[node]]
    while ahead:
        node = ahead.pop()
        for earlier in before[node]:
            below_s = view.path_data_s(earlier, node) + path_s[node]
            path_s[earlier] = max(path_s[earlier], view.estimate_s[earlier] + below_s)
            left[earlier] -= 1
            if not left[earlier]:
                ahead.append(earlier)
    return path_s


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
