"""The event loop of the simulator: arrivals and completions in order of time and serial number."""

from array import array
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from seamark.simulation.cluster import Cluster
from seamark.simulation.machine import Machine
from seamark.simulation.schedule import Schedule
from seamark.simulation.system import Model, Request
from seamark.simulation.workload import Workload, require_windows

NEVER = float("inf")

Dispatch = Callable[[], None]
"""Starts nodes at the present time. Called after each event, or after all events of one instant."""


class View:
    """What a policy sees: what a real scheduler would know, which is neither the future nor the times that nodes
    take.

    Nodes are numbers. Columns by node: `model`, `need` (GPUs), `estimate_s`, `request_of`, and `successors`
    (distances to their numbers). `arrived` has the requests that came since the last call, `ready` the nodes that
    became ready, in order: the policy takes them out and remembers them. `expected_end_s` is by GPU the time at which
    its node should end. `start(node, gpu)` starts a ready node on free GPUs, of which `gpu` is the first.
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
        self.cluster = Cluster(machine, work.models)
        self.arrived: list[int] = []
        self.ready: list[int] = []
        self.expected_end_s = [0.0] * machine.gpus
        self.start: Callable[[int, int], None] = _not_begun

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
    RuntimeError for a policy that leaves nodes without a start.
    """
    require_windows(work, machine)
    view = View(work, machine)
    cluster, ready, arrived, expected_end_s = view.cluster, view.ready, view.arrived, view.expected_end_s
    fetch_s, take, give_back = cluster.fetch_s, cluster.take, cluster.give_back
    model, need, successors, first_node = work.model, work.need, work.successors, work.first_node
    duration_s, estimate_s, waits_for = work.duration_s, work.estimate_s, work.waits_for.copy()
    nodes, gpus, held, steps = array("q"), array("q"), array("q"), array("q")
    taken_s, start_s, end_s = array("d"), array("d"), array("d")
    ready_s = array("d", bytes(8 * work.nodes))
    running: list[tuple[float, int]] = []
    now_s, step, begun = 0.0, 0, 0

    def start(node: int, gpu: int) -> None:
        nonlocal begun
        number, count = model[node], need[node]
        old = take(gpu, count, number)
        begin_s = now_s + fetch_s[number][old]
        ends_s = begin_s + duration_s[node]
        nodes.append(node)
        gpus.append(gpu)
        held.append(old)
        steps.append(step)
        taken_s.append(now_s)
        start_s.append(begin_s)
        end_s.append(ends_s)
        heappush(running, (ends_s, begun))
        begun += 1
        should_end_s = begin_s + estimate_s[node]
        if count == 1:
            expected_end_s[gpu] = should_end_s
        else:
            expected_end_s[gpu : gpu + count] = [should_end_s] * count

    view.start = start
    dispatch = policy(view)
    times_s = np.frombuffer(work.arrival_s) if work.requests else np.empty(0)
    order: list[int] = np.argsort(times_s, kind="stable").tolist()
    coming = iter(order)
    request = next(coming, -1)
    next_s = work.arrival_s[request] if request >= 0 else NEVER
    while request >= 0 or running:
        if running and running[0][0] < next_s:
            now_s, execution = heappop(running)
            node = nodes[execution]
            give_back(gpus[execution], need[node], model[node])
            for distance in successors[node]:
                child = node + distance
                waits_for[child] -= 1
                if not waits_for[child]:
                    ready_s[child] = now_s
                    ready.append(child)
        else:
            now_s = next_s
            arrived.append(request)
            for node in range(first_node[request], first_node[request + 1]):
                if not waits_for[node]:
                    ready_s[node] = now_s
                    ready.append(node)
            request = next(coming, -1)
            next_s = work.arrival_s[request] if request >= 0 else NEVER
        step += 1
        if instants and (next_s == now_s or (running and running[0][0] == now_s)):
            continue
        view.now_s = now_s
        dispatch()
    if begun < work.nodes:
        raise RuntimeError(f"the policy left {work.nodes - begun} of {work.nodes} nodes without a start")
    at = np.frombuffer(nodes, np.int64) if begun else np.empty(0, np.int64)
    return Schedule(
        work=work,
        machine=machine,
        node=at,
        gpu=_whole(gpus),
        held=_whole(held),
        step=_whole(steps),
        ready_s=_real(ready_s)[at],
        taken_s=_real(taken_s),
        start_s=_real(start_s),
        end_s=_real(end_s),
    )


def _whole(column: "array[int]") -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.asarray(column, np.int64)


def _real(column: "array[float]") -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.asarray(column, np.float64)


def _not_begun(node: int, gpu: int) -> None:
    raise RuntimeError("nodes start when the first event has come")
