"""The seam between a scheduler and the machine that carries out its decisions: a virtual or a real one."""

from dataclasses import dataclass
from typing import Literal, Protocol

COMPLETED = "completed"
"""Outcome of an execution that did its work; every other outcome is the category of a failure."""

PREEMPTED, GPU_FAILED, GPU_REMOVED = INTERRUPTED = ("preempted", "gpu_failed", "gpu_removed")
"""Outcomes of executions that the scheduler or the machine interrupted; their nodes become ready again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """A node that gets its GPUs.

    `execution` counts the starts of a run from 0. `gpu` is the first of `count` GPUs; it held the model `old_model`
    until then, None for an empty one. Models and nodes are numbers of the workload.

    What the machine's rules expect: `fetch_s` for the model, then `transfer_s` for data of predecessors; the node
    runs `speed` times as fast as on a GPU of speed 1. `left_ratio` is the share of the node's work that is left.
    `gpus` are all GPUs, where they are not `count` consecutive ones from `gpu` on.
    """

    execution: int
    node: int
    model: int
    gpu: int
    count: int
    old_model: int | None
    at_s: float
    fetch_s: float = 0.0
    transfer_s: float = 0.0
    speed: float = 1.0
    left_ratio: float = 1.0
    gpus: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class End:
    """The end of an execution at `at_s`, after `fetch_s` for its model, `transfer_s` for its data, and `duration_s`
    for the node itself.

    `failure` is a category, None where the work is done. `gpus` says what is left of the GPUs: they keep the model,
    they are empty, or they are lost and do not come back. `done_ratio` is the share of the node's work that was done.
    """

    execution: int
    at_s: float
    fetch_s: float
    duration_s: float
    failure: str | None = None
    gpus: Literal["kept", "emptied", "lost"] = "kept"
    transfer_s: float = 0.0
    done_ratio: float = 1.0


class World(Protocol):
    """Carries out starts, and reports their ends. Times are in seconds from the begin of the run."""

    def start(self, start: Start) -> float:
        """Begin an execution, and return when it took its GPUs: `at_s`, or what a real clock shows. Does not wait."""

    def next_end(self, until_s: float) -> End | None:
        """Return the earliest end before `until_s` that was not reported yet, None for none.

        A real world waits for it until then; with an `until_s` that has passed it returns an end that is there
        already. With an infinite `until_s` something is running. Ends of one time come in the order of their starts.
        """


class Interruptible(World, Protocol):
    """A world whose executions can be ended early, by preemption or because their GPU is gone."""

    def interrupt(self, execution: int, at_s: float) -> End | None:
        """End an execution now, and return what it did; None for one that ends at this time anyway."""
