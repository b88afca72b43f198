"""Result of a simulation: a row for each node execution, as columns in the order in which they were started."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from seamark.simulation.machine import Machine
from seamark.simulation.workload import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The executions of a workload.

    `node` is the number of the node, `gpu` the first of its GPUs, `held` the model that this GPU held before (the
    number of models: none). The GPUs are taken at `taken_s`; the model is there at `start_s`; the node ends at
    `end_s`. `ready_s` is when its last predecessor had ended. `step` is the number of events until its start, that
    which caused it included.
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

    @property
    def model(self) -> Ints:
        """Number of the model of each execution."""
        return np.asarray(self.work.model, np.int64)[self.node]

    @property
    def count(self) -> Ints:
        """Number of GPUs of each execution."""
        return np.asarray(self.work.need, np.int64)[self.node]

    @property
    def is_switch(self) -> NDArray[np.bool_]:
        """Whether the first GPU held another model; the first load onto an empty GPU is no switch."""
        switched: NDArray[np.bool_] = (self.held != self.model) & (self.held != len(self.work.models)) & self._fetched
        return switched

    @property
    def is_cold(self) -> NDArray[np.bool_]:
        """Whether the first GPU was empty, and a model had to be loaded."""
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
        table = np.asarray(self.machine.fetch_table(self.work.models)).reshape(-1, len(self.work.models) + 1)
        return np.asarray(table[self.model, self.held], np.float64)

    @property
    def start_s(self) -> Floats:
        """When the model was there and the node itself began."""
        return self.taken_s + self.fetch_s

    @property
    def makespan_s(self) -> float:
        """The latest end; 0 without executions."""
        return float(self.end_s.max(initial=0.0))

    def completed_s(self) -> Floats:
        """Return when the last node of each request ended."""
        ended_s = np.full(len(self.work.requests), -np.inf)
        np.maximum.at(ended_s, self.work.request_of[self.node], self.end_s)
        return ended_s
