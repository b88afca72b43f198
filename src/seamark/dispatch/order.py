"""Orders of execution: which unit of a list may begin next, by a scenario, a site or an option. Pure functions; the
list on disk is in claim_list.py.

An order never starts a unit itself: lanes bound how many run at once, so it only arranges and groups. What waits for
a unit waits for its end, good or bad.
"""

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import pairwise
from types import FunctionType
from typing import Any, Literal, get_args

from seamark.errors import UserError, did_you_mean
from seamark.model.dotted import is_dotted, resolved
from seamark.model.service import Value

UnitState = Literal["waiting", "running", "done"]
Groups = Literal["in_sequence", "parallel"]


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A deployment with its trials: work of one lane on one device. `estimated_s` is its expected time, `levels` are
    its settings and resources, and those levels that all of its trials share; `killed_lanes` is the number of lanes
    that were killed while they held it."""

    id: str
    estimated_s: float = 0.0
    levels: Mapping[str, Value] = field(default_factory=dict)
    state: UnitState = "waiting"
    killed_lanes: int = 0


@dataclass(frozen=True, kw_only=True)
class Order:
    """An order as it is written: `name` is one of FORMS, or the dotted path of a function of the user's own.

    `count` belongs to barrier, window and chained. `unroll` makes a group of units of each combination of levels of
    `factors`; inside of a group the order `then` holds.
    """

    name: str
    count: int | None = None
    factors: tuple[str, ...] = ()
    then: "Order | None" = None
    groups: Groups = "in_sequence"

    @property
    def text(self) -> str:
        """The order in one line, as `order_of` reads it."""
        if self.name == UNROLL:
            inner = self.then.text if self.then else "all"
            then = f", then: {{{inner}}}" if ": " in inner else f", then: {inner}" if inner != "all" else ""
            return f"unroll: [{', '.join(self.factors)}]{then}" + (", groups: parallel" if self._parallel else "")
        return self.name if self.count is None else f"{self.name}: {self.count}"

    @property
    def most(self) -> int | None:
        """How many units it lets run at once, None for any number."""
        if self.name == UNROLL:
            return self.then.most if self.then and not self._parallel else None
        return 1 if self.name == "sequential" else self.count

    @property
    def _parallel(self) -> bool:
        return self.groups == "parallel"

    def arranged(self, units: Sequence[Unit]) -> "Steps":
        """Return the steps of these units, which are in the order of the plan, by their states now."""
        steps = self._steps(list(range(len(units))), units)
        for at, unit in enumerate(units):
            if unit.state != "waiting":
                steps.begin(at)
            if unit.state == "done":
                steps.end(at)
        return steps

    def next_of(self, units: Sequence[Unit]) -> Unit | None:
        """Return the waiting unit to begin now, None while none may begin."""
        at = self.arranged(units).next()
        return None if at is None else units[at]

    def named(self) -> set[str]:
        """Return the factors that this order names, at every level."""
        return {*self.factors} | (self.then.named() if self.then else set())

    def _steps(self, places: list[int], units: Sequence[Unit]) -> "Steps":
        if self.name == UNROLL:
            groups: dict[tuple[Value, ...], list[int]] = {}
            for at in places:
                groups.setdefault(tuple(units[at].levels.get(name) for name in self.factors), []).append(at)
            inner = self.then or ALL
            parts = [inner._steps(group, units) for group in groups.values()]
            return _Beside(parts) if self._parallel else _Series(parts)
        if self.name == "barrier" and self.count:
            return _Series([_Window(places[at : at + self.count]) for at in range(0, len(places), self.count)])
        if self.name == "chained" and self.count:
            return _Beside([_Window(places[at :: self.count], 1) for at in range(min(self.count, len(places)))])
        if self.name == "longest_first":
            return _Window(sorted(places, key=lambda at: -units[at].estimated_s))
        if is_dotted(self.name):
            return _Own(self.name, {at: units[at] for at in places})
        return _Window(places, self.most)


@dataclass(frozen=True, kw_only=True)
class Wait:
    """What a unit waits for: the end of all units `after`, by their positions, and until fewer than `limit` units of
    its group run; None: no limit."""

    after: tuple[int, ...] = ()
    limit: int | None = None


class Steps(ABC):
    """Units of an order, or of a part of it, by their positions in the plan, as they begin and end."""

    def __init__(self, places: Collection[int]) -> None:
        self.places = places
        self._left = len(places)

    @property
    def done(self) -> bool:
        """Whether all units have ended."""
        return self._left == 0

    @abstractmethod
    def next(self) -> int | None:
        """Return the position of the first unit that may begin, None while there is none."""

    @abstractmethod
    def begin(self, at: int) -> None:
        """Note that a unit has begun."""

    def end(self, at: int) -> None:
        """Note that a unit has ended."""
        self._left -= 1

    def waits(self, at: int) -> "Wait":
        """Return what a unit waits for by the order alone, whatever the number of lanes."""
        return Wait()


class _Window(Steps):
    """Units in their order, at most `limit` at once: the next begins as soon as any has ended."""

    def __init__(self, places: Sequence[int], limit: int | None = None) -> None:
        super().__init__(places)
        self._waiting, self._running = deque(places), 0
        self._limit = len(places) if limit is None else limit
        self._before = {at: before for before, at in pairwise(places)} if limit == 1 else {}

    def next(self) -> int | None:
        return self._waiting[0] if self._waiting and self._running < self._limit else None

    def begin(self, at: int) -> None:
        self._waiting.remove(at)
        self._running += 1

    def end(self, at: int) -> None:
        super().end(at)
        self._running -= 1

    def waits(self, at: int) -> Wait:
        if self._limit == 1:
            return Wait(after=(self._before[at],) if at in self._before else ())
        return Wait(limit=self._limit if self._limit < len(self.places) else None)


class _Own(Steps):
    """Units in the order of a function of the user's own, whose answers are checked."""

    def __init__(self, path: str, units: Mapping[int, Unit]) -> None:
        super().__init__(units)
        self._path, self._units = path, dict(units)
        self._function: Callable[[Sequence[Unit]], Unit | None] = resolved(path, FunctionType)

    def next(self) -> int | None:
        units = list(self._units.values())
        try:
            chosen = self._function(units)
        except Exception as error:
            raise UserError(f"order {self._path}: {type(error).__name__}: {error}") from error
        waiting = [unit for unit in units if unit.state == "waiting"]
        if chosen is None and waiting and not any(unit.state == "running" for unit in units):
            raise UserError(
                f"order {self._path}: it returned None though nothing runs: {len(waiting)} units would wait forever."
            )
        if chosen is None:
            return None
        if chosen not in waiting:
            raise UserError(
                f"order {self._path}: it returned {chosen!r}. Return one of the units that wait, or None."
            )
        return next(at for at, unit in self._units.items() if unit == chosen)

    def begin(self, at: int) -> None:
        self._units[at] = replace(self._units[at], state="running")

    def end(self, at: int) -> None:
        super().end(at)
        self._units[at] = replace(self._units[at], state="done")


