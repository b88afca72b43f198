"""Coordinator of loads that run at a time, one or several: sets their common epoch and drives them in one loop, in
one thread. Sends no request itself."""

import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from seamark.load.coordinator.handle import LoadError, WorkerLauncher
from seamark.load.coordinator.one_load import EPOCH, OVERDUE, Coordinator, NamedLoad
from seamark.load.coordinator.outcome import LoadOutcome
from seamark.load.workers.assignment import LoadJob
from seamark.load.workers.hooks import PreparationError, run_preparation
from seamark.platform.pinning import away_from

__all__ = [
    "EPOCH",
    "OVERDUE",
    "LoadError",
    "LoadJob",
    "LoadOutcome",
    "NamedLoad",
    "PreparationError",
    "run_load",
    "run_loads",
    "run_preparation",
]

TICK_S = 0.1
NO_STREAM_S = 0.01
CLOCK_READINGS = 20
"""Pause where no stream is open: all workers have hung up, and their ends are about to be noticed."""


def run_load(
    job: LoadJob,
    python: Path | None,
    parts: Path,
    on_tick: Callable[[], str | None] = lambda: None,
    owner: int | None = None,
    launcher: WorkerLauncher | None = None,
) -> LoadOutcome:
    """Run the load in worker processes of the interpreter `python` (None: this one) and wait for its end.

    `parts` is a folder for the workers' files, removed by the caller. `on_tick` is called about every 0.1 s from the
    first process on; a string that it returns ends the load with that reason. `owner` is the process of the run that
    this load belongs to: workers are forked by a fork server that ends with it. `launcher` starts the workers; None:
    on this machine. The load continues without a worker lost after the clock started, which is counted; a finite one
    ends then, and the next session does the rest. Raises LoadError if the load cannot begin. No process survives,
    whatever is raised; to get this for SIGTERM too, turn the signal into an exception.
    """
    alone = NamedLoad(name="", job=job, parts=parts, python=python, launcher=launcher, on_tick=on_tick)
    [outcome] = _run([alone], owner)
    return outcome


def run_loads(loads: Sequence[NamedLoad], owner: int | None = None) -> Mapping[str, LoadOutcome]:
    """Run several loads at a time, as `run_load` each, and wait for the end of all; return their outcomes by name.

    The clock starts when all workers of all loads are ready, and is the same for all: `epoch_ns` of every outcome is
    equal. From then on what ends a load ends no other. `on_tick` of a load that has ended is still called, as it may
    renew the lease of a server; its reason has no effect then. A finite load with `keep_busy` goes through its items
    again until all loads without `keep_busy` have ended; where every load has it, until each has done its work once.

    Raises LoadError, with the name of the load, if one cannot begin, and ValueError for two loads of the same name or
    folder. No process of any load survives, whatever is raised.
    """
    for what, values in (("name", [load.name for load in loads]), ("folder", [str(load.parts) for load in loads])):
        if twice := {value for value in values if values.count(value) > 1}:
            raise ValueError(f"several loads have the {what} {min(twice)}")
    return {load.name: outcome for load, outcome in zip(loads, _run(loads, owner), strict=True)}


def _run(loads: Sequence[NamedLoad], owner: int | None) -> list[LoadOutcome]:
    """Run the loads; return their outcomes in order."""
    with ExitStack() as held:
        selector = held.enter_context(selectors.DefaultSelector())
        coordinators = [held.enter_context(Coordinator(load, selector, owner)) for load in loads]
        _make_ready(coordinators, selector)
        outcomes = _measure(coordinators, selector)
    return [outcomes[coordinator] for coordinator in coordinators]


def _make_ready(coordinators: Sequence[Coordinator], selector: selectors.BaseSelector) -> None:
    """Start all workers, wait until each is ready, compare the clocks. Raises LoadError."""

    def tick() -> None:
        for coordinator in coordinators:
            coordinator.tick_before()

    for coordinator in coordinators:
        coordinator.start(tick)
    waiting = list(coordinators)
    while waiting:
        _poll(selector, TICK_S)
        ready = [coordinator.is_ready() for coordinator in coordinators]  # those that are may lose a worker meanwhile
        waiting = [coordinator for coordinator, is_ready in zip(coordinators, ready, strict=True) if not is_ready]
        tick()
    for coordinator in coordinators:
        coordinator.compare_clocks(tick)


def _measure(
    coordinators: Sequence[Coordinator], selector: selectors.BaseSelector
) -> Mapping[Coordinator, LoadOutcome]:
    """Start the clock, wait for the end of all workers, gather the results of each load when it ends."""
    head_start_s = max((coordinator.launcher.head_start_s for coordinator in coordinators), default=0.0)
    epoch_ns = time.monotonic_ns() + int(head_start_s * 1e9)
    # the latest of several: a wait for a core between both readings finds an earlier one
    epoch_unix_ns = epoch_ns + max(time.time_ns() - time.monotonic_ns() for _ in range(CLOCK_READINGS))
    for coordinator in coordinators:
        coordinator.begin(epoch_ns, epoch_unix_ns)
    for coordinator in coordinators:
        coordinator.observe()
    outcomes: dict[Coordinator, LoadOutcome] = {}
    with away_from({cpu for coordinator in coordinators for cpu in coordinator.cores}):
        running = list(coordinators)
        while running:
            _end_passes(coordinators)
            _poll(selector, min(TICK_S, *(coordinator.job.telemetry_interval_s for coordinator in running)))
            for coordinator in coordinators:
                if coordinator in outcomes:
                    coordinator.tick_after()
                    continue
                coordinator.step()
                if not coordinator.is_running:
                    outcomes[coordinator] = coordinator.finish()
            running = [coordinator for coordinator in coordinators if coordinator not in outcomes]
    return outcomes


def _end_passes(coordinators: Sequence[Coordinator]) -> None:
    """End the further passes over a work list of each load that no other needs at work."""
    for coordinator in coordinators:
        if coordinator.job.keep_busy and coordinator.job.load.finite:
            others = [other for other in coordinators if other is not coordinator]
            awaited = [other for other in others if not other.job.keep_busy]
            if all(other.has_loaded for other in awaited) if awaited else all(o.has_done_once for o in others):
                coordinator.end_passes()


def _poll(selector: selectors.BaseSelector, timeout_s: float) -> None:
    """Wait for something to read, or `timeout_s`, and have it read."""
    if not selector.get_map():
        time.sleep(min(timeout_s, NO_STREAM_S))
        return
    for key, _ in selector.select(timeout_s):
        key.data()
