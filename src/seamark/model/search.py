"""Search for the largest load that meets a workload's objectives. Decoded in config/search.py, run in
trials/search/."""

from dataclasses import dataclass
from typing import Literal

Searched = Literal["rate_rps", "concurrency"]
Outcome = Literal["converged", "undecided", "all_pass", "none_pass", "budget_spent", "not_judged"]


@dataclass(frozen=True, kw_only=True)
class Search:
    """The searched setting, its range, its resolution and its budget.

    Levels lie `within` of each other from `from_level` to `to_level` (as a ratio: 0.05 is 5 %). No probe begins after
    `budget_s` seconds. `confirm` is the number of repeated probes of the result, with other seeds.
    """

    setting: Searched
    from_level: float
    to_level: float
    within: float = 0.05
    budget_s: float = 300.0
    confirm: int = 1

    @property
    def whole(self) -> bool:
        """Whether its levels are whole numbers."""
        return self.setting == "concurrency"

    def level(self, value: float) -> int | float:
        """Return a level as the setting has it: whole users, or a rate of four significant digits."""
        return round(value) if self.whole else float(f"{value:.4g}")