class _Parts(Steps):
    """Parts of an order, each with units of its own."""

    def __init__(self, parts: Sequence[Steps]) -> None:
        self._part = {at: index for index, part in enumerate(parts) for at in part.places}
        super().__init__(self._part)
        self._parts = parts

    def begin(self, at: int) -> None:
        self._parts[self._part[at]].begin(at)

    def end(self, at: int) -> None:
        super().end(at)
        self._parts[self._part[at]].end(at)

    def waits(self, at: int) -> Wait:
        return self._parts[self._part[at]].waits(at)


class _Series(_Parts):
    """Parts one after another: a part begins when all units of the one before have ended."""

    def __init__(self, parts: Sequence[Steps]) -> None:
        super().__init__(parts)
        self._first = 0
        self._wholes = [tuple(part.places) for part in parts]

    def next(self) -> int | None:
        while self._first < len(self._parts) and self._parts[self._first].done:
            self._first += 1
        return self._parts[self._first].next() if self._first < len(self._parts) else None

    def waits(self, at: int) -> Wait:
        inside, index = super().waits(at), self._part[at]
        if inside.after or index == 0:  # what it waits for inside of its part has waited for the part before
            return inside
        return replace(inside, after=self._wholes[index - 1])


class _Beside(_Parts):
    """Parts at the same time: of the units that may begin in any of them the first of the plan does."""

    def __init__(self, parts: Sequence[Steps]) -> None:
        super().__init__(parts)
        self._heap: list[tuple[int, int]] = []
        """What each part has to begin, with the number of the part; entries that `_offered` has not are out of
        date."""
        self._offered: dict[int, int] | None = None
        """What each part has to begin, by its number; None: nobody has asked yet."""

    def next(self) -> int | None:
        if self._offered is None:
            self._offered = {}
            for index in range(len(self._parts)):
                self._offer(index)
        while self._heap:
            at, index = self._heap[0]
            if self._offered.get(index) == at:
                if self._parts[index].next() == at:
                    return at
                del self._offered[index]
            heappop(self._heap)
            self._offer(index)
        return None

    def end(self, at: int) -> None:
        super().end(at)
        self._offer(self._part[at])

    def _offer(self, index: int) -> None:
        if self._offered is None or (at := self._parts[index].next()) in (None, self._offered.get(index)):
            return
        self._offered[index] = at
        heappush(self._heap, (at, index))


