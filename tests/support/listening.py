"""Bare servers for the tests of the load engine: what is done with a connection is a function of its own."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def listening(answer: Callable[[socket.socket], object], backlog: int | None = None) -> Iterator[int]:
    """Give the port of a server that lets `answer` have each connection in a thread of its own, then closes it."""
    server = socket.create_server(("127.0.0.1", 0), backlog=backlog)

    def attend(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            answer(connection)

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=attend, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield server.getsockname()[1]
    finally:
        server.close()
