"""The general event loop: the rules of `engine.simulate`, with costs and ends from a world, machines of a file,
interrupted and failed executions."""

from collections import deque
from collections.abc import Callable
from itertools import chain, repeat
from math import inf, nextafter

import numpy as np

from seamark_simulate.simulation.engine import Policy
from seamark_simulate.simulation.machine import GpuChange, Machine, gpu_changes
from seamark_simulate.simulation.run_state import RunState
from seamark_simulate.simulation.schedule import Schedule
from seamark_simulate.simulation.workload import Workload, require_windows
from seamark_simulate.simulation.world import World

NO_CHANGE = GpuChange(at_s=inf, what="added", gpus=())
"""After the last change of GPUs."""


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
    changes = chain(() if machine.layout is None else gpu_changes(machine.layout, seed), repeat(NO_CHANGE))
    change = next(changes)
    while run.running or (not stopped() and (coming or run.waits_for_gpus())):
        next_s = work.arrival_s[coming[0]] if coming else inf
        end = world.next_end(min(next_s, change.at_s))
        if end is not None:
            now_s = end.at_s
            run.end(end)
        elif stopped():
            continue
        elif change.at_s <= next_s:
            now_s = change.at_s
            run.change(change)
            change = next(changes)
        else:
            now_s = next_s
            run.arrive(coming.popleft())
        if stopped():
            continue
        run.view.now_s = now_s
        while instants and (change.at_s <= now_s or (coming and work.arrival_s[coming[0]] <= now_s)):
            if change.at_s <= now_s:
                run.change(change)
                change = next(changes)
            else:
                run.arrive(coming.popleft())
        while instants and run.running and (end := world.next_end(nextafter(now_s, inf))) is not None:
            run.end(end)
        dispatch()
    if not stopped():
        run.require_all()
    return run.schedule()
