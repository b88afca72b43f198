"""The event loop of the simulator: arrivals and completions in order of time and serial number."""

from array import array
from collections import deque
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from typing import Protocol

import numpy as np

from seamark_simulate.simulation.cluster import Cluster
from seamark_simulate.simulation.host_cluster import HostCluster
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.schedule import Schedule
from seamark_simulate.simulation.system import Model, Request
from seamark_simulate.simulation.workload import Workload, require_windows

Dispatch = Callable[[], None]
"""Starts nodes at the present time. Called after each event, or after all events of one instant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """An execution that runs: its number and node, the mask of its GPUs, and when it took them."""

    execution: int
    node: int
    gpus: int
    taken_s: float


class Planned(Protocol):
    """The first GPU and the end of nodes that have not ended, by a plan."""

    gpu: dict[int, int]
    end_s: dict[int, float]


class View:
    """What a policy sees: what a real scheduler would know, which is neither the future nor the times that nodes
    take.

    Nodes are numbers. Columns by node: `model`, `need` (GPUs), `estimate_s`, `request_of`, and `successors`
    (distances to their numbers). They cover later requests too, which a policy must not read. `ready` has the nodes
    that became ready since the last call, in order: the policy takes them out and remembers them. The first nodes of
    a request become ready when it arrives. A policy may put an empty deque in the place of `ready`. `start(node,
    gpu)` starts a ready node on free GPUs, of which `gpu` is the first; `expected_end_s()` returns by GPU when its
    node should end by estimated times, 0 for a free one. `dropped` are nodes that will never become ready, because
    one before them failed. `in_order` is the returned function of a policy that only starts nodes of one GPU from the
    head of `ready`, on `best_gpu`: `simulate` then does so itself.

    `run_s(node, place)` is the estimated time of a node itself at a place, and `input_s(node, place, at_s, planned)`
    that from `at_s` until it has the data of its predecessors, of which some may only be planned. `path_data_s` is
    what the data between two nodes add to a path. They differ from `estimate_s` and 0 only on the machine of a file.
    There GPUs may also leave and come back (`cluster.up`), and nodes that were
    interrupted become ready again. Where preemption is allowed, `preempt(execution)` ends one of `running()`.
    """

    def __init__(self, work: Workload, machine: Machine) -> None:
        self.now_s = 0.0
        self.machine = machine
        self.models: Sequence[Model] = work.models
        self.requests: Sequence[Request] = work.requests
        self.first_node = work.first_node
        self.model = work.model
        self.need = work.need
        self.estimate_s = work.estimate_s
        self.successors = work.successors
        self.waits_for = work.waits_for
        self.arrival_s = work.arrival_s
        self.request_of = work.request_of
        self.cluster: Cluster | HostCluster = (
            Cluster(machine, work.models) if machine.layout is None else HostCluster(machine, work.models)
        )
        self.ready: MutableSequence[int] = []
        self.dropped: set[int] = set()
        self.in_order: Dispatch | None = None
        self.start: Callable[[int, int], None] = _not_begun
        self.expected_end_s: Callable[[], list[float]] = lambda: [0.0] * machine.gpus
        self.run_s: Callable[[int, int], float] = lambda node, gpu: work.estimate_s[node]
        self.input_s: Callable[[int, int, float, Planned | None], float] = lambda node, gpu, at_s, planned: 0.0
        self.path_data_s: Callable[[int, int], float] = lambda source, target: 0.0
        self.running: Callable[[], Sequence[Running]] = tuple
        self.preempt: Callable[[int], None] | None = None

    def request_nodes(self, request: int) -> range:
        """Return the numbers of a request's nodes."""
        return range(self.first_node[request], self.first_node[request + 1])


class Policy(Protocol):
    """Takes the view before the first event, and returns the function that starts nodes."""

    def __call__(self, view: View) -> Dispatch: ...


