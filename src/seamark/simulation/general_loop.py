"""The general event loop: the rules of `engine.simulate`, with costs and ends from a world, and with failures."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf, nextafter

import numpy as np

from seamark.simulation.engine import Policy, View
from seamark.simulation.machine import Machine
from seamark.simulation.schedule import Measured, Schedule
from seamark.simulation.workload import Workload, require_windows
from seamark.simulation.world import COMPLETED, End, Start, World


def run_in(
    world: World,
    work: Workload,
    machine: Machine,
    policy: Policy,
    *,
    instants: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> Schedule:
    """Run a workload in a world under a policy, and return the schedule with what the world measured.

    Events, their order and the calls of the policy are those of `simulate`; in a virtual world the schedule is the
    same to the last digit. After a failed execution the nodes that wait for it are never run, and its request does
    not complete. Where GPUs are lost, nodes that no GPUs are left for are not run either. Once `stopped` returns true
    nothing arrives or starts any more, and the run is over with the last execution. Raises as `simulate`, and what
    the world raises.
    """
    require_windows(work, machine)
    run = _Run(world, work, machine)
    dispatch = policy(run.view)
    coming = deque(np.argsort(np.asarray(work.arrival_s), kind="stable").tolist())
    while run.running or (coming and not stopped()):
        next_s = work.arrival_s[coming[0]] if coming else inf
        end = world.next_end(next_s)
        now_s = next_s if end is None else end.at_s
        if end is not None:
            run.end(end)
        elif not stopped():
            run.arrive(coming.popleft())
        if stopped():
            continue
        run.view.now_s = now_s
        if instants:
            while coming and work.arrival_s[coming[0]] <= now_s:
                run.arrive(coming.popleft())
            while run.running and (end := world.next_end(nextafter(now_s, inf))) is not None:
                run.end(end)
        dispatch()
    if not stopped():
        run.require_all()
    return run.schedule()


@dataclass(kw_only=True, slots=True)
class _Execution:
    """A start with its end, as far as there is one."""

    start: Start
    ready_s: float
    taken_s: float
    step: int
    expected_end_s: float
    end: End | None = None
    end_step: int = -1


class _Run:
    """The state of a run: which executions there are, and which nodes wait for which."""

    def __init__(self, world: World, work: Workload, machine: Machine) -> None:
        self.view = View(work, machine)
        self.running: set[int] = set()
        self._world, self._work, self._machine = world, work, machine
        self._cluster = self.view.cluster
        self._executions: list[_Execution] = []
        self._waits_for = work.waits_for.copy()
        self._ready_s = dict[int, float]()
        self._arrival_step = [-1] * len(work.requests)
        self._step = 0
        self.view.start, self.view.expected_end_s = self.start, self.expected_end_s

    def start(self, node: int, gpu: int) -> None:
        """Start a ready node on GPUs."""
        work, cluster = self._work, self._cluster
        model, count, execution = work.model[node], work.need[node], len(self._executions)
        held = cluster.take(gpu, count, model)
        start = Start(
            execution=execution,
            node=node,
            model=model,
            gpu=gpu,
            count=count,
            old_model=None if held == cluster.empty else held,
            at_s=self.view.now_s,
        )
        taken_s = self._world.start(start)
        expected_end_s = taken_s + cluster.fetch_s[model][held] + work.estimate_s[node]
        self._executions.append(
            _Execution(
                start=start,
                ready_s=self._ready_s.pop(node),
                taken_s=taken_s,
                step=self._step,
                expected_end_s=expected_end_s,
            )
        )
        self.running.add(execution)

    def expected_end_s(self) -> list[float]:
        """Return by GPU when its node should end by estimated times, 0 for a free one and inf for a lost one."""
        found = [0.0 if self._cluster.up >> gpu & 1 else inf for gpu in range(self._machine.gpus)]
        for execution in self.running:
            row = self._executions[execution]
            gpu, count = row.start.gpu, row.start.count
            found[gpu : gpu + count] = [row.expected_end_s] * count
        return found

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
        row = self._executions[end.execution]
        row.end, row.end_step = end, self._step
        self.running.remove(end.execution)
        start = row.start
        if end.gpus == "kept":
            self._cluster.give_back(start.gpu, start.count, start.model)
        elif end.gpus == "emptied":
            self._cluster.give_back_empty(start.gpu, start.count)
        else:
            self._cluster.lose(start.gpu, start.count)
        if end.failure is not None:
            self.view.dropped.update(self._descendants(start.node))
            return
        children = [start.node + distance for distance in self._work.successors[start.node]]
        for child in children:
            self._waits_for[child] -= 1
        self._make_ready((child for child in children if not self._waits_for[child]), end.at_s)

    def _make_ready(self, nodes: Iterable[int], at_s: float) -> None:
        for node in nodes:
            self._ready_s[node] = at_s
            self.view.ready.append(node)

    def _descendants(self, node: int) -> Iterator[int]:
        ahead = [node]
        while ahead:
            node = ahead.pop()
            for distance in self._work.successors[node]:
                ahead.append(node + distance)
                yield node + distance

    def require_all(self) -> None:
        """Raise RuntimeError where a policy left nodes that it could have started."""
        left = self._work.nodes - len({row.start.node for row in self._executions} | self.view.dropped)
        if left and self._cluster.up == (1 << self._machine.gpus) - 1:
            raise RuntimeError(f"the policy left {left} of {self._work.nodes} nodes without a start")

    def schedule(self) -> Schedule:
        """Return the executions as columns."""
        rows = self._executions
        ends = [row.end for row in rows if row.end is not None]
        empty = self._cluster.empty
        held = [empty if row.start.old_model is None else row.start.old_model for row in rows]
        return Schedule(
            work=self._work,
            machine=self._machine,
            node=np.asarray([row.start.node for row in rows], np.int64),
            gpu=np.asarray([row.start.gpu for row in rows], np.int64),
            held=np.asarray(held, np.int64),
            step=np.asarray([row.step for row in rows], np.int64),
            ready_s=np.asarray([row.ready_s for row in rows], np.float64),
            taken_s=np.asarray([row.taken_s for row in rows], np.float64),
            end_s=np.asarray([end.at_s for end in ends], np.float64),
            measured=Measured(
                outcome=tuple(end.failure or COMPLETED for end in ends),
                fetch_s=np.asarray([end.fetch_s for end in ends], np.float64),
                duration_s=np.asarray([end.duration_s for end in ends], np.float64),
                arrival_step=np.asarray(self._arrival_step, np.int64),
                end_step=np.asarray([row.end_step for row in rows], np.int64),
            ),
        )
