"""The general event loop: the rules of `engine.simulate`, with costs and ends from a world, machines of a file,
interrupted and failed executions."""

from collections import deque
from collections.abc import Callable, Iterator
from math import inf, nextafter

import numpy as np

from seamark_simulate.simulation.engine import Policy
from seamark_simulate.simulation.machine import GpuChange, Machine, gpu_changes
from seamark_simulate.simulation.run_state import RunState
from seamark_simulate.simulation.schedule import Schedule
from seamark_simulate.simulation.workload import Workload, require_windows
from seamark_simulate.simulation.world import World


def run_in(
    world: World,
    work: Workload,
    machine: Machine,
    policy: Policy,
    *,
    instants: bool = False,
    seed: int = 0,
    stopped: Callable[[], bool] = lambda: False,
) -> Schedule:
    """Run a workload in a world under a policy, and return the schedule with what the world measured.

    Events, their order and the calls of the policy are those of `simulate`; in a virtual world on GPUs alike the
    schedule is the same to the last digit. GPUs of a machine file that leave or come back are events too, before
    others of their time; `seed` decides when they fail. What runs on a GPU that is gone is interrupted and becomes
    ready again. After a failed execution the nodes that wait for it are never run, and its request does not complete.
    Nodes that no GPUs are left for are not run either. Once `stopped` returns true nothing arrives or starts any
    more, and the run is over with the last execution. Raises as `simulate`, and what the world raises.
    """
    require_windows(work, machine)
    run = RunState(world, work, machine)
    dispatch = policy(run.view)
    coming = deque(np.argsort(np.asarray(work.arrival_s), kind="stable").tolist())
    changes = _Changes(gpu_changes(machine.layout, seed) if machine.layout is not None else iter(()))
    while run.running or (not stopped() and (coming or run.waits_for_gpus())):
        next_s = work.arrival_s[coming[0]] if coming else inf
        end = world.next_end(min(next_s, changes.at_s))
        if end is not None:
            now_s = end.at_s
            run.end(end)
        elif stopped():
            continue
        elif changes.at_s <= next_s:
            now_s = changes.at_s
            run.change(changes.take())
        else:
            now_s = next_s
            run.arrive(coming.popleft())
        if stopped():
            continue
        run.view.now_s = now_s
        while instants and (changes.at_s <= now_s or (coming and work.arrival_s[coming[0]] <= now_s)):
            if changes.at_s <= now_s:
                run.change(changes.take())
            else:
                run.arrive(coming.popleft())
        while instants and run.running and (end := world.next_end(nextafter(now_s, inf))) is not None:
            run.end(end)
        dispatch()
    if not stopped():
        run.require_all()
    return run.schedule()


class _Changes:
    """The changes of GPUs to come; `at_s` is the time of the next, inf without one."""

    def __init__(self, changes: Iterator[GpuChange]) -> None:
        self._changes = changes
        self._next = next(changes, None)

    @property
    def at_s(self) -> float:
        return inf if self._next is None else self._next.at_s

    def take(self) -> GpuChange:
        """Return the next change."""
        change = self._next
        assert change is not None
        self._next = next(self._changes, None)
        return change
