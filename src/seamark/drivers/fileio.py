"""File I/O by system calls: preadv and pwritev on aligned buffers, and metadata operations (fileio_entries.py).

fileio_files.py creates the files.
"""

import errno
import mmap
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle

import numpy as np

from seamark.drivers import fileio_entries, fileio_files
from seamark.drivers.fileio_entries import EntrySession
from seamark.drivers.fileio_files import PAGE_BYTES, Files
from seamark.errors import UserError
from seamark.load.driver import Body, Call, Hooks, Reply, Target, whole
from seamark.model.sample import Failure
from seamark.model.service import Value

MAX_ORDER = 1 << 22
"""Number of offsets drawn in advance; a thread that has used all starts over."""
POOL_BYTES = 1 << 24
"""Random data that writes are taken from, so that nothing below can compress or share blocks."""

Position = tuple[int, int]
"""A file descriptor and an offset in bytes."""


class FileIo(Call):
    """Reads or writes blocks, or has one metadata operation; each session (thread) has its own files, buffers and
    sequence of offsets.

    Random offsets are one seeded permutation of all blocks, entered by sessions at distant places, so no block
    repeats early. Sequential sessions stream through disjoint regions.
    """

    unit = "operation"

    def __init__(self, target: Target) -> None:
        settings = target.settings
        self.kinds = (str(settings["operation"]),)
        self._target = target
        self._files = Files.of(target)
        self._block_bytes = whole(settings, "block_bytes")
        self._sessions = target.load.concurrency
        self._writes = settings["operation"] == "write"
        self._random = settings["access"] == "random"
        self._order: np.ndarray | None = None
        self._seed = 0
        self._opened = 0
        self._lock = threading.Lock()
        if settings["operation"] in fileio_entries.OPERATIONS:
            self.unit = "entry" if settings["operation"] == "list" else self.unit
            return
        self._fsync = str(settings["fsync"])
        if self._block_bytes > self._files.file_bytes:
            raise UserError(
                f"fileio: block_bytes {self._block_bytes:,} is larger than file_bytes {self._files.file_bytes:,}."
            )
        self._blocks = self._files.count * (self._files.file_bytes // self._block_bytes)
        if self._sessions > self._blocks:
            raise UserError(
                f"fileio: {self._sessions} threads cannot share {self._blocks} blocks without overlap. "
                "Raise `file_bytes` or `files`, or lower `concurrency` or `block_bytes`."
            )
        fileio_files.allow_open_files(self._files.count * -(-self._sessions // target.workers) + 64)
        self._direct = uses_direct(target, self._files, self._block_bytes)
        self._drops = not self._direct and settings["direct"] == "auto" and not self._writes
        # also before direct I/O: dirty pages of an earlier trial would be written under it
        for path in self._files.paths:
            fileio_files.drop_cached(path)

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return bodies without content: each session chooses its own blocks, so they never repeat."""
        self._seed = seed
        if self._random and self.kinds[0] not in fileio_entries.OPERATIONS:
            random = np.random.default_rng(seed)
            if self._blocks <= MAX_ORDER:
                self._order = random.permutation(self._blocks)
            else:
                self._order = random.integers(0, self._blocks, MAX_ORDER)
        return [Body(content=None)] * count

    def session(self) -> "_FileSession | EntrySession":
        """Open the files again: a position and a read-ahead for each thread."""
        with self._lock:
            number = self._target.worker + self._opened * self._target.workers
            self._opened += 1
        place = number % self._sessions
        if self.kinds[0] in fileio_entries.OPERATIONS:
            count = max(1, whole(self._target.settings, "entries", fileio_entries.ENTRIES) // self._sessions)
            order = np.random.default_rng((self._seed, place)).permutation(count) if self._random else range(count)
            return EntrySession(self._files.folder / f"entries-{place}", self.kinds[0], order)
        access = os.O_RDWR if self._writes else os.O_RDONLY
        fds = [os.open(path, access | (os.O_DIRECT if self._direct else 0)) for path in self._files.paths]
        advice = os.POSIX_FADV_RANDOM if self._random else os.POSIX_FADV_SEQUENTIAL
        if not self._direct:
            for fd in fds:
                os.posix_fadvise(fd, 0, 0, advice)
        per_file = self._files.file_bytes // self._block_bytes
        if self._random:
            if self._order is None:
                raise RuntimeError("bodies() draws the order of random offsets: call it before session()")
            start = place * len(self._order) // self._sessions
            positions = _walk(self._order, start, per_file, self._block_bytes, fds)
        else:
            first = place * self._blocks // self._sessions
            after = (place + 1) * self._blocks // self._sessions
            positions = _stream(first, after, per_file, self._block_bytes, fds)
        if self._writes:
            call = _writer(positions, self._block_bytes, each=self._fsync == "each")
        else:
            call = _reader(positions, self._block_bytes, drops=self._drops)
        ends = self._target.data / f"fsync-end-{number}" if self._writes and self._fsync == "end" else None
        return _FileSession(call, fds, ends)

    def failure(self, error: Exception) -> Failure:
        """A full or failing device is the server's error; any other is a bug of the driver."""
        if isinstance(error, OSError) and error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            return Failure.SERVER_ERROR
        return Failure.DRIVER


class _FileSession:
    def __init__(self, call: Callable[[Body], Reply], fds: list[int], ends: "os.PathLike[str] | None") -> None:
        self.call = call
        self._fds = fds
        self._ends = ends

    def close(self) -> None:
        """Close the files; with `fsync: end` write dirty pages and record the time."""
        if self._ends is not None:
            started = time.monotonic()
            for fd in self._fds:
                os.fdatasync(fd)
            with open(self._ends, "w", encoding="ascii") as out:
                out.write(repr(time.monotonic() - started))
        for fd in self._fds:
            os.close(fd)


def _walk(order: np.ndarray, start: int, per_file: int, block_bytes: int, fds: list[int]) -> Iterator[Position]:
    """Yield the blocks of `order` from `start` on, round and round."""
    blocks = order.data
    while True:
        for at in range(start, len(blocks)):
            number, block = divmod(blocks[at], per_file)
            yield fds[number], block * block_bytes
        start = 0


def _stream(first: int, after: int, per_file: int, block_bytes: int, fds: list[int]) -> Iterator[Position]:
    """Yield the blocks from `first` up to `after` in order, round and round."""
    while True:
        for at in range(first, after):
            number, block = divmod(at, per_file)
            yield fds[number], block * block_bytes


def _reader(positions: Iterator[Position], block_bytes: int, *, drops: bool) -> Callable[[Body], Reply]:
    buffers = [memoryview(mmap.mmap(-1, -(-block_bytes // PAGE_BYTES) * PAGE_BYTES))[:block_bytes]]
    good = Reply(bytes_received=block_bytes)
    preadv = os.preadv

    def call(_: Body) -> Reply:
        fd, offset = next(positions)
        if preadv(fd, buffers, offset) == block_bytes:
            return good
        return Reply(units=0, failure=Failure.WRONG_REPLY)

    def call_and_drop(_: Body) -> Reply:
        fd, offset = next(positions)
        got = preadv(fd, buffers, offset)
        page = offset - offset % PAGE_BYTES
        os.posix_fadvise(
            fd, page, -(-(offset + block_bytes - page) // PAGE_BYTES) * PAGE_BYTES, os.POSIX_FADV_DONTNEED
        )
        return good if got == block_bytes else Reply(units=0, failure=Failure.WRONG_REPLY)

    return call_and_drop if drops else call


def _writer(positions: Iterator[Position], block_bytes: int, *, each: bool) -> Callable[[Body], Reply]:
    step = -(-block_bytes // PAGE_BYTES) * PAGE_BYTES
    pool = memoryview(mmap.mmap(-1, max(1, min(64, POOL_BYTES // step)) * step))
    pool[:] = os.urandom(len(pool))  # new in every session, because a device may skip the write of a known block
    blocks = cycle([[pool[at : at + block_bytes]] for at in range(0, len(pool), step)])
    good = Reply(bytes_sent=block_bytes)
    pwritev, fdatasync = os.pwritev, os.fdatasync

    def call(_: Body) -> Reply:
        fd, offset = next(positions)
        if pwritev(fd, next(blocks), offset) != block_bytes:
            return Reply(units=0, failure=Failure.WRONG_REPLY)
        if each:
            fdatasync(fd)
        return good

    return call


def stage(target: Target, seed: int) -> Mapping[str, Value]:
    """Create the files. The facts describe them and how reads avoid the page cache."""
    files = Files.of(target)
    made = fileio_files.make(files, seed)
    alignment = fileio_files.direct_alignment_bytes(files.paths[0])
    cold = (
        f"O_DIRECT (blocks that are multiples of {alignment} bytes); dropped from the page cache before the load"
        if alignment
        else "no O_DIRECT here: dropped from the page cache before the load, and each block after it was read"
    )
    facts: dict[str, Value] = {
        "directory": str(files.folder),
        "files": files.count,
        "file_bytes": files.file_bytes,
        "total_bytes": files.total_bytes,
        "o_direct": alignment is not None,
        "o_direct_alignment_bytes": alignment,
        "cold_reads": cold,
        "page_cache_ratio": fileio_files.cached_ratio(files),
    }
    return facts | fileio_files.lustre_stripes(files.paths[0]) | dict(made)


def quality(target: Target, seed: int) -> Mapping[str, float]:
    """Return the actual mode (o_direct 1 or 0), the ratio of the files in the page cache, and the duration of the
    last sync (the longest of all threads) if there was one. Metadata operations have none of these."""
    if target.settings["operation"] in fileio_entries.OPERATIONS:
        return {}
    files = Files.of(target)
    found = {"o_direct": float(uses_direct(target, files, whole(target.settings, "block_bytes")))}
    ratio = fileio_files.cached_ratio(files)
    if ratio is not None:
        found["page_cache_ratio"] = ratio
    ends = list(target.data.glob("fsync-end-*"))
    if ends:
        found["fsync_end_s"] = max(float(end.read_text(encoding="ascii")) for end in ends)
        for end in ends:
            end.unlink()
    return found


def uses_direct(target: Target, files: Files, block_bytes: int) -> bool:
    """Return whether blocks pass the page cache by O_DIRECT. Raises UserError for `direct: direct` where it is
    refused."""
    wanted = target.settings["direct"]
    if wanted == "cached":
        return False
    allowed = fileio_files.allows_direct(files.paths[0], block_bytes)
    if wanted == "direct" and not allowed:
        raise UserError(
            f"fileio: {files.folder} refuses O_DIRECT with blocks of {block_bytes} bytes. "
            "Set `direct` to auto or cached, or another `directory` or `block_bytes`."
        )
    return allowed


def lacking(settings: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """Yield what `harness: fio` needs and is not there."""
    if settings.get("harness") != "fio":
        return
    if shutil.which("fio") is None:
        yield "harness", "there is no program 'fio' that can be started. Install it (`apt-get install fio`)."
    if settings["access"] == "sequential" and settings["files"] != 1:
        yield "access", "fio streams through one file here. Set 'files: 1', or 'access: random'."


HOOKS = Hooks(stage=stage, quality=quality, lacking=lacking)
