"""Truth file of the reference server: a JSON line per request, written while it runs. truth.py reads it."""

import os
from pathlib import Path
from typing import Literal, get_args

Outcome = Literal["good", "empty", "error", "reset", "silent", "lost", "unfinished"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""End of a request: answered, answered without tokens, status 503, connection reset by the server, no answer, client
disconnected before the end, server ended before the end."""

PIECE_BYTES = 1 << 16


class Journal:
    """Collects lines and writes them in pieces too small to delay replies."""

    def __init__(self, path: Path) -> None:
        """Create the file. Raises OSError."""
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._lines: list[str] = []
        self._length = 0

    def add(
        self,
        *,
        name: str,
        number: int,
        read_ns: int,
        due_ns: int,
        first_ns: int,
        answer_ns: int,
        last_ns: int,
        chunks: int,
        tokens: int,
        outcome: Outcome,
    ) -> None:
        """Add one request. `name` is a JSON string, or "" for the number; a time of 0 means none."""
        line = (
            f'{{"id": {name or number}, "number": {number}, "read_ns": {read_ns}, "due_ns": {due_ns or "null"}, '
            f'"first_ns": {first_ns or "null"}, "answer_ns": {answer_ns or "null"}, '
            f'"last_ns": {last_ns or "null"}, "chunks": {chunks}, "tokens": {tokens}, "outcome": "{outcome}"}}\n'
        )
        self._lines.append(line)
        self._length += len(line)
        if self._length > PIECE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the collected lines."""
        if self._lines:
            data = "".join(self._lines).encode()
            self._lines.clear()
            self._length = 0
            while data:
                data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Write the rest and close the file."""
        self.flush()
        os.close(self._fd)
