"""A burner keeps one resource of a machine busy, for what a service loses beside it: processor, memory or disk."""

import hashlib
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seamark.load.driver import Body, Call, Reply, Session, Target, whole
from seamark.model.sample import Failure

SPAN_BYTES = 64 << 20
"""Two buffers of this size are larger than the caches of most processors."""
BLOCK_BYTES = 1 << 16
"""Hashed at a time: it stays in the cache of one core."""


class Burner(Call):
    """Works on `bytes` in each operation: hashes them (cpu), copies them between buffers larger than caches (memory),
    or writes them to a file and syncs it (disk). The work of an operation is the same however long it takes."""

    unit = "operation"
    body_count = 1

    def __init__(self, target: Target) -> None:
        self.resource = str(target.settings["resource"])
        self.kinds = (self.resource,)
        self._bytes = whole(target.settings, "bytes")
        self._target, self._opened = target, 0

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return the only request, `count` times."""
        return [Body(content=None)] * count

    def session(self) -> Session:
        """Return one that works by itself, with buffers or a file that no other has."""
        if self.resource == "cpu":
            return _Hashing(self._bytes)
        if self.resource == "memory":
            return _Copying(self._bytes)
        self._opened += 1
        folder = self._target.data
        folder.mkdir(parents=True, exist_ok=True)
        return _Writing(folder / f"burner-{self._target.worker}-{self._opened}", self._bytes)

    def failure(self, error: Exception) -> Failure:
        """A full or failing disk is the server's error."""
        return Failure.SERVER_ERROR if isinstance(error, OSError) else Failure.DRIVER


class _Hashing:
    def __init__(self, size: int) -> None:
        self._block = bytes(BLOCK_BYTES)
        self._rounds, rest = divmod(size, BLOCK_BYTES)
        self._rest = self._block[:rest]
        self._reply = Reply(bytes_sent=size)

    def call(self, body: Body) -> Reply:
        digest = hashlib.sha256()
        for _ in range(self._rounds):
            digest.update(self._block)  # releases the interpreter lock
        digest.update(self._rest)
        return self._reply

    def close(self) -> None:
        pass


class _Copying:
    def __init__(self, size: int) -> None:
        self._size = min(size, SPAN_BYTES)
        self._from, self._to = (np.ones(SPAN_BYTES, np.uint8) for _ in range(2))
        self._at = 0
        self._reply = Reply(bytes_sent=self._size)

    def call(self, body: Body) -> Reply:
        if self._at + self._size > SPAN_BYTES:
            self._at = 0
        part = slice(self._at, self._at + self._size)
        np.copyto(self._to[part], self._from[part])  # releases the interpreter lock
        self._at += self._size
        return self._reply

    def close(self) -> None:
        pass


class _Writing:
    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._buffer = mmap.mmap(-1, size)
        self._buffer[:] = os.urandom(size)
        self._reply = Reply(bytes_sent=size)

    def call(self, body: Body) -> Reply:
        os.pwrite(self._fd, self._buffer, 0)
        os.fdatasync(self._fd)
        return self._reply

    def close(self) -> None:
        os.close(self._fd)
        self._path.unlink(missing_ok=True)
