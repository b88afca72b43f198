"""The seam between a scheduler and the machine that carries out its decisions: a virtual or a real one."""

from dataclasses import dataclass
from typing import Literal, Protocol

COMPLETED = "completed"
"""Outcome of an execution that did its work; every other outcome is the category of a failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """A node that gets its GPUs.

    `execution` counts the starts of a run from 0. `gpu` is the first of `count` GPUs; it held the model `old_model`
    until then, None for an empty one. Models and nodes are numbers of the workload.
    """

    execution: int
    node: int
    model: int
    gpu: int
    count: int
    old_model: int | None
    at_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """The end of an execution at `at_s`, after `fetch_s` for its model and `duration_s` for the node itself.

    `failure` is a category, None where the work is done. `gpus` says what is left of the GPUs: they keep the model,
    they are empty, or they are lost and do not come back.
    """

    execution: int
    at_s: float
    fetch_s: float
    duration_s: float
    failure: str | None = None
    gpus: Literal["kept", "emptied", "lost"] = "kept"


class World(Protocol):
    """Carries out starts, and reports their ends. Times are in seconds from the begin of the run."""

    def start(self, start: Start) -> float:
        """Begin an execution, and return when it took its GPUs: `at_s`, or what a real clock shows. Does not wait."""

    def next_end(self, until_s: float) -> End | None:
        """Return the earliest end before `until_s` that was not reported yet, None for none.

        A real world waits for it until then; with an `until_s` that has passed it returns ends that are there already.
        With an infinite `until_s` something is running. Ends of one time come in the order of their starts.
        """
