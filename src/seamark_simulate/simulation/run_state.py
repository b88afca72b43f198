"""State of a run in the general event loop: its executions, and which nodes wait for which."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import cast

import numpy as np

from seamark_simulate.simulation.cluster import Cluster
from seamark_simulate.simulation.engine import Planned, Running, View
from seamark_simulate.simulation.machine import GpuChange, Layout, Machine
from seamark_simulate.simulation.schedule import Measured, Schedule
from seamark_simulate.simulation.workload import Workload
from seamark_simulate.simulation.world import (
    COMPLETED,
    GPU_FAILED,
    GPU_REMOVED,
    PREEMPTED,
    End,
    Interruptible,
    Start,
    World,
)


@dataclass(kw_only=True, slots=True)
class _Execution:
    """A start with its end, as far as there is one."""

    start: Start
    place: int
    fetch: int
    evicted: tuple[int, ...]
    ready_s: float
    taken_s: float
    step: int
    expected_end_s: float
    end: End | None = None
    end_step: int = -1


class RunState:
    """Starts, ends, arrivals and changes of GPUs, each of which is one event or part of one."""

    def __init__(self, world: World, work: Workload, machine: Machine) -> None:
        self.view = View(work, machine)
        self.running: set[int] = set()
        self._world, self._work, self._machine = world, work, machine
        self._cluster = self.view.cluster
        self._executions: list[_Execution] = []
        self._waits_for = work.waits_for.copy()
        self._ready_s = dict[int, float]()
        self._gpu, self._ended_s = dict[int, int](), dict[int, float]()
        self._left_ratio = dict[int, float]()
        self._attempts = dict[int, int]()
        self._failed, self._removed = set[int](), set[int]()
        self._to_be_added = sum(len(change.add) for change in machine.layout.changes) if machine.layout else 0
        self._arrival_step = [-1] * len(work.requests)
        self._step = 0
        self._changes: list[tuple[int, GpuChange]] = []
        view = self.view
        view.start, view.expected_end_s, view.running = self.start, self.expected_end_s, self.executions
        if machine.layout is not None:
            view.estimate_s = _mean_estimates(work, machine.layout)
            view.run_s, view.input_s, view.path_data_s = self.run_s, self.input_s, self.path_data_s
            if machine.layout.preemption != "never":
                view.preempt = self.preempt

    def start(self, node: int, place: int) -> None:
        """Start a ready node at a place."""
        work, cluster, layout = self._work, self._cluster, self._machine.layout
        model, count, execution = work.model[node], work.need[node], len(self._executions)
        fetch, fetch_s = cluster.fetch(model, place)
        at_s, run_s = self.view.now_s, self.view.run_s(node, place)
        transfer_s = self.view.input_s(node, place, at_s, None)
        if layout is not None and layout.transfers == "overlap":
            at_s, transfer_s = at_s + transfer_s, 0.0  # the GPUs stay idle for the node until its data are there
        gpus = cluster.gpus_of(place, count)
        evicted = () if isinstance(cluster, Cluster) else tuple(cluster.evicted(model, place))
        held = cluster.take(place, count, model)
        start = Start(
            execution=execution,
            node=node,
            model=model,
            gpu=gpus[0],
            count=count,
            old_model=None if held == cluster.empty else held,
            at_s=at_s,
            fetch_s=fetch_s,
            transfer_s=transfer_s,
            speed=1.0 if layout is None else layout.speed(work.models[model].id, gpus),
            left_ratio=self._left_ratio.get(node, 1.0),
            gpus=gpus if layout is not None and layout.windows == "any" else None,
        )
        taken_s = self._world.start(start)
        row = _Execution(
            start=start,
            place=place,
            fetch=fetch,
            evicted=evicted,
            ready_s=self._ready_s.pop(node),
            taken_s=taken_s,
            step=self._step,
            expected_end_s=taken_s + fetch_s + transfer_s + run_s,
        )
        self._executions.append(row)
        self.running.add(execution)

    def run_s(self, node: int, place: int) -> float:
        """Return the estimated time of a node at a place, as far as its work is left."""
        layout = self._machine.layout
        assert layout is not None
        speed = layout.speed(
            self._work.models[self._work.model[node]].id, self._cluster.gpus_of(place, self._work.need[node])
        )
        return self._work.estimate_s[node] * self._left_ratio.get(node, 1.0) / speed

    def input_s(self, node: int, place: int, at_s: float, planned: Planned | None) -> float:
        """Return the time of a node's data at a place from `at_s` on: of each predecessor from the first GPU that it
        ran on, or will run on by a plan, to the first of the place. They come one after another, or where transfers
        overlap each from the end of its source."""
        layout, gpu = self._machine.layout, self._cluster.gpus_of(place, self._work.need[node])[0]
        assert layout is not None
        took_s, there_s = 0.0, at_s
        for source, size in self._work.inputs_of(node):
            ran = self._gpu if source in self._gpu or planned is None else planned.gpu
            if source in ran:
                transfer_s = layout.transfer_s(size, ran[source], gpu)
                took_s += transfer_s
                ends_s = self._ended_s if planned is None or source in self._ended_s else planned.end_s
                there_s = max(there_s, ends_s.get(source, at_s) + transfer_s)
        return took_s if layout.transfers == "occupy" else there_s - at_s

    def path_data_s(self, source: int, target: int) -> float:
        """Return what the data of an edge add to a path by their mean time, where transfers overlap."""
        layout = self._machine.layout
        assert layout is not None
        if layout.transfers == "occupy":
            return 0.0
        return dict(self._work.inputs_of(target)).get(source, 0) / 1e9 * layout.mean_transfer_s

    def expected_end_s(self) -> list[float]:
        """Return by GPU when its node should end by estimated times, 0 for a free one, inf for one that is gone."""
        ends_s = [0.0 if self._cluster.up >> gpu & 1 else inf for gpu in range(self._machine.gpus)]
        for execution in self.running:
            row = self._executions[execution]
            for gpu in self._cluster.gpus_of(row.place, row.start.count):
                ends_s[gpu] = max(ends_s[gpu], row.expected_end_s)
        return ends_s

    def executions(self) -> Sequence[Running]:
        """Return what runs, in the order of starts."""
        rows = [self._executions[execution] for execution in sorted(self.running)]
        return [
            Running(
                execution=row.start.execution,
                node=row.start.node,
                gpus=self._cluster.mask_of(row.place, row.start.count),
                taken_s=row.taken_s,
            )
            for row in rows
        ]

    def arrive(self, request: int) -> None:
        """Make the first nodes of a request ready."""
        self._step += 1
        self._arrival_step[request] = self._step
        first = self._work.first_node[request]
        roots = (first + root for root in self._work.templates[request].roots)
        self._make_ready(roots, self._work.arrival_s[request])

    def end(self, end: End) -> None:
        """Give the GPUs of an execution back, and make the nodes ready that waited for it alone."""
        self._step += 1
        start = self._release(end)
        if end.failure is not None:
            self.view.dropped.update(self._descendants(start.node))
            return
        self._gpu[start.node], self._ended_s[start.node] = start.gpu, end.at_s
        children = [start.node + distance for distance in self._work.successors[start.node]]
        for child in children:
            self._waits_for[child] -= 1
        self._make_ready((child for child in children if not self._waits_for[child]), end.at_s)

    def _release(self, end: End) -> Start:
        row = self._executions[end.execution]
        row.end, row.end_step, row.taken_s = end, self._step, min(row.taken_s, end.at_s)
        self.running.remove(end.execution)
        start = row.start
        if end.gpus == "kept":
            self._cluster.give_back(row.place, start.count, start.model)
        elif end.gpus == "emptied":
            self._cluster.give_back_empty(row.place, start.count)
        else:
            self._cluster.lose(row.place, start.count)
        return start

    def change(self, change: GpuChange) -> None:
        """Take GPUs away, with what runs on them, or bring them back."""
        assert not isinstance(self._cluster, Cluster), "only machines of a file have changes"
        self._step += 1
        self._changes.append((self._step, change))
        present = {gpu for gpu in range(self._machine.gpus) if self._cluster.up >> gpu & 1}
        gpus = set(change.gpus)
        if change.what in ("failed", "repaired"):
            self._failed = self._failed | gpus if change.what == "failed" else self._failed - gpus
        else:
            self._removed = self._removed | gpus if change.what == "removed" else self._removed - gpus
            self._to_be_added -= len(gpus) if change.what == "added" else 0
        wanted = set(range(self._machine.gpus)) - self._failed - self._removed
        outcome = GPU_FAILED if change.what == "failed" else GPU_REMOVED
        for execution in sorted(self.running):
            row = self._executions[execution]
            if not wanted.issuperset(self._cluster.gpus_of(row.place, row.start.count)):
                self._interrupt(execution, change.at_s, outcome)
        self._cluster.bring_down(sorted(present - wanted))
        self._cluster.bring_up(sorted(wanted - present))

    def preempt(self, execution: int) -> None:
        """End an execution for another; its node becomes ready again, after those that are ready."""
        self._interrupt(execution, self.view.now_s, PREEMPTED)

    def _interrupt(self, execution: int, at_s: float, outcome: str) -> None:
        end = cast(Interruptible, self._world).interrupt(execution, at_s)
        if end is None:
            return
        layout = self._machine.layout
        assert layout is not None
        node = self._executions[execution].start.node
        self._release(replace(end, failure=outcome))
        if outcome == PREEMPTED and layout.preemption == "resumed":
            self._left_ratio[node] = self._left_ratio.get(node, 1.0) - end.done_ratio
        elif node in self._left_ratio:
            del self._left_ratio[node]
        if outcome == GPU_FAILED and layout.failures is not None:
            self._attempts[node] = self._attempts.get(node, 0) + 1
            if self._attempts[node] >= layout.failures.attempts:
                self.view.dropped.update(self._descendants(node))
                return
        self._make_ready((node,), at_s)

    def _make_ready(self, nodes: Iterable[int], at_s: float) -> None:
        for node in nodes:
            self._ready_s[node] = at_s
            self.view.ready.append(node)

    def _descendants(self, node: int) -> set[int]:
        descendants, ahead = set[int](), [node]
        while ahead:
            node = ahead.pop()
            after = {node + distance for distance in self._work.successors[node]} - descendants
            descendants |= after
            ahead += after
        return descendants

    def waits_for_gpus(self) -> bool:
        """Return whether a node is ready that GPUs can run which are expected back, though nothing else happens."""
        cluster = self._cluster
        if isinstance(cluster, Cluster) or not self._ready_s or not (self._failed or self._to_be_added > 0):
            return False
        back = set(range(self._machine.gpus)) if self._to_be_added > 0 else set(self._failed) - self._removed
        mask = cluster.up | sum(1 << gpu for gpu in back if not cluster.up >> gpu & 1)
        nodes = {self._work.model[node]: node for node in self._ready_s}.values()
        return any(cluster.window_in(mask, self._work.model[node], self._work.need[node]) >= 0 for node in nodes)

    def require_all(self) -> None:
        """Raise RuntimeError where a policy left nodes that it could have started."""
        left = self._work.nodes - len({row.start.node for row in self._executions} | self.view.dropped)
        if left and self._cluster.up == (1 << self._machine.gpus) - 1:
            raise RuntimeError(f"the policy left {left} of {self._work.nodes} nodes without a start")

    def schedule(self) -> Schedule:
        """Return the executions as columns."""
        rows, empty, layout = self._executions, self._cluster.empty, self._machine.layout
        starts, ends = [row.start for row in rows], [row.end for row in rows if row.end is not None]
        held = [empty if start.old_model is None else start.old_model for start in starts]
        any_gpus = layout is not None and layout.windows == "any"
        return Schedule(
            work=self._work,
            machine=self._machine,
            node=np.fromiter((start.node for start in starts), np.int64),
            gpu=np.fromiter((start.gpu for start in starts), np.int64),
            held=np.asarray(held, np.int64),
            step=np.fromiter((row.step for row in rows), np.int64),
            ready_s=np.fromiter((row.ready_s for row in rows), np.float64),
            taken_s=np.fromiter((row.taken_s for row in rows), np.float64),
            end_s=np.fromiter((end.at_s for end in ends), np.float64),
            measured=Measured(
                outcome=tuple(end.failure or COMPLETED for end in ends),
                fetch=np.fromiter((row.fetch for row in rows), np.int64),
                fetch_s=np.fromiter((end.fetch_s for end in ends), np.float64),
                transfer_s=np.fromiter((end.transfer_s for end in ends), np.float64),
                duration_s=np.fromiter((end.duration_s for end in ends), np.float64),
                arrival_step=np.asarray(self._arrival_step, np.int64),
                end_step=np.fromiter((row.end_step for row in rows), np.int64),
                gpus=tuple(start.gpus or (start.gpu,) for start in starts) if any_gpus else None,
                changes=tuple(self._changes),
                evicted=None if isinstance(self._cluster, Cluster) else tuple(row.evicted for row in rows),
            ),
        )


def _mean_estimates(work: Workload, layout: Layout) -> "array[float]":
    """Return the estimated time of each node, as the mean over the GPUs that its model fits."""
    slower = []
    for model in work.models:
        gpus = [gpu for gpu in range(layout.gpus) if layout.host(gpu).kind.holds(model)]
        slower.append(sum(1 / layout.speed(model.id, (gpu,)) for gpu in gpus) / len(gpus) if gpus else 1.0)
    return array("d", (time_s * slower[model] for time_s, model in zip(work.estimate_s, work.model, strict=True)))
