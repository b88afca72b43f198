"""Node executions as columns: what the figures of a schedule are made of, whether it was run or read from a file."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamark_simulate.simulation.schedule import Floats, Ints, Schedule
from seamark_simulate.simulation.world import COMPLETED, INTERRUPTED


@dataclass(frozen=True, kw_only=True)
class Executions:
    """Executions in the order of their starts, on a machine of `gpus` GPUs.

    `arrival_s` is by request, all other columns by execution: numbers of `request` and `model` (its place in
    `models`), the first `gpu` and their `count`, and times in seconds. `fetch_s` from `taken_s` on is a switch of the
    model, the first load of an empty GPU (`is_cold`), or nothing; then data come for `transfer_s`. `outcome` is
    COMPLETED or why an execution did not do its work; `incomplete` are the numbers of requests that did not complete,
    and `not_run` counts nodes without an execution. `gpu_ids` are the GPUs of each execution where they are not
    consecutive.
    """

    gpus: int
    models: Sequence[str]
    arrival_s: Floats
    request: Ints
    model: Ints
    gpu: Ints
    count: Ints
    is_switch: NDArray[np.bool_]
    is_cold: NDArray[np.bool_]
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
        return np.asarray(np.minimum(there_s + self.transfer_s, self.end_s), np.float64)

    @property
    def is_first_load(self) -> NDArray[np.bool_]:
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
    def is_complete(self) -> NDArray[np.bool_]:
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
        if self.outcome is None:
            return self._of_requests(np.minimum, self.end_s, np.inf)
        done = np.asarray([outcome == COMPLETED for outcome in self.outcome], np.bool_)
        return self._of_requests(np.minimum, np.where(done, self.end_s, np.inf), np.inf)

    def _of_requests(self, ufunc: np.ufunc, values: Floats, otherwise: float) -> Floats:
        found = np.full(len(self.arrival_s), otherwise)
        ufunc.at(found, self.request, values)
        return found


def executions_of(schedule: Schedule) -> Executions:
    """Return the executions of a schedule."""
    work, measured = schedule.work, schedule.measured
    return Executions(
        gpus=schedule.gpus,
        models=[model.id for model in work.models],
        arrival_s=np.asarray(work.arrival_s, np.float64),
        request=work.request_of[schedule.node],
        model=schedule.model,
        gpu=schedule.gpu,
        count=schedule.count,
        is_switch=schedule.is_switch,
        is_cold=schedule.is_cold,
        ready_s=schedule.ready_s,
        taken_s=schedule.taken_s,
        fetch_s=schedule.fetch_s,
        end_s=schedule.end_s,
        transfer_s=None if measured is None else measured.transfer_s,
        outcome=None if measured is None else measured.outcome,
        incomplete=() if measured is None else tuple(np.flatnonzero(~schedule.request_completed).tolist()),
        not_run=0 if measured is None else schedule.not_run,
        gpu_ids=None if measured is None else measured.gpus,
    )
