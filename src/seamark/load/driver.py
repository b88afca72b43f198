"""What the load generator asks of a driver: the two Protocols, and the data that pass between them. No code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from seamark.model.failure import Failure
from seamark.model.service import Value


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a driver is made from: where the service is and how this trial's settings are.

    `ports` maps the recipe's port names to numbers; empty for what runs inside the client. `data` is the
    deployment's private folder, which driver and server share on one node.
    """

    settings: Mapping[str, Value]
    data: Path
    host: str = "127.0.0.1"
    ports: Mapping[str, int] = field(default_factory=dict)
    worker: int = 0
    workers: int = 1


@dataclass(frozen=True, kw_only=True)
class Body:
    """One request to make, in the driver's own terms; made before the clock starts. `kind` indexes `kinds`."""

    content: Any
    kind: int = 0


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a Call driver saw. `failure` is set for a reply that came but is not good."""

    units: int = 1
    bytes_sent: int = 0
    bytes_received: int = 0
    status: int = 0
    failure: Failure = Failure.NONE


class Driver(Protocol):
    """What both kinds of driver have. No clock, no retry, no counting."""

    unit: str
    """What one unit of a reply is, singular: reply, operation, transaction, item, token, query."""

    kinds: Sequence[str]
    """Names of the kinds of request this driver makes, such as ('put', 'get')."""

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return `count` seeded bodies (request number i uses bodies[i % count]); called before the clock starts.

        With `turns` in the settings of the target they are whole sessions, turn after turn. A driver may have an
        attribute `body_count`, how many are worth their memory, and a method `row_body` (TracedDriver in trace.py).
        """


class Decoder(Protocol):
    """Takes what arrives on one connection for one request after another."""

    def reset(self) -> None:
        """Make ready for the next reply on the same connection."""

    def feed(self, data: bytes) -> bool:
        """Take bytes as they arrived; return True when the reply is complete."""

    streams: bool
    """Whether a reply comes in parts that count: then it has `events`."""

    units: int
    """Units seen in the current reply; what the server says of them once it has."""

    counted: bool
    """Whether `units` of a good reply are counted. Else they are its parts: the server does not say how many."""

    status: int
    """The protocol's status of the current reply, 0 while unknown."""

    failure: Failure
    """What is wrong with the current reply."""

    keep_alive: bool
    """False when the connection ends with this reply."""


class StreamDecoder(Decoder, Protocol):
    """A decoder whose `streams` is True."""

    events: int
    """Parts of the current reply that brought content; a reply's last moment is that of the last one."""

    answered: bool
    """Whether any of these was of the answer itself, and not of the reasoning before it."""

    first_units: int
    """Units in the first of these parts; 0 where the server does not say."""


class Wire(Driver, Protocol):
    """Bytes out, bytes in, on connections of the generator's own: for protocols where speed matters.

    A driver may have an attribute `tls`, the ssl.SSLContext of its connections (without it they are plain), and
    `most_units`, how many units the largest reply to the requests encoded so far was asked to have.
    """

    def address(self) -> tuple[str, int]:
        """Return host and port to connect to."""

    def encode(self, body: Body) -> bytes | tuple[bytes, ...]:
        """Return the request on the wire; called before the clock starts.

        Several pieces are sent one after another without being joined, so that many requests share a large one.
        """

    def decoder(self) -> Decoder:
        """Return a decoder for one connection."""


class Session(Protocol):
    """One user's connection to the service, used by one thread at a time."""

    def call(self, body: Body) -> Reply:
        """Make one request and wait for its reply; raise what the client library raises."""

    def close(self) -> None:
        """Give back what the session holds."""


class Call(Driver, Protocol):
    """A blocking or library client: psycopg2, faiss, gRPC, vendor SDKs, system calls."""

    def session(self) -> Session:
        """Return a new session; called once for each thread before the clock starts."""

    def failure(self, error: Exception) -> Failure:
        """Return the category of an exception that `call` raised."""


class Preparation(Protocol):
    """Optional functions of a driver's module; each is called in the service's environment.

    `stage` runs before the server starts (a model repository, an index, files); `populate` after it is healthy
    (tables, buckets). Both get the deployment's full settings, must be deterministic in `seed`, and return facts
    worth keeping: sizes in bytes, counts, seconds. `quality` runs after the load's clock has stopped and returns
    what the answers are worth, such as {"recall_at_10": 0.987}.
    """

    def stage(self, target: Target, seed: int) -> Mapping[str, Value]: ...

    def populate(self, target: Target, seed: int) -> Mapping[str, Value]: ...

    def quality(self, target: Target, seed: int) -> Mapping[str, float]: ...
