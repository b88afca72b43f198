"""Policies that plan each request as it arrives, by estimated times, and then keep to the plan."""

from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from heapq import heapify, heappop, heappush

from seamark_simulate.simulation.engine import Dispatch, View
from seamark_simulate.simulation.policies.queues import path_lengths


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
    """CPOP on a cluster: requests in the order of arrival, their nodes by the longest path through them. Those of one
    GPU on a request's critical path share the GPU that is free first, or of unlike ones that which ends them first;
    the others go where they end first."""
    plan = _ClusterPlan(view)

    def add(requests: Sequence[int], left: Container[int]) -> None:
        for request in requests:
            path_s = path_lengths(view, view.request_nodes(request))
            critical = _critical_nodes(view, path_s)
            alone = [node for node in critical if view.need[node] == 1]
            running = [plan.gpu[node] for node in alone if plan.runs(node)]
            pinned = running[0] if running else plan.first_free(alone)
            for node in _by_whole_path(view, path_s):
                if node in left:
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


def _by_whole_path(view: View, path_s: Mapping[int, float]) -> list[int]:
    """Return the nodes of a request, each after its predecessors, of those by the longest path through it."""
    above_s = dict.fromkeys(path_s, 0.0)
    left = dict.fromkeys(path_s, 0)
    for node in path_s:
        for distance in view.successors[node]:
            left[node + distance] += 1
    ready = [(-path_s[node], node) for node, count in left.items() if not count]
    heapify(ready)
    order = []
    while ready:
        node = heappop(ready)[1]
        order.append(node)
        for child in (node + distance for distance in view.successors[node]):
            to_s = above_s[node] + view.estimate_s[node] + view.path_data_s(node, child)
            above_s[child] = max(above_s[child], to_s)
            left[child] -= 1
            if not left[child]:
                heappush(ready, (-above_s[child] - path_s[child], child))
    return order


def _critical_nodes(view: View, path_s: dict[int, float]) -> set[int]:
    """Return the nodes of one longest path of a request."""
    node = min(path_s, key=lambda node: (-path_s[node], node))
    critical = {node}
    while view.successors[node]:
        below_s = {
            node + distance: view.path_data_s(node, node + distance) + path_s[node + distance]
            for distance in view.successors[node]
        }
        node = min(below_s, key=lambda child: (-below_s[child], child))
        critical.add(node)
    return critical


