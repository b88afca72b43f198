"""Files for file I/O: their place, their creation, and their ratio in the page cache.

Independent of loads: fileio.py reads and writes these files.
"""

import ctypes
import errno
import mmap
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seamark.errors import SiteError, UserError
from seamark.load.driver import Target, whole
from seamark.model.service import Value

PAGE_BYTES = mmap.PAGESIZE
PIECE_BYTES = 1 << 24
SPARE_BYTES = 1 << 28
"""Left free on the file system, so that results can still be written."""

LUSTRE = {"stripe_count": "--stripe-count", "stripe_size_bytes": "--stripe-size", "stripe_offset": "--stripe-index"}
"""Facts of a file on Lustre, with the option of `lfs getstripe` that prints each."""


@dataclass(frozen=True, kw_only=True)
class Files:
    """Some files of one size in one folder."""

    folder: Path
    count: int
    file_bytes: int

    @staticmethod
    def of(target: Target) -> "Files":
        """Return the files of a deployment. In a folder of the user's they are named by size, to be used again."""
        count, file_bytes = whole(target.settings, "files"), whole(target.settings, "file_bytes")
        directory = target.settings.get("directory")
        if directory is None:
            return Files(folder=target.data / "files", count=count, file_bytes=file_bytes)
        root = Path(os.path.expandvars(str(directory))).expanduser()
        return Files(folder=root / f"seamark-fileio-{file_bytes}", count=count, file_bytes=file_bytes)

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(self.folder / f"file-{number:04d}" for number in range(self.count))

    @property
    def total_bytes(self) -> int:
        return self.count * self.file_bytes


def make(files: Files, seed: int) -> Mapping[str, Value]:
    """Create the missing files, with random data, on the device and out of the page cache.

    Returns seconds and bytes written. Raises SiteError if the folder cannot be created or has too little space.
    """
    started = time.monotonic()
    try:
        files.folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise SiteError(f"fileio: cannot make the folder {files.folder}: {cause.strerror}.") from cause
    missing = [
        (number, path)
        for number, path in enumerate(files.paths)
        if not path.exists() or path.stat().st_size != files.file_bytes
    ]
    needed, free = len(missing) * files.file_bytes, shutil.disk_usage(files.folder).free
    if missing and needed + SPARE_BYTES > free:
        raise SiteError(
            f"fileio: {files.folder} has {free:,} bytes free; {len(missing)} files of {files.file_bytes:,} bytes "
            f"and {SPARE_BYTES:,} to spare do not fit. Lower `file_bytes` or `files`, or set another `directory`."
        )
    for number, path in missing:
        _write(path, files.file_bytes, seed + number)
    for path in files.paths:
        drop_cached(path)
    return {"bytes_written": needed, "make_s": round(time.monotonic() - started, 3)}


def _write(path: Path, size_bytes: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as out:
            for at in range(0, size_bytes, PIECE_BYTES):
                out.write(random.bytes(min(PIECE_BYTES, size_bytes - at)))
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    except OSError as cause:
        raise SiteError(f"fileio: cannot write {path}: {cause.strerror}.") from cause
    finally:
        temporary.unlink(missing_ok=True)


def drop_cached(path: Path) -> None:
    """Take a file out of the page cache: dirty pages are written first, for only clean ones can be dropped."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def allows_direct(path: Path, block_bytes: int) -> bool:
    """Return whether the file system reads `block_bytes` at a time past the page cache (O_DIRECT)."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as cause:
        if cause.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return False
        raise
    try:
        with mmap.mmap(-1, max(block_bytes, PAGE_BYTES)) as memory, memoryview(memory)[:block_bytes] as block:
            return os.preadv(fd, [block], block_bytes if os.fstat(fd).st_size >= 2 * block_bytes else 0) > 0
    except OSError as cause:
        if cause.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return False
        raise
    finally:
        os.close(fd)


def direct_alignment_bytes(path: Path) -> int | None:
    """Return the smallest block of O_DIRECT on that file, or None if it refuses O_DIRECT."""
    return next((size for size in (512, 4096) if allows_direct(path, size)), None)


def lustre_stripes(path: Path) -> dict[str, Value]:
    """Return number, size and first target of a file's stripes by `lfs`, nothing where it is no file of Lustre."""
    found: dict[str, Value] = {}
    for name, option in LUSTRE.items():
        try:
            done = subprocess.run(["lfs", "getstripe", option, str(path)], capture_output=True, check=False)
        except FileNotFoundError:
            return {}
        if done.returncode:
            return {}
        found[f"lustre_{name}"] = int(done.stdout)
    return found


def cached_ratio(files: Files) -> float | None:
    """Return the ratio of the files' pages in the page cache (mincore), or None if unknown."""
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    resident = pages = 0
    for path in files.paths:
        for at in range(0, files.file_bytes, 1 << 30):
            length = min(1 << 30, files.file_bytes - at)
            with path.open("rb") as file, _mapped(file.fileno(), at, length) as address:
                seen = np.empty(-(-length // PAGE_BYTES), dtype=np.uint8)
                if mincore(address, length, seen.ctypes.data) != 0:
                    return None
            resident += int((seen & 1).sum())
            pages += len(seen)
    return resident / pages


@contextmanager
def _mapped(fd: int, at: int, length: int) -> Iterator[int]:
    """Return the address of a private mapping; mapping alone reads nothing."""
    with mmap.mmap(fd, length, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE, offset=at) as memory:
        first = ctypes.c_char.from_buffer(memory)
        try:
            yield ctypes.addressof(first)
        finally:
            del first


def allow_open_files(wanted: int) -> None:
    """Raise this process's limit of open files if need be, as far as it may; raise UserError beyond."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if wanted <= soft:
        return
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise UserError(
            f"fileio: {wanted} files would be open at once (files x concurrency), {hard} are allowed (ulimit -n). "
            "Lower `files` or `concurrency`."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
