"""What a measured run needs of the servers of its models: one Protocol, the call of a node, and how it fails."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from seamark_simulate.simulation.system import Model


@dataclass(frozen=True, kw_only=True)
class NodeCall:
    """One call of a model for a node. `inputs` are the node's inputs by name: of the request's input data, or outputs
    of nodes before it. `config` are the options of the request for this node."""

    model: Model
    inputs: Mapping[str, Any]
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        """The inputs as one text, a line each."""
        return "\n".join(str(value) for value in self.inputs.values())


class ModelError(Exception):
    """A load, switch or call that failed: the category of model/failure_categories.py, and the reason in a line.

    `emptied`: the GPUs hold no model after it that could be called again.
    """

    def __init__(self, category: str, reason: str, *, emptied: bool = False) -> None:
        super().__init__(reason)
        self.category, self.reason, self.emptied = category, reason, emptied


class ModelServers(Protocol):
    """Models on the GPUs 0 to N-1 of a run. Calls for different GPUs come from several threads at a time, those for
    one GPU one after another. Every limit is in seconds."""

    def prepare(self, models: Sequence[Model], limit_s: float) -> None:
        """Make models ready to be loaded, before the clock of the run begins. Raises UserError where nothing can be
        measured at all; a model that fails by itself fails when it is brought."""

    def estimate_s(self, call: NodeCall, limit_s: float) -> float | None:
        """Return what the server expects a call to take, None where it does not tell."""

    def bring(self, model: Model, gpus: tuple[int, ...], limit_s: float) -> bool:
        """Have a model ready for calls on its GPUs, in place of what they hold; return at once with false where it is
        there already. Raises ModelError."""

    def call(self, call: NodeCall, gpus: tuple[int, ...], limit_s: float) -> str:
        """Call a model that was brought to its GPUs, and return its output. Raises ModelError."""

    def close(self) -> None:
        """End everything that was started. Loads and calls of other threads end early."""
