"""The null server's streams: a reply of the OpenAI API that is always the same, a piece a turn. No clock."""

import asyncio

from seamark.testservers.reference.behaviour import Behaviour
from seamark.testservers.reference.request import Ask
from seamark.testservers.reference.wire import LAST_CHUNK, STREAM_HEAD, Events, framed


class Streams:
    """Writes the next `joined` events of every stream under way in each turn.

    A reply has `chunks` events, each with a token. Turns follow each other at once, or `turn_s` apart: then a client
    that keeps up reads each piece by itself, as from a server that generates for many at once.
    """

    def __init__(self, chunks: int, joined: int = 1, turn_s: float = 0.0) -> None:
        events = Events(Behaviour())
        last = events.content(False, 0, 1, False, "length")
        usage = events.usage(Ask(endpoint="completions", prompt_tokens=1), chunks, 0)
        self._pieces = max(1, chunks // joined)
        self._turn_s = turn_s
        self._begin = STREAM_HEAD + framed(events.role(False, 0))
        self._piece = framed(events.content(False, 0, 1, False, None)) * joined
        rest = chunks - joined * (self._pieces - 1) - 1
        self._end = (
            framed(events.content(False, 0, 1, False, None)) * rest
            + b"".join(map(framed, (last, usage, events.done)))
            + LAST_CHUNK
        )
        self._left: dict[asyncio.Transport, int] = {}
        self._held: dict[asyncio.Transport, int] = {}
        self._turns = False

    def begin(self, transport: asyncio.Transport) -> None:
        """Begin a reply."""
        transport.write(self._begin)
        self._put(transport, self._pieces)

    def hold(self, transport: asyncio.Transport) -> None:
        """Write nothing to one that does not read, until `go_on`."""
        if transport in self._left:
            self._held[transport] = self._left.pop(transport)

    def go_on(self, transport: asyncio.Transport) -> None:
        """Write to it again."""
        if transport in self._held:
            self._put(transport, self._held.pop(transport))

    def end(self, transport: asyncio.Transport) -> None:
        """Forget a connection that is lost."""
        self._left.pop(transport, None)
        self._held.pop(transport, None)

    def _put(self, transport: asyncio.Transport, left: int) -> None:
        self._left[transport] = left
        if not self._turns:
            self._turns = True
            self._next()

    def _next(self) -> None:
        loop = asyncio.get_running_loop()
        if self._turn_s:
            loop.call_later(self._turn_s, self._turn)
        else:
            loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Write a piece to each; `write` may hold a transport meanwhile."""
        for transport, left in list(self._left.items()):
            if left > 1:
                self._left[transport] = left - 1
                transport.write(self._piece)
            else:
                del self._left[transport]
                transport.write(self._end)
        self._turns = bool(self._left)
        if self._turns:
            self._next()
