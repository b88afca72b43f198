"""Policies that plan each request as it arrives, by estimated times, and then keep to the plan."""

from collections import deque
from collections.abc import Callable, Sequence

from seamark.simulation.engine import Dispatch, View
from seamark.simulation.policies.queues import path_lengths


def heft(view: View) -> Dispatch:
    """HEFT on a cluster: the nodes of newly arrived requests by decreasing longest path to the end, each on the GPUs
    where it ends first. The fetch of its model, after the one planned there before, counts; gaps are not used,
    because a node in a gap would change the next one's fetch."""
    plan = _ClusterPlan(view)

    def add(requests: Sequence[int]) -> None:
        path_s: dict[int, float] = {}
        for request in requests:
            path_s |= path_lengths(view, view.request_nodes(request))
        for node in _in_order(view, path_s):
            plan.add(node, range(view.cluster.gpus - view.need[node] + 1))

    return plan.dispatch_with(add)


def cpop(view: View) -> Dispatch:
    """CPOP on a cluster: requests in the order of arrival; the nodes of one GPU on a request's critical path share
    the GPU that is free first, the others go where they end first."""
    plan = _ClusterPlan(view)

    def add(requests: Sequence[int]) -> None:
        for request in requests:
            path_s = path_lengths(view, view.request_nodes(request))
            critical = _critical_nodes(view, path_s)
            pinned = min(range(view.cluster.gpus), key=lambda gpu: (plan.free_s[gpu], gpu))
            for node in _in_order(view, path_s):
                alone = node in critical and view.need[node] == 1
                plan.add(node, [pinned] if alone else range(view.cluster.gpus - view.need[node] + 1))

    return plan.dispatch_with(add)


def _in_order(view: View, path_s: dict[int, float]) -> list[int]:
    """Return nodes by decreasing path, each after its predecessors also where times are zero."""
    depth = dict.fromkeys(path_s, 0)
    left = dict.fromkeys(path_s, 0)
    for node in path_s:
        for distance in view.successors[node]:
            left[node + distance] += 1
    ahead = deque(node for node, count in left.items() if not count)
    while ahead:
        node = ahead.popleft()
        for distance in view.successors[node]:
            child = node + distance
            depth[child] = max(depth[child], depth[node] + 1)
            left[child] -= 1
            if not left[child]:
                ahead.append(child)
    return sorted(path_s, key=lambda node: (-path_s[node], depth[node], node))


def _critical_nodes(view: View, path_s: dict[int, float]) -> set[int]:
    """Return the nodes of one longest path of a request."""
    node = min(path_s, key=lambda node: (-path_s[node], node))
    found = {node}
    while view.successors[node]:
        node = min((node + distance for distance in view.successors[node]), key=lambda each: (-path_s[each], each))
        found.add(node)
    return found


class _ClusterPlan:
    """The order of nodes on each GPU. `free_s` and `model` are when a GPU is free by the plan, and what it holds
    then."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.free_s = [0.0] * view.cluster.gpus
        self.model = list(view.cluster.resident)
        self.end_s: dict[int, float] = {}
        self.first: dict[int, int] = {}
        self.orders: list[deque[int]] = [deque() for _ in range(view.cluster.gpus)]
        self.ready: set[int] = set()
        self.before: dict[int, list[int]] = {}
        self.dropped = 0

    def add(self, node: int, starts: Sequence[int]) -> None:
        """Plan a node on the window, of those that begin at `starts`, where it ends first."""
        view = self.view
        count, number = view.need[node], view.model[node]
        ready_s = max((self.end_s[each] for each in self.before.pop(node, ())), default=view.now_s)

        def end_s(gpu: int) -> float:
            free_s = self.free_s[gpu] if count == 1 else max(self.free_s[gpu : gpu + count])
            return max(free_s, ready_s, view.now_s) + view.cluster.fetch_s[number][self.model[gpu]]

        gpu = min(starts, key=lambda gpu: (end_s(gpu), gpu))
        self.end_s[node] = end_s(gpu) + view.estimate_s[node]
        self.first[node] = gpu
        for each in range(gpu, gpu + count):
            self.free_s[each] = self.end_s[node]
            self.model[each] = number
            self.orders[each].append(node)
        for distance in view.successors[node]:
            self.before.setdefault(node + distance, []).append(node)

    def _skip_dropped(self) -> None:
        """Take nodes that will never run out of the orders."""
        if len(self.view.dropped) > self.dropped:
            self.dropped = len(self.view.dropped)
            self.orders = [deque(node for node in order if node not in self.view.dropped) for order in self.orders]

    def dispatch_with(self, add: Callable[[Sequence[int]], None]) -> Dispatch:
        """Return the function that plans what has arrived and starts what the plan has next."""
        view, ready = self.view, self.ready
        request_of = view.request_of.tolist().__getitem__
        planned: set[int] = set()

        def dispatch() -> None:
            arrived = [each for each in dict.fromkeys(map(request_of, view.ready)) if each not in planned]
            if arrived:  # the first nodes of a request become ready when it arrives
                planned.update(arrived)
                add(arrived)
            ready.update(view.ready)
            view.ready.clear()
            free = view.cluster.free
            self._skip_dropped()
            orders = self.orders
            while free:
                gpu = (free & -free).bit_length() - 1
                free &= free - 1
                if not orders[gpu] or orders[gpu][0] not in ready:
                    continue
                node = orders[gpu][0]
                first, count = self.first[node], view.need[node]
                window = range(first, first + count)
                mask = ((1 << count) - 1) << first
                if view.cluster.free & mask == mask and all(orders[each][0] == node for each in window):
                    for each in window:
                        orders[each].popleft()
                    ready.remove(node)
                    del self.first[node]
                    view.start(node, first)
                    free &= ~mask

        return dispatch
