"""Result of a simulation: a row for each node execution, as columns in the order in which they were started; also
what figures are made of, whether it was run or read from a file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamark_simulate.simulation.machine import GpuChange, Machine
from seamark_simulate.simulation.workload import Workload
from seamark_simulate.simulation.world import COMPLETED, INTERRUPTED

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
PART = 500
FETCH_NONE, FETCH_LOAD, FETCH_SWITCH = range(3)
"""What precedes a node on its GPUs: nothing, the first load of an empty GPU, or a change of model."""


@dataclass(frozen=True, kw_only=True)
class Executions:
    """Executions in the order of their starts, on a machine of `gpus` GPUs.

    `arrival_s` is by request, all other columns by execution: numbers of `request` and `model` (its place in
    `models`), the first `gpu` and their `count`, and times in seconds. `fetch_s` from `taken_s` on is a switch of the
    model, the first load of an empty GPU (`is_cold`), or nothing; then data come for `transfer_s`. `outcome` is
    COMPLETED or why an execution did not do its work; None: all did. `incomplete` are the numbers of requests that
    did not complete, and `not_run` counts nodes without an execution. `gpu_ids` are the GPUs of each execution where
    they are not consecutive.
    """

    gpus: int
    models: Sequence[str]
    arrival_s: Floats
    request: Ints
    model: Ints
    gpu: Ints
    count: Ints
    is_switch: Bools
    is_cold: Bools
    ready_s: Floats
    taken_s: Floats
    fetch_s: Floats
    end_s: Floats
    transfer_s: Floats | None = None
    outcome: Sequence[str] | None = None
    incomplete: tuple[int, ...] = ()
    not_run: int = 0
    gpu_ids: Sequence[tuple[int, ...]] | None = None

    @property
    def start_s(self) -> Floats:
        """When model and data were there and the node itself began."""
        there_s = self.taken_s + self.fetch_s
        if self.transfer_s is None:
            return there_s
        # of an execution that ended before, the sum of its times may be rounded to after its end
        return np.asarray(np.minimum(there_s + self.transfer_s, self.end_s), np.float64)

    @property
    def is_first_load(self) -> Bools:
        """Whether each execution loaded its model onto an empty GPU. Loads that failed are none, and no new start of
        a server after its call failed."""
        found = self.is_cold.copy()
        if self.outcome is None:
            return found
        ended: set[tuple[int, int]] = set()
        parts = zip(
            self.gpu.tolist(), self.model.tolist(), (self.end_s > self.start_s).tolist(), self.outcome, strict=True
        )
        for number, (gpu, model, was_there, outcome) in enumerate(parts):
            failed = outcome not in (COMPLETED, *INTERRUPTED)
            found[number] &= (was_there or not failed) and (gpu, model) not in ended
            if failed and was_there:
                ended.add((gpu, model))
            elif not failed:
                ended.discard((gpu, model))
        return found

    @property
    def is_completed(self) -> Bools:
        """Whether each execution did its work."""
        if self.outcome is None:
            return np.ones(len(self.model), np.bool_)
        return np.asarray([outcome == COMPLETED for outcome in self.outcome], np.bool_)

    @property
    def is_complete(self) -> Bools:
        """Whether each request completed."""
        found = np.ones(len(self.arrival_s), np.bool_)
        found[list(self.incomplete)] = False
        return found

    def gpus_of(self, execution: int) -> tuple[int, ...]:
        """Return the GPUs of an execution."""
        if self.gpu_ids is not None:
            return self.gpu_ids[execution]
        return tuple(range(self.gpu[execution], self.gpu[execution] + self.count[execution]))

    @property
    def makespan_s(self) -> float:
        """The latest end; 0 without executions."""
        return float(self.end_s.max(initial=0.0))

    def completed_s(self) -> Floats:
        """Return when the last execution of each request ended; -inf of one without any."""
        return self._of_requests(np.maximum, self.end_s, -np.inf)

    def first_started_s(self) -> Floats:
        """Return when the first node of each request began."""
        return self._of_requests(np.minimum, self.start_s, np.inf)

    def first_ended_s(self) -> Floats:
        """Return when the first node of each request ended that did its work; inf of one without any."""
        return self._of_requests(np.minimum, np.where(self.is_completed, self.end_s, np.inf), np.inf)

    def _of_requests(self, ufunc: np.ufunc, values: Floats, otherwise: float) -> Floats:
        found = np.full(len(self.arrival_s), otherwise)
        ufunc.at(found, self.request, values)
        return found


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a world reported of each execution.

    Its `outcome` (COMPLETED, or why it did not do its work), the times of the fetch, of the data and of the node
    itself, and the number of events until its end; `arrival_step` is that until the arrival of each request. `fetch`
    is FETCH_NONE, FETCH_LOAD or FETCH_SWITCH; `gpus` are the GPUs of each execution, None where all are consecutive.
    `changes` are GPUs that left or came back, with the number of events until then. `evicted` are the models that the
    first GPU gave up for each execution, the least recently used first.
    """

    outcome: tuple[str, ...]
    fetch: Ints
    fetch_s: Floats
    transfer_s: Floats
    duration_s: Floats
    arrival_step: Ints
    end_step: Ints
    gpus: tuple[tuple[int, ...], ...] | None = None
    changes: tuple[tuple[int, GpuChange], ...] = ()
    evicted: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The executions of a workload.

    `node` is the number of the node, `gpu` the first of its GPUs, `held` the model that this GPU held before (the
    number of models: none). The GPUs are taken at `taken_s`; the model is there at `start_s`; the node ends at
    `end_s`. `ready_s` is when its last predecessor had ended. `step` is the number of events until its start, that
    which caused it included. `measured` is what a world reported; without it, all executions did their work in the
    times of workload and machine.
    """

    work: Workload
    machine: Machine
    node: Ints
    gpu: Ints
    held: Ints
    step: Ints
    ready_s: Floats
    taken_s: Floats
    end_s: Floats
    measured: Measured | None = None

    @cached_property
    def ran(self) -> Executions:
        """The executions as columns, by what was measured or by the rules of the machine."""
        work, measured, empty = self.work, self.measured, len(self.work.models)
        model, request = np.asarray(work.model, np.int64)[self.node], work.request_of[self.node]
        if measured is None:
            fetched = np.asarray([model.fetched for model in work.models], np.bool_)[model]
            is_cold = (self.held == empty) & fetched
            is_switch = (self.held != model) & (self.held != empty) & fetched
            table = np.asarray(self.machine.fetch_table(work.models)).reshape(-1, empty + 1)
            fetch_s = np.asarray(table[model, self.held], np.float64)
        else:
            is_cold, is_switch = measured.fetch == FETCH_LOAD, measured.fetch == FETCH_SWITCH
            fetch_s = measured.fetch_s
        ran = Executions(
            gpus=self.machine.gpus,
            models=[model.id for model in work.models],
            arrival_s=np.asarray(work.arrival_s, np.float64),
            request=request,
            model=model,
            gpu=self.gpu,
            count=np.asarray(work.need, np.int64)[self.node],
            is_switch=is_switch,
            is_cold=is_cold,
            ready_s=self.ready_s,
            taken_s=self.taken_s,
            fetch_s=fetch_s,
            end_s=self.end_s,
        )
        if measured is None:
            return ran
        ran = replace(ran, outcome=measured.outcome, transfer_s=measured.transfer_s, gpu_ids=measured.gpus)
        done = np.bincount(request[ran.is_completed], minlength=len(work.requests))
        return replace(
            ran,
            incomplete=tuple(np.flatnonzero(done != np.diff(work.first_node)).tolist()),
            not_run=work.nodes - len(np.unique(self.node)),
        )

    @cached_property
    def duration_s(self) -> Floats:
        """Time of the node itself."""
        if self.measured is not None:
            return self.measured.duration_s
        return np.asarray(self.work.duration_s, np.float64)[self.node]

    @cached_property
    def outcome(self) -> tuple[str, ...]:
        """COMPLETED, or the category of a failure, of each execution."""
        return (COMPLETED,) * len(self.node) if self.measured is None else self.measured.outcome

    def evicted_for(self, execution: int) -> tuple[int, ...]:
        """Return the models that an execution's first GPU gave up for it, the least recently used first."""
        if self.measured is not None and self.measured.evicted is not None:
            return self.measured.evicted[execution]
        return (int(self.held[execution]),) if self.ran.is_switch[execution] else ()


def whole_ns(times_s: Floats) -> list[int]:
    """Return times in seconds as whole nanoseconds."""
    return [int(time_ns) for time_ns in np.rint(times_s * 1_000_000_000).astype(np.int64).tolist()]


def rows_of(*columns: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of some columns as plain values, made in parts: all at once take ten times the memory."""
    for begin in range(0, len(columns[0]), PART):
        yield from zip(*(column[begin : begin + PART].tolist() for column in columns), strict=True)
