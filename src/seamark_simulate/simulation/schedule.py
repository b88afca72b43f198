"""Result of a simulation: a row for each node execution, as columns in the order in which they were started."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamark_simulate.simulation.machine import GpuChange, Machine
from seamark_simulate.simulation.workload import Workload
from seamark_simulate.simulation.world import COMPLETED

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
PART = 500
FETCH_NONE, FETCH_LOAD, FETCH_SWITCH = range(3)
"""What precedes a node on its GPUs: nothing, the first load of an empty GPU, or a change of model."""


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
    def model(self) -> Ints:
        """Number of the model of each execution."""
        return np.asarray(self.work.model, np.int64)[self.node]

    @property
    def count(self) -> Ints:
        """Number of GPUs of each execution."""
        return np.asarray(self.work.need, np.int64)[self.node]

    @cached_property
    def is_switch(self) -> NDArray[np.bool_]:
        """Whether the first GPU held another model; the first load onto an empty GPU is no switch."""
        if self.measured is not None:
            return np.asarray(self.measured.fetch == FETCH_SWITCH, np.bool_)
        switched: NDArray[np.bool_] = (self.held != self.model) & (self.held != len(self.work.models)) & self._fetched
        return switched

    @property
    def is_cold(self) -> NDArray[np.bool_]:
        """Whether the first GPU was empty, or had room, and a model had to be loaded."""
        if self.measured is not None:
            return np.asarray(self.measured.fetch == FETCH_LOAD, np.bool_)
        cold: NDArray[np.bool_] = (self.held == len(self.work.models)) & self._fetched
        return cold

    @property
    def _fetched(self) -> NDArray[np.bool_]:
        return np.asarray([model.fetched for model in self.work.models], np.bool_)[self.model]

    @property
    def gpus(self) -> int:
        """Number of GPUs of the machine."""
        return self.machine.gpus

    @cached_property
    def fetch_s(self) -> Floats:
        """Time from taking the GPUs until the model was there: a load, a switch, or nothing. Not the difference of
        the two times, which is rounded."""
        if self.measured is not None:
            return self.measured.fetch_s
        table = np.asarray(self.machine.fetch_table(self.work.models)).reshape(-1, len(self.work.models) + 1)
        return np.asarray(table[self.model, self.held], np.float64)

    @property
    def transfer_s(self) -> Floats:
        """Time in which data came from other GPUs, after the model was there."""
        return np.zeros(len(self.node)) if self.measured is None else self.measured.transfer_s

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

    @cached_property
    def is_completed(self) -> NDArray[np.bool_]:
        """Whether each execution did its work."""
        return np.asarray([outcome == COMPLETED for outcome in self.outcome], np.bool_)

    @cached_property
    def request_completed(self) -> NDArray[np.bool_]:
        """Whether all nodes of each request did their work."""
        first = np.asarray(self.work.first_node, np.int64)
        done = np.bincount(self.work.request_of[self.node[self.is_completed]], minlength=len(self.work.requests))
        whole: NDArray[np.bool_] = done == first[1:] - first[:-1]
        return whole

    @property
    def not_run(self) -> int:
        """Number of nodes that were never started, because one before them failed or no GPU was left."""
        return self.work.nodes - len(np.unique(self.node))

    @property
    def start_s(self) -> Floats:
        """When model and data were there and the node itself began."""
        there_s = self.taken_s + self.fetch_s
        if self.measured is None:
            return there_s
        # of an execution that ended before, the sum of its times may be rounded to after its end
        return np.asarray(np.minimum(there_s + self.measured.transfer_s, self.end_s), np.float64)

    def evicted_for(self, execution: int) -> tuple[int, ...]:
        """Return the models that an execution's first GPU gave up for it, the least recently used first."""
        if self.measured is not None and self.measured.evicted is not None:
            return self.measured.evicted[execution]
        return (int(self.held[execution]),) if self.is_switch[execution] else ()

    def gpus_of(self, execution: int) -> tuple[int, ...]:
        """Return the GPUs of an execution."""
        if self.measured is not None and self.measured.gpus is not None:
            return self.measured.gpus[execution]
        first = self.gpu.item(execution)
        return tuple(range(first, first + self.work.need[self.node.item(execution)]))

    @property
    def makespan_s(self) -> float:
        """The latest end; 0 without executions."""
        return float(self.end_s.max(initial=0.0))

    def completed_s(self) -> Floats:
        """Return when the last node of each request ended."""
        ended_s = np.full(len(self.work.requests), -np.inf)
        np.maximum.at(ended_s, self.work.request_of[self.node], self.end_s)
        return ended_s


def rows_of(*columns: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of some columns as plain values, made in parts: all at once take ten times the memory."""
    for begin in range(0, len(columns[0]), PART):
        yield from zip(*(column[begin : begin + PART].tolist() for column in columns), strict=True)