class _ClusterPlan:
    """The order of nodes on each GPU. `free_s` and `model` are when a GPU is free by the plan, and what it used last
    then; `place` is where a node is planned that has not started, in the order of planning, `gpu` the first GPU of
    that, and `end_s` when it or a running node should end.

    The places of a plan are kept. Its times follow what the GPUs do: before each addition they are taken from what
    runs. Where GPUs leave or come back, or nodes become ready again, all that has not started is planned anew.
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
        self.last, self.freed_s = [-1] * view.cluster.gpus, [0.0] * view.cluster.gpus
        self.dropped, self.up = 0, view.cluster.up

    def add(self, node: int, pinned: int | None = None) -> None:
        """Plan a node on the place where it ends first, or on a GPU that it fits; on none where there is none now."""
        view, cluster = self.view, self.view.cluster
        count, number = view.need[node], view.model[node]
        ready_s = self._ready_s(node)
        places = cluster.windows(number, count, self.free_s)
        if pinned is not None and pinned in places:
            places = [pinned]

        def key(place: int) -> tuple[float, int]:
            slower_s = view.run_s(node, place) - view.estimate_s[node]
            return self._begin_s(node, place, cluster.gpus_of(place, count), ready_s) + slower_s, place

        self.place[node] = place = min(places, key=key, default=-1)
        if place >= 0:
            gpus = cluster.gpus_of(place, count)
            self._take(node, gpus, self._begin_s(node, place, gpus, ready_s), place)
            self.gpu[node] = gpus[0]
            for gpu in gpus:
                self.orders[gpu].append(node)

    def know(self, requests: Sequence[int]) -> None:
        """Keep the predecessors of the nodes of requests."""
        for request in requests:
            for node in self.view.request_nodes(request):
                for distance in self.view.successors[node]:
                    self.before.setdefault(node + distance, []).append(node)

    def _ready_s(self, node: int) -> float:
        """Return when the predecessors of a node should have ended, at the earliest now."""
        if node not in self.before:
            return self.view.now_s
        return max(self.end_s.get(predecessor, 0.0) for predecessor in self.before[node])

    def runs(self, node: int) -> bool:
        """Return whether a node runs."""
        return node in self.end_s and node not in self.place

    def follow(self) -> None:
        """Take from the GPUs what runs until when, and the times of what is planned from there."""
        view, cluster, now_s = self.view, self.view.cluster, self.view.now_s
        self.end_s.clear()
        for gpu, end_s in enumerate(view.expected_end_s()):
            if cluster.free >> gpu & 1:  # free since then, and until it is used again
                self.free_s[gpu] = min(now_s, self.freed_s[gpu])
                continue
            self.free_s[gpu] = max(now_s, end_s)
            if cluster.up >> gpu & 1:
                self.end_s[self.last[gpu]] = self.free_s[gpu]
        self.model = list(cluster.resident)
        for node, place in self.place.items():
            if place >= 0:
                gpus = (place,) if view.need[node] == 1 else cluster.gpus_of(place, view.need[node])
                self._take(node, gpus, self._begin_s(node, place, gpus, self._ready_s(node)), place)

    def _begin_s(self, node: int, place: int, gpus: Sequence[int], ready_s: float) -> float:
        """Return when a node begins at a place, once its model and its data are there."""
        free_s = self.free_s[gpus[0]] if len(gpus) == 1 else max(map(self.free_s.__getitem__, gpus))
        fetch_s = self.view.cluster.fetch_after_s(self.view.model[node], place, self.model[gpus[0]])
        at_s = max(free_s, ready_s, self.view.now_s)
        return at_s + fetch_s + self.view.input_s(node, place, at_s, self)

    def _take(self, node: int, gpus: Sequence[int], begin_s: float, place: int) -> None:
        """Take GPUs for a node that begins at some time."""
        view = self.view
        self.end_s[node] = end_s = begin_s + view.run_s(node, place)
        for gpu in gpus:
            self.free_s[gpu], self.model[gpu] = end_s, view.model[node]

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
            self.place = {node: place for node, place in self.place.items() if node not in self.view.dropped}
            self.orders = [deque(node for node in order if node not in self.view.dropped) for order in self.orders]

    def _forget(self) -> list[int]:
        """Take all that has not started out of the plan, and return it."""
        left = list(self.place)
        self.orders = [deque() for _ in self.orders]
        self.place = {}
        self.follow()
        self.free_s = [max(self.view.now_s, free_s) for free_s in self.free_s]
        return left

    def dispatch_with(self, add: Callable[[Sequence[int], Container[int]], None]) -> Dispatch:
        """Return the function that plans what has arrived and starts what the plan has next."""
        view, cluster, ready = self.view, self.view.cluster, self.ready
        request_of = view.request_of.tolist().__getitem__
        planned: set[int] = set()

        def plan_new() -> None:
            requests = list(dict.fromkeys(map(request_of, view.ready)))
            arrived = [request for request in requests if request not in planned]
            if arrived:  # the first nodes of a request become ready when it arrives
                planned.update(arrived)
                self.know(arrived)
                self.follow()
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
            self._skip_dropped()
            plan_new()
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
                if cluster.free & mask == mask and all(orders[member][0] == node for member in window):
                    for member in window:
                        orders[member].popleft()
                        self.last[member], self.freed_s[member] = node, self.end_s[node]
                    ready.remove(node)
                    del self.place[node]
                    self.started.add(node)
                    view.start(node, place)
                    free &= ~mask

        return dispatch
