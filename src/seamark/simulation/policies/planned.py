"""Policies that plan each request as it arrives, by estimated times, and then keep to the plan."""

from collections import deque
from collections.abc import Callable, Container, Sequence

from seamark.simulation.engine import Dispatch, View
from seamark.simulation.policies.queues import path_lengths


def heft(view: View) -> Dispatch:
    """HEFT on a cluster: the nodes of newly arrived requests by decreasing longest path to the end, each on the GPUs
    where it ends first. The fetch of its model, after the one planned there before, counts; gaps are not used,
    because a node in a gap would change the next one's fetch."""
    plan = _ClusterPlan(view)

    def add(requests: Sequence[int], left: Container[int]) -> None:
        path_s: dict[int, float] = {}
        for request in requests:
            path_s |= path_lengths(view, view.request_nodes(request))
        path_s = {node: length_s for node, length_s in path_s.items() if node in left}
        for node in _in_order(view, path_s):
            plan.add(node)

    return plan.dispatch_with(add)


def cpop(view: View) -> Dispatch:
    """CPOP on a cluster: requests in the order of arrival; the nodes of one GPU on a request's critical path share
    the GPU that is free first, or of unlike ones that which ends them first; the others go where they end first."""
    plan = _ClusterPlan(view)

    def add(requests: Sequence[int], left: Container[int]) -> None:
        for request in requests:
            path_s = path_lengths(view, view.request_nodes(request))
            critical = _critical_nodes(view, path_s)
            pinned = plan.first_free([node for node in critical if view.need[node] == 1])
            for node in _in_order(view, {node: path_s[node] for node in path_s if node in left}):
                plan.add(node, pinned if node in critical and view.need[node] == 1 else None)

    return plan.dispatch_with(add)


def _in_order(view: View, path_s: dict[int, float]) -> list[int]:
    """Return nodes by decreasing path, each after its predecessors also where times are zero."""
    depth = dict.fromkeys(path_s, 0)
    left = dict.fromkeys(path_s, 0)
    for node in path_s:
        for distance in view.successors[node]:
            if node + distance in left:
                left[node + distance] += 1
    ahead = deque(node for node, count in left.items() if not count)
    while ahead:
        node = ahead.popleft()
        for child in (node + distance for distance in view.successors[node] if node + distance in left):
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
    """The order of nodes on each GPU. `free_s` and `model` are when a GPU is free by the plan, and what it used last
    then; `place` is where a node is planned, `gpu` the first GPU of that.

    Where GPUs leave or come back, or nodes become ready again, all that has not started is planned anew.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.free_s = [0.0] * view.cluster.gpus
        self.model = list(view.cluster.resident)
        self.end_s: dict[int, float] = {}
        self.place: dict[int, int] = {}
        self.gpu: dict[int, int] = {}
        self.orders: list[deque[int]] = [deque() for _ in range(view.cluster.gpus)]
        self.ready: set[int] = set()
        self.started: set[int] = set()
        self.before: dict[int, list[int]] = {}
        self.dropped, self.up = 0, view.cluster.up

    def add(self, node: int, pinned: int | None = None) -> None:
        """Plan a node on the place where it ends first, or on a GPU that it fits; on none where there is none now."""
        view, cluster = self.view, self.view.cluster
        count, number = view.need[node], view.model[node]
        ready_s = max((self.end_s.get(each, 0.0) for each in self.before.pop(node, ())), default=view.now_s)
        places = cluster.windows(number, count, self.free_s)
        if pinned is not None and pinned in places:
            places = [pinned]

        def begin_s(place: int) -> float:
            gpus = cluster.gpus_of(place, count)
            free_s = self.free_s[gpus[0]] if count == 1 else max(map(self.free_s.__getitem__, gpus))
            return max(free_s, ready_s, view.now_s) + cluster.fetch_after_s(number, place, self.model[gpus[0]])

        def key(place: int) -> tuple[float, int]:
            slower_s = view.run_s(node, place) - view.estimate_s[node] + view.input_s(node, place, self.gpu)
            return begin_s(place) + slower_s, place

        place = min(places, key=key, default=-1)
        if place < 0:
            self.place[node] = -1
        else:
            self.end_s[node] = begin_s(place) + view.run_s(node, place) + view.input_s(node, place, self.gpu)
            self.place[node], self.gpu[node] = place, cluster.gpus_of(place, count)[0]
            for each in cluster.gpus_of(place, count):
                self.free_s[each] = self.end_s[node]
                self.model[each] = number
                self.orders[each].append(node)
        for distance in view.successors[node]:
            self.before.setdefault(node + distance, []).append(node)

    def first_free(self, nodes: Sequence[int]) -> int:
        """Return the GPU that is free first; a slower one counts as free as much later as it takes longer for some
        nodes."""
        view = self.view

        def key(gpu: int) -> tuple[float, int]:
            slower_s = sum(view.run_s(node, gpu) - view.estimate_s[node] for node in nodes)
            return self.free_s[gpu] + slower_s, gpu

        return min(range(view.cluster.gpus), key=key)

    def _skip_dropped(self) -> None:
        """Take nodes that will never run out of the orders."""
        if len(self.view.dropped) > self.dropped:
            self.dropped = len(self.view.dropped)
            self.orders = [deque(node for node in order if node not in self.view.dropped) for order in self.orders]

    def _forget(self) -> list[int]:
        """Take all that has not started out of the plan, and return it."""
        view = self.view
        left = [node for node in self.place if node not in view.dropped]
        busy_s = view.expected_end_s()
        self.free_s = [max(view.now_s, end_s) for end_s in busy_s]
        self.model = list(view.cluster.resident)
        self.orders = [deque() for _ in busy_s]
        self.place = {}
        self.before = {}
        return left

    def dispatch_with(self, add: Callable[[Sequence[int], Container[int]], None]) -> Dispatch:
        """Return the function that plans what has arrived and starts what the plan has next."""
        view, cluster, ready = self.view, self.view.cluster, self.ready
        request_of = view.request_of.tolist().__getitem__
        planned: set[int] = set()

        def plan_new() -> None:
            requests = list(dict.fromkeys(map(request_of, view.ready)))
            arrived = [each for each in requests if each not in planned]
            if arrived:  # the first nodes of a request become ready when it arrives
                planned.update(arrived)
                add(arrived, range(len(view.model)))
            again = self.started.intersection(view.ready)
            if again or self.up != cluster.up:
                self.up = cluster.up
                self.started -= again
                left = {*again, *self._forget()}
                add(sorted(set(map(request_of, left))), left)
            ready.update(view.ready)
            view.ready.clear()

        def dispatch() -> None:
            plan_new()
            self._skip_dropped()
            orders, free = self.orders, cluster.free
            while free:
                gpu = (free & -free).bit_length() - 1
                free &= free - 1
                if not orders[gpu] or orders[gpu][0] not in ready:
                    continue
                node = orders[gpu][0]
                place, count = self.place[node], view.need[node]
                window = cluster.gpus_of(place, count)
                mask = cluster.mask_of(place, count)
                if cluster.free & mask == mask and all(orders[each][0] == node for each in window):
                    for each in window:
                        orders[each].popleft()
                    ready.remove(node)
                    del self.place[node]
                    self.started.add(node)
                    view.start(node, place)
                    free &= ~mask

        return dispatch