def simulate(work: Workload, machine: Machine, policy: Policy, *, instants: bool = False) -> Schedule:
    """Run a workload on a machine under a policy.

    Events have a serial number: arrivals in the order of the requests, then completions in the order of starts. Of
    events at one time the lower number goes first, so arrivals go before completions. The policy acts after each
    event; with `instants` after all events of one time. Raises UserError for a model that no window holds,
    RuntimeError for a policy that leaves nodes without a start. It does not test whether a policy starts a node on
    free GPUs, for speed: the checker does.

    One function, because calls and attributes would take most of its time.
    """
    require_windows(work, machine)
    view = View(work, machine)
    cluster = view.cluster
    assert isinstance(cluster, Cluster), "machines of a file have the general loop"
    fetch_s, free_of, resident = cluster.fetch_s, cluster.free_of, cluster.resident
    model, need, successors, first_node = work.model, work.need, work.successors, work.first_node
    duration_s, waits_for = work.duration_s.tolist(), work.waits_for.copy()
    roots = [template.roots for template in work.templates]
    bits = [1 << gpu for gpu in range(machine.gpus)]
    nodes, gpus, held, steps = array("q"), array("q"), array("q"), array("q")
    taken_s = array("d")
    add_node, add_gpu, add_held = nodes.append, gpus.append, held.append
    add_step, add_taken = steps.append, taken_s.append
    ready_s = array("d", np.asarray(work.arrival_s)[work.request_of].tobytes())  # of nodes without predecessors
    running: list[tuple[float, int, int, int]] = []
    now_s, step, begun = 0.0, 0, 0

    def start(node: int, gpu: int) -> None:
        nonlocal begun
        number = model[node]
        if need[node] == 1:  # as Cluster.take, without the cost of a call
            old, bit = resident[gpu], bits[gpu]
            cluster.free ^= bit
            free_of[old] ^= bit
            resident[gpu] = number
        else:
            old = cluster.take(gpu, need[node], number)
        add_node(node)
        add_gpu(gpu)
        add_held(old)
        add_step(step)
        add_taken(now_s)
        heappush(running, (now_s + fetch_s[number][old] + duration_s[node], begun, node, gpu))
        begun += 1

    def expected_end_s() -> list[float]:
        found = [0.0] * machine.gpus
        for _, execution, node, gpu in running:
            should_end_s = taken_s[execution] + fetch_s[model[node]][held[execution]] + work.estimate_s[node]
            found[gpu : gpu + need[node]] = [should_end_s] * need[node]
        return found

    view.start, view.expected_end_s = start, expected_end_s
    dispatch = policy(view)
    add_ready = view.ready.append
    order = np.argsort(np.asarray(work.arrival_s), kind="stable")
    coming = zip(np.asarray(work.arrival_s)[order].tolist(), order.tolist(), strict=True)
    if dispatch is view.in_order and not instants:
        begun = serve_in_order(work, cluster, coming, duration_s, (nodes, gpus, held, steps), taken_s, ready_s)
    next_s, request = next(coming, NONE)
    while request >= 0 or running:
        if running and running[0][0] < next_s:
            now_s, _, node, gpu = heappop(running)
            if need[node] == 1:
                bit = bits[gpu]
                cluster.free |= bit
                free_of[model[node]] |= bit
            else:
                cluster.give_back(gpu, need[node], model[node])
            if after := successors[node]:
                for distance in after:
                    child = node + distance
                    waits_for[child] -= 1
                    if not waits_for[child]:
                        ready_s[child] = now_s
                        add_ready(child)
        else:
            now_s = next_s
            first = first_node[request]
            for root in roots[request]:
                add_ready(first + root)
            next_s, request = next(coming, NONE)
        step += 1
        if instants and (next_s == now_s or (running and running[0][0] == now_s)):
            continue
        view.now_s = now_s
        dispatch()
    if begun < work.nodes:
        raise RuntimeError(f"the policy left {work.nodes - begun} of {work.nodes} nodes without a start")
    at, old_models, begun_s = (np.asarray(column) for column in (nodes, held, taken_s))
    models, durations_s = np.asarray(model, np.int64)[at], np.asarray(work.duration_s)[at]
    table = np.asarray(fetch_s).reshape(-1, cluster.empty + 1)
    return Schedule(
        work=work,
        machine=machine,
        node=at,
        gpu=np.asarray(gpus),
        held=old_models,
        step=np.asarray(steps),
        ready_s=np.asarray(ready_s)[at],
        taken_s=begun_s,
        end_s=begun_s + table[models, old_models] + durations_s,  # to the bit as above
    )


def _not_begun(node: int, gpu: int) -> None:
    raise RuntimeError("nodes start when the first event has come")


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

    This is the loop of `simulate` for first in, first out on nodes of one GPU each, with policy and start written
    out: the most common case, and calls between loop, policy and start would take a fifth of its time.

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
