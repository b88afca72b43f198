"""Node executions as columns: what the figures of a schedule are made of, whether it was run or read from a file."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamark.simulation.schedule import Floats, Ints, Schedule


@dataclass(frozen=True, kw_only=True)
class Executions:
    """Executions in the order of their starts, on a machine of `gpus` GPUs.

    `arrival_s` is by request, all other columns by execution: numbers of `request` and `model` (its place in
    `models`), the first `gpu` and their `count`, and times in seconds. `fetch_s` from `taken_s` on is a switch of the
    model, the first load of an empty GPU (`is_cold`), or nothing. `failure` is the category of a failed execution,
    `request_completed` by request whether all its nodes did their work, and `not_run` the number of nodes that were
    never started.
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
    failure: Sequence[str | None] = ()
    request_completed: NDArray[np.bool_] | None = None
    not_run: int = 0

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
        return self._of_requests(np.maximum, self.end_s, -np.inf)

    def first_started_s(self) -> Floats:
        """Return when the first node of each request began."""
        return self._of_requests(np.minimum, self.start_s, np.inf)

    def first_ended_s(self) -> Floats:
        """Return when the first node of each request ended."""
        return self._of_requests(np.minimum, self.end_s, np.inf)

    def _of_requests(self, ufunc: np.ufunc, values: Floats, otherwise: float) -> Floats:
        found = np.full(len(self.arrival_s), otherwise)
        ufunc.at(found, self.request, values)
        return found


def executions_of(schedule: Schedule) -> Executions:
    """Return the executions of a schedule."""
    work = schedule.work
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
        failure=schedule.failure,
        request_completed=None if schedule.measured is None else schedule.request_completed,
        not_run=schedule.not_run,
    )
