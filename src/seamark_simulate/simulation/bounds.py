"""Lower bounds of the makespan of a workload: no schedule on the machine ends before them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.schedule import Floats
from seamark_simulate.simulation.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Lower bounds of the makespan, in seconds.

    `path_s`: the longest path of a request after its arrival. `work_s`: the GPU time of all requests that come at
    some time or later, on all GPUs. `windows_s`: the time of all nodes of k GPUs or more, on the windows of k GPUs
    that do not overlap. Fetches of models and transfers of data are left out, as a better order might save them; on
    unlike GPUs each node has the time of the fastest that its model fits. They hold for schedules that run all nodes.
    """

    path_s: float
    work_s: float
    windows_s: float

    @property
    def best_s(self) -> float:
        """The largest."""
        return max(self.path_s, self.work_s, self.windows_s)


def lower_bounds(work: Workload, machine: Machine) -> Bounds:
    """Return the bounds of a workload by the times that its nodes take."""
    duration_s = _shortest_s(work, machine)
    need = np.asarray(work.need, np.int64)
    arrival_s = np.asarray(work.arrival_s)[work.request_of] if work.nodes else np.empty(0)
    windows = [
        _after_arrivals(arrival_s, np.where(need >= count, duration_s, 0.0)) / (machine.gpus // count)
        for count in np.unique(need).tolist()
    ]
    at_s = np.sort(arrival_s)
    return Bounds(
        path_s=_longest_path_s(work, duration_s.tolist()),
        work_s=float(np.max(at_s + _after_arrivals(arrival_s, duration_s * need) / machine.gpus, initial=0.0)),
        windows_s=float(max((np.max(at_s + window, initial=0.0) for window in windows), default=0.0)),
    )


def _after_arrivals(arrival_s: Floats, amount: Floats) -> Floats:
    """Return the amounts of all nodes that come at each sorted arrival or later."""
    order = np.argsort(arrival_s, kind="stable")
    return np.asarray(np.cumsum(amount[order][::-1])[::-1], np.float64)


def _shortest_s(work: Workload, machine: Machine) -> Floats:
    """Return the time of each node on the fastest GPU that its model fits."""
    duration_s, layout = np.asarray(work.duration_s, np.float64), machine.layout
    if layout is None or not work.nodes:
        return duration_s
    kinds = [host.kind for host in layout.hosts]
    fastest = [
        max((kind.speed_of(model.id) for kind in kinds if kind.holds(model)), default=1.0) for model in work.models
    ]
    return np.asarray(duration_s / np.asarray(fastest)[np.asarray(work.model)], np.float64)


def _longest_path_s(work: Workload, duration_s: Sequence[float]) -> float:
    longest_s = 0.0
    for request, arrival_s in enumerate(work.arrival_s):
        nodes = range(work.first_node[request], work.first_node[request + 1])
        begin_s, left = dict.fromkeys(nodes, arrival_s), {node: work.waits_for[node] for node in nodes}
        ahead = [node for node in nodes if not left[node]]
        for node in ahead:
            end_s = begin_s[node] + duration_s[node]
            longest_s = max(longest_s, end_s)
            for distance in work.successors[node]:
                child = node + distance
                begin_s[child] = max(begin_s[child], end_s)
                left[child] -= 1
                if not left[child]:
                    ahead.append(child)
    return longest_s
