"""Claim policies: which unit of a list begins next. Pure functions; the list on disk is in claim_list.py.

A policy sees every unit with its state and returns the one to begin now, or None while none may begin. Lanes bound
how many run at once, so a policy only orders and groups.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Literal

from seamark.errors import UserError, did_you_mean
from seamark.model.dotted import is_dotted, resolved
from seamark.model.service import Value

UnitState = Literal["waiting", "running", "done"]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """Work of one lane on one device. `estimated_s` is its expected time, `levels` are its settings and
    resources, and `killed_lanes` is the number of lanes that were killed while they held it."""

    id: str
    estimated_s: float = 0.0
    levels: Mapping[str, Value] = field(default_factory=dict)
    state: UnitState = "waiting"
    killed_lanes: int = 0


ClaimPolicy = Callable[[Sequence[Unit]], Unit | None]
"""Returns the waiting unit to begin now, None for none. Units are in the order of the plan."""


def in_order(units: Sequence[Unit]) -> Unit | None:
    """Begin units in the order of the plan."""
    return next((unit for unit in units if unit.state == "waiting"), None)


def longest_first(units: Sequence[Unit]) -> Unit | None:
    """Begin the unit with the longest estimate, which shortens the wait for the last one (LPT, Graham 1969)."""
    return max((unit for unit in units if unit.state == "waiting"), key=lambda unit: unit.estimated_s, default=None)


def barrier(count: int) -> ClaimPolicy:
    """Return the policy that begins `count` units, and the next `count` once all of these have ended."""

    def choose(units: Sequence[Unit]) -> Unit | None:
        batches = (units[first : first + count] for first in range(0, len(units), count))
        return _first_open(batches)

    return choose


def sliding(count: int) -> ClaimPolicy:
    """Return the policy that keeps `count` units running: when any of them ends, the next in order begins."""

    def choose(units: Sequence[Unit]) -> Unit | None:
        running = sum(unit.state == "running" for unit in units)
        return in_order(units) if running < count else None

    return choose


def unroll(*factors: str) -> ClaimPolicy:
    """Return the policy that runs one combination of levels of these factors after another; units of one combination
    run side by side."""

    def choose(units: Sequence[Unit]) -> Unit | None:
        groups: dict[tuple[Value, ...], list[Unit]] = {}
        for unit in units:
            groups.setdefault(tuple(unit.levels.get(name) for name in factors), []).append(unit)
        return _first_open(groups.values())

    return choose


def _checked(path: str, policy: ClaimPolicy) -> ClaimPolicy:
    """Return a user's policy whose answers are checked. It raises UserError for one that is no waiting unit, and
    where nothing would ever begin."""

    def choose(units: Sequence[Unit]) -> Unit | None:
        try:
            chosen = policy(units)
        except Exception as error:
            raise UserError(f"claim {path}: {type(error).__name__}: {error}") from error
        waiting = [unit for unit in units if unit.state == "waiting"]
        if chosen is None and waiting and not any(unit.state == "running" for unit in units):
            raise UserError(
                f"claim {path}: it returned None though nothing runs: {len(waiting)} units would wait forever."
            )
        if chosen is not None and chosen not in waiting:
            raise UserError(f"claim {path}: it returned {chosen!r}. Return one of the units that wait, or None.")
        return chosen

    return choose


def _first_open(groups: Iterable[Sequence[Unit]]) -> Unit | None:
    """Return the first waiting unit of the first group with a unit that is not done."""
    for group in groups:
        if any(unit.state != "done" for unit in group):
            return in_order(group)
    return None


PLAIN: Mapping[str, ClaimPolicy] = {"in_order": in_order, "longest_first": longest_first}
COUNTED: Mapping[str, Callable[[int], ClaimPolicy]] = {"barrier": barrier, "sliding": sliding}
FORMS = ("in_order", "longest_first", "barrier(N)", "sliding(N)", "unroll(FACTOR, ...)", "module:function")
_FORM = re.compile(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*", re.DOTALL)


def claim_policy(text: str, factors: Collection[str] | None = None) -> ClaimPolicy:
    """Return the policy that a site or an option names: `in_order`, `barrier(4)`, `unroll(model)`, or the function at
    a dotted path.

    `factors` are the deployment factors of the scenario; None: not known yet. Raises ValueError with the mistake, the
    allowed forms and the nearest guess.
    """
    if is_dotted(text):
        return _checked(text, resolved(text, FunctionType))
    match = _FORM.fullmatch(text)
    name, inside = (match[1], match[2]) if match else (text, None)
    known = (*PLAIN, *COUNTED, "unroll")
    if name not in known:
        raise ValueError(f"'{text}' is no claim policy. Allowed: {', '.join(FORMS)}.{did_you_mean(name, known)}")
    if name in PLAIN:
        if inside is not None:
            raise ValueError(f"'{text}': {name} takes nothing in parentheses. Write '{name}'.")
        return PLAIN[name]
    words = [word.strip() for word in (inside or "").split(",") if word.strip()]
    if name in COUNTED:
        if len(words) != 1 or not words[0].isdecimal() or int(words[0]) < 1:
            raise ValueError(f"'{text}': {name} takes one whole number from 1 on. Write '{name}(4)'.")
        return COUNTED[name](int(words[0]))
    if not words:
        raise ValueError(f"'{text}': unroll takes deployment factors. Write 'unroll(FACTOR)'.")
    if factors is not None and (unknown := [word for word in words if word not in factors]):
        listed = ", ".join(factors) or "none"
        guess = did_you_mean(unknown[0], factors)
        raise ValueError(f"'{text}': '{unknown[0]}' is no deployment factor of the plan. Factors: {listed}.{guess}")
    return unroll(*words)