UNROLL = "unroll"
ALL = Order(name="all")
PLAIN = ("all", "sequential", "longest_first")
COUNTED = ("barrier", "window", "chained")
OLDER = {"in_order": "all", "sliding": "window"}
"""Other names of the same orders."""
FORMS = (*PLAIN, *(f"'{name}: N'" for name in COUNTED), "'unroll: [FACTOR, ...]'", "module:function")
_CALL = re.compile(r"\s*([\w-]+)\s*\((.*)\)\s*", re.DOTALL)


def order_of(written: object) -> Order:
    """Return the order that a scenario, a site or an option names: a text, or keys and values as in YAML.

    `barrier: 4` may be written as `barrier(4)`. Raises ValueError with the mistake, the allowed forms and the nearest
    guess.
    """
    if isinstance(written, str):
        if is_dotted(written):
            resolved(written, FunctionType)
            return Order(name=written)
        written = _document(written)
    if isinstance(written, str):
        written = {written: None}
    if not isinstance(written, dict) or not written:
        raise ValueError(f"{_shown(written)} is no order. Allowed: {', '.join(FORMS)}.")
    name = UNROLL if UNROLL in written else next(iter(written))
    value, others = written[name], [key for key in written if key != name]
    name = OLDER.get(name, name)
    known = (*PLAIN, *COUNTED, UNROLL)
    if name not in known:
        guess = did_you_mean(str(name), (*known, *OLDER))
        raise ValueError(f"'{name}' is no order. Allowed: {', '.join(FORMS)}.{guess}")
    if unknown := [key for key in others if name != UNROLL or key not in ("then", "groups")]:
        also = " 'then' and 'groups' may follow." if name == UNROLL else f" Write '{name}' alone."
        raise ValueError(f"'{unknown[0]}' does not belong to {name}.{also}")
    if name == UNROLL:
        return _unrolled(written, value)
    if name in PLAIN:
        if value is not None:
            raise ValueError(f"{name} takes no value. Write '{name}'.")
        return Order(name=name)
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} takes one whole number from 1 on, not {_shown(value)}. Write '{name}: 4'.")
    return Order(name=name, count=value)


def _unrolled(written: Mapping[str, Any], value: object) -> Order:
    factors = [value] if isinstance(value, str) else value
    if not isinstance(factors, list) or not factors or not all(isinstance(name, str) for name in factors):
        raise ValueError(f"unroll takes names of factors, not {_shown(value)}. Write 'unroll: [FACTOR]'.")
    groups = written.get("groups", "in_sequence")
    if groups not in get_args(Groups):
        guess = did_you_mean(str(groups), get_args(Groups))
        raise ValueError(f"groups: {_shown(groups)} is none of {', '.join(get_args(Groups))}.{guess}")
    then = order_of(written["then"]) if "then" in written else None
    return Order(name=UNROLL, factors=tuple(dict.fromkeys(factors)), then=then, groups=groups)


def _document(text: str) -> Any:
    """Return what a text in one line says: `barrier: 4`, `unroll: [model], then: {window: 2}`, `unroll(model)`."""
    if call := _CALL.fullmatch(text):
        words = [word.strip() for word in call[2].split(",") if word.strip()]
        number = len(words) == 1 and re.fullmatch(r"-?\d+", words[0])
        return {call[1]: int(words[0]) if number else words if call[1] == UNROLL else call[2]}
    if ":" not in text:
        return text.strip()
    import yaml  # few runs have an order

    try:
        return yaml.safe_load(text if text.lstrip().startswith("{") else f"{{{text}}}")
    except yaml.YAMLError:
        return text


def _shown(value: object) -> str:
    return "nothing" if value is None else f"'{value}'"


def runs_several(text: str) -> bool:
    """Return whether an order other than the default is about several units at once."""
    order = order_of(text)
    return order.name in (*COUNTED, UNROLL) and order.most != 1


def unknown_factors(order: Order, known: Collection[str]) -> str | None:
    """Return what is wrong with the factors of an order, None for nothing. `known` are those of which each unit has
    one level."""
    unknown = sorted(order.named() - {*known})
    if not unknown:
        return None
    listed = ", ".join(known) or "none"
    guess = did_you_mean(unknown[0], known)
    text = (
        f"'{order.text}': '{unknown[0]}' is no factor of which a deployment has one level. Factors: {listed}.{guess}"
    )
    return f"{text} With 'fresh_server: true' in its workload each treatment is a deployment."
