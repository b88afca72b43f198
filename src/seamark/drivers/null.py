"""Null drivers: measure the generator itself, over real sockets and without any. No service."""

from collections.abc import Sequence

from seamark.load.driver import Body, Call, Decoder, Reply, Session, Target, Wire, whole
from seamark.load.engine.http import HttpDecoder, http_request
from seamark.model.sample import Failure

DONE = Reply()


class Null(Wire):
    """Asks the null server for its one reply over HTTP/1.1, for each of `items` in a finite load."""

    unit = "reply"
    kinds: Sequence[str] = ("get",)
    body_count = 1

    def __init__(self, target: Target) -> None:
        self._target = target
        self.work_count = whole(target.settings, "items", 0) or None

    def address(self) -> tuple[str, int]:
        """Return host and port of the server."""
        return self._target.host, self._target.ports["main"]

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return the only request, `count` times."""
        return [Body(content=b"")] * count

    def encode(self, body: Body) -> bytes:
        """Return the request on the wire; called before the clock starts."""
        return http_request("GET", "/", host="null")

    def decoder(self) -> Decoder:
        """Return a decoder for one connection."""
        return HttpDecoder()


class NullCall(Call):
    """Answers at once, in this process: the cost of a Call driver's frame and nothing else. A finite load has
    `items`."""

    unit = "reply"
    kinds: Sequence[str] = ("call",)
    body_count = 1

    def __init__(self, target: Target) -> None:
        self.work_count = whole(target.settings, "items", 0) or None

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return the only request, `count` times."""
        return [Body(content=None)] * count

    def session(self) -> Session:
        """Return a session without state."""
        return _NullSession()

    def failure(self, error: Exception) -> Failure:
        """Nothing can fail."""
        return Failure.DRIVER


class _NullSession:
    def call(self, body: Body) -> Reply:
        return DONE

    def close(self) -> None:
        pass
