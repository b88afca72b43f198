"""A pool of connections: fewer connections than users of a load, lent for one request each."""

import contextlib
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from seamark.load.driver import Body, Reply, Session
from seamark.load.engine.threads import LOST_SESSION


class PoolTimeoutError(Exception):
    """No connection was free within the time-out of a request."""


class Pool:
    """The connections of one worker, and the session of each of its users. A request waits for a free connection, and
    its latency contains that; a lost connection is replaced by the next request that takes its place."""

    def __init__(self, connect: Callable[[], Session], size: int, timeout_s: float) -> None:
        self._connect = connect
        self._size = size
        self._timeout_s = timeout_s
        self._free: SimpleQueue[Session | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._made = self._users = 0

    def join(self) -> "Pool":
        """Add a user; connect, as long as connections are missing. Raises what connecting raises."""
        with self._lock:
            if self._made < self._size:
                self._free.put(self._connect())
                self._made += 1
            self._users += 1
        return self

    def call(self, body: Body) -> Reply:
        """Make one request on a free connection. Raises PoolTimeoutError."""
        try:
            connection = self._free.get(timeout=self._timeout_s)
        except Empty:
            raise PoolTimeoutError(f"no connection of {self._size} was free in {self._timeout_s:g} s") from None
        try:
            connection = connection or self._connect()
            reply = connection.call(body)
            if reply.failure in LOST_SESSION:
                _close(connection)
                connection = None
        except Exception:
            _close(connection)
            connection = None
            raise
        finally:
            self._free.put(connection)
        return reply

    def close(self) -> None:
        """Remove a user; the last one closes the connections."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            self._made = 0
            with contextlib.suppress(Empty):
                while True:
                    _close(self._free.get_nowait())


def _close(connection: Session | None) -> None:
    if connection is not None:
        with contextlib.suppress(Exception):
            connection.close()
