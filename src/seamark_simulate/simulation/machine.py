"""The simulated machine: its GPUs, and what it costs to bring a model to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from seamark_simulate.simulation.layout import PCIE_GB_PER_S, SWITCH_OVERHEAD_S, Layout
from seamark_simulate.simulation.system import Model

ColdLoad = Literal["charged", "free"]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """GPUs 0 to `gpus` - 1 of one kind, or of a `layout`, whose bandwidths and rules then count. `cold_load` says
    whether a model's first load onto an empty GPU takes its load time or no time."""

    gpus: int
    cold_load: ColdLoad = "charged"
    pcie_gb_per_s: float = PCIE_GB_PER_S
    switch_overhead_s: float = SWITCH_OVERHEAD_S
    layout: Layout | None = None

    @property
    def may_fail(self) -> bool:
        """Whether GPUs fail at times that a seed decides."""
        return self.layout is not None and self.layout.failures is not None

    def fetch_s(self, old: Model | None, new: Model) -> float:
        """Return the time to bring `new` to a GPU that holds `old`, None for an empty GPU.

        Zero for the same model; (old + new) / bandwidth + overhead for a switch; the load time for an empty GPU,
        which is no switch. Nothing for a task that brings no model.
        """
        if not new.fetched:
            return 0.0
        if old is None:
            return new.load_time_s if self.cold_load == "charged" else 0.0
        if old.id == new.id:
            return 0.0
        return (old.memory_gb + new.memory_gb) / self.pcie_gb_per_s + self.switch_overhead_s

    def fetch_table(self, models: Sequence[Model]) -> tuple[tuple[float, ...], ...]:
        """Return `fetch_s` by the numbers of the new and the old model; the last old one is the empty GPU."""
        return tuple(tuple(self.fetch_s(old, new) for old in (*models, None)) for new in models)
