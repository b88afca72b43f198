"""Which comparisons the order of a plan allows: all trials of one start of a server run before those of the next."""

from collections.abc import Mapping
from typing import Any


def factors_of_starts(factors: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the factors of a plan whose levels have one start of the server each: time and level are confounded.

    `factors` is that of a plan: the levels of each factor, by role. Empty where none varies between starts.
    """
    return tuple(factors.get("deployment") or ())


def why_no_p(names: tuple[str, ...]) -> str:
    """Return the sentence that says why these factors get neither a p nor a smallest detectable effect."""
    has = f"each level of {names[0]}" if len(names) == 1 else f"each level of {', '.join(names[:-1])} and {names[-1]}"
    return (
        f"no p and no smallest effect: {has} is measured on one start of the server, and all trials of a start run "
        "before those of the next. A change of the machine over time, or between two starts, would look the same as "
        "an effect"
    )
