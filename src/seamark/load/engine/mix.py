"""A mix of request classes: one driver per class, and a seeded sequence of classes.

config/mix.py validates a mix when a scenario is read.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd, lcm
from typing import Any, Generic, TypeVar, cast

import numpy as np
import numpy.typing as npt

from seamark.errors import UserError
from seamark.load.driver import Body, Call, Decoder, Driver, Reply, Session, Target, Wire, declared
from seamark.model.digest import seed_for
from seamark.model.sample import Failure
from seamark.model.service import Value
from seamark.patterns.trace_file import TraceRow

MOST_KINDS = 127
"""A sample has one byte for the kind of its request."""
FEWEST_BODIES = 16
SEQUENCE = 8192

AnyDriver = TypeVar("AnyDriver", bound=Driver)


@dataclass(frozen=True, kw_only=True)
class RequestClass:
    """A class of similar requests: the settings that differ from the rest of the load, and its weight."""

    name: str
    weight: float
    settings: Mapping[str, Value]


def classes_of(text: str) -> tuple[RequestClass, ...]:
    """Return the classes of a setting `mix`, a JSON object. Raises UserError if it is not one."""
    try:
        document: dict[str, Any] = json.loads(text)
        classes = tuple(
            RequestClass(
                name=name,
                weight=float(entry.get("weight", 1)),
                settings={key: value for key, value in entry.items() if key != "weight"},
            )
            for name, entry in document.items()
            if name != "name"
        )
    except (ValueError, TypeError, AttributeError):
        classes = ()
    if not classes or any(not 0 < request_class.weight < float("inf") for request_class in classes):
        raise UserError(f"mix: {text[:80]} is no mix. Write it as {{chat: {{weight: 3}}, search: {{weight: 1}}}}.")
    return classes


def drawn(weights: Sequence[float], count: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the class of each of about `count` requests: a seeded permutation in which each class has exactly its
    share.

    Exact where the weights have a whole-number ratio with a sum up to `count`; else rounded to the nearest request,
    at least one per class.
    """
    parts = [Fraction(str(weight)) for weight in weights]
    common = lcm(*(part.denominator for part in parts))
    whole = [int(part * common) for part in parts]
    whole = [part // gcd(*whole) for part in whole]
    total = sum(whole)
    if total <= count:
        counts = [part * (count // total) for part in whole]
    else:
        ends = [round(count * sum(whole[: at + 1]) / total) for at in range(len(whole))]
        counts = [max(1, end - start) for start, end in zip([0, *ends], ends, strict=False)]
    classes = np.repeat(np.arange(len(weights)), counts)
    return np.random.default_rng(seed_for(seed, "classes")).permutation(classes)


def mixed(make: Callable[[Target], Any], target: Target) -> Wire | Call:
    """Return the driver of a target with a mix. Raises UserError for incompatible classes."""
    classes = classes_of(target.load.mix or "")
    drivers = [
        declared(make(replace(target, settings={**target.settings, **request_class.settings})))
        for request_class in classes
    ]
    kinds = {driver.speaks for driver in drivers}
    if kinds == {"wire"}:
        return MixedWire(classes, cast("list[Wire]", drivers), target.load.turns)
    if kinds != {"call"}:
        raise UserError("mix: its classes are sent in different ways, some from an event loop and some from threads.")
    return MixedCall(classes, cast("list[Call]", drivers), target.load.turns)


@dataclass(kw_only=True, slots=True)
class MixedContent:
    """Content of a mixed body: the body of a class and the number of that class. `wire` caches its bytes."""

    number: int
    body: Body
    wire: bytes | tuple[bytes, ...] | None = None
    asked_units: int = 0


class _Mixed(Driver, Generic[AnyDriver]):
    """Common part of mixed drivers: the kinds of all classes, and bodies in the seeded sequence."""

    def __init__(self, classes: Sequence[RequestClass], drivers: Sequence[AnyDriver], turns: int) -> None:
        self.classes = classes
        self.drivers = drivers
        self.turns = turns
        self.unit = drivers[0].unit
        self.kinds: Sequence[str] = [
            request_class.name if len(driver.kinds) == 1 else f"{request_class.name}/{kind}"
            for request_class, driver in zip(classes, drivers, strict=True)
            for kind in driver.kinds
        ]
        self._sequence: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._usual: dict[int, list[Body]] = {}
        self._first_kinds = np.cumsum([0, *(len(driver.kinds) for driver in drivers)]).tolist()
        if len(self.kinds) > MOST_KINDS:
            raise UserError(
                f"mix: {len(self.kinds)} kinds of request are more than {MOST_KINDS}. Use fewer classes or turns."
            )
        units = {driver.unit for driver in drivers}
        if len(units) > 1:
            raise UserError(f"mix: its classes are counted in different units: {', '.join(sorted(units))}.")

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return about `count` bodies, with the turns of a session adjacent and of one class.

        A class has distinct bodies up to a fair part of what its driver keeps, then repeats them.
        """
        sequence = drawn(
            [request_class.weight for request_class in self.classes],
            max(count // self.turns, len(self.classes)),
            seed,
        )
        sessions = [self._sessions(number, int((sequence == number).sum()), count, seed) for number in self._numbers]
        return [body for number in sequence.tolist() for body in next(sessions[number])]

    def row_body(self, number: int, row: TraceRow, seed: int) -> Body:
        """Return the request for a row of a trace: of the class that it names, else of the seeded sequence.

        If the class's driver makes no requests of recorded lengths, one of its usual bodies.
        """
        if not self._sequence.size:
            self._sequence = drawn([request_class.weight for request_class in self.classes], SEQUENCE, seed)
        which = int(self._sequence[number % len(self._sequence)])
        if row.request_class is not None:
            which = self._numbered(row.request_class)
        driver = self.drivers[which]
        if row.has_lengths and driver.row_body is not None:
            return self.of_class(which, driver.row_body(number, row, seed))
        if which not in self._usual:
            kept = SEQUENCE if driver.body_count is None else driver.body_count
            made = driver.bodies(kept, seed_for(seed, f"class {self.classes[which].name}"))
            self._usual[which] = [self.of_class(which, body) for body in made]
        return self._usual[which][number % len(self._usual[which])]

    def _numbered(self, name: str) -> int:
        names = [request_class.name for request_class in self.classes]
        if name not in names:
            raise UserError(f"trace: its class '{name}' is none of the mix: {', '.join(names)}.")
        return names.index(name)

    @property
    def _numbers(self) -> range:
        return range(len(self.classes))

    def _sessions(self, number: int, needed: int, count: int, seed: int) -> Iterator[list[Body]]:
        """Yield the bodies of a class session by session, without end."""
        driver, turns = self.drivers[number], self.turns
        kept = count if driver.body_count is None else driver.body_count
        wanted = min(needed * turns, max(kept // len(self.classes), min(kept, FEWEST_BODIES)))
        made = driver.bodies(max(1, wanted // turns) * turns, seed_for(seed, f"class {self.classes[number].name}"))
        bodies = [self.of_class(number, body) for body in made]
        at = 0
        while True:
            yield [bodies[(at + turn) % len(bodies)] for turn in range(turns)]
            at += turns

    def of_class(self, number: int, body: Body) -> Body:
        """Return a body of one class as a body of the mix."""
        return Body(content=MixedContent(number=number, body=body), kind=self._first_kinds[number] + body.kind)


class MixedWire(_Mixed[Wire], Wire):
    """A Wire driver that lets each class's driver encode its requests."""

    def __init__(self, classes: Sequence[RequestClass], drivers: Sequence[Wire], turns: int) -> None:
        super().__init__(classes, drivers, turns)
        decoders = {(type(decoder), decoder.streams) for decoder in (driver.decoder() for driver in drivers)}
        if len(decoders) > 1:
            raise UserError("mix: replies of its classes are read in different ways, such as streamed and whole.")
        if len({driver.address() for driver in drivers}) > 1:
            raise UserError("mix: its classes have different addresses.")
        self.tls = drivers[0].tls
        if any(driver.warm is not None for driver in drivers):
            self.warm = self._warm

    def _warm(self, bodies: Iterable[Body]) -> int:
        parts: list[list[Body]] = [[] for _ in self.drivers]
        for body in bodies:
            parts[body.content.number].append(body.content.body)
        return sum(driver.warm(part) for driver, part in zip(self.drivers, parts, strict=True) if driver.warm)

    def address(self) -> tuple[str, int]:
        """Return the host and port common to all classes."""
        return self.drivers[0].address()

    def encode(self, body: Body) -> bytes | tuple[bytes, ...]:
        """Return a request on the wire; the same bytes for the same body of a class."""
        part: MixedContent = body.content
        if part.wire is None:
            part.wire = (driver := self.drivers[part.number]).encode(part.body)
            part.asked_units = driver.asked_units
        self.asked_units = part.asked_units
        return part.wire

    def decoder(self) -> Decoder:
        """Return a decoder for the replies of all classes: that of the class with the largest replies."""
        return max(self.drivers, key=lambda driver: driver.most_units).decoder()


class MixedCall(_Mixed[Call], Call):
    """A Call driver with one session per class in each session."""

    def session(self) -> Session:
        """Return a new session of every class."""
        return _MixedSession([driver.session() for driver in self.drivers])

    def failure(self, error: Exception) -> Failure:
        """Return the category of an exception by the first class's driver: all classes have the same kind of
        driver."""
        return self.drivers[0].failure(error)


class _MixedSession:
    def __init__(self, sessions: Sequence[Session]) -> None:
        self._sessions = sessions

    def call(self, body: Body) -> Reply:
        part: MixedContent = body.content
        return self._sessions[part.number].call(part.body)

    def close(self) -> None:
        for session in self._sessions:
            session.close()


def mixed_quality(
    classes: Sequence[RequestClass],
    settings: Mapping[str, Value],
    ask: Callable[[Mapping[str, Value]], Mapping[str, float]],
) -> dict[str, float]:
    """Return the quality of a mix: `ask` for each class's settings, mean weighted by class."""
    weighted = [
        (request_class.weight, dict(ask({**settings, **request_class.settings}))) for request_class in classes
    ]
    names = dict.fromkeys(name for _, quality in weighted for name in quality)
    means = {}
    for name in names:
        values = [(weight, quality[name]) for weight, quality in weighted if name in quality]
        means[name] = sum(weight * value for weight, value in values) / sum(weight for weight, _ in values)
    return means
