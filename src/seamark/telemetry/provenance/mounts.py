"""File systems of the paths of a trial: type, options, free space, and Lustre's stripes."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from seamark.model.results.trial_meta import FileSystem, Stripes
from seamark.telemetry.kernel_files import ROOT, output_of, read_text

WAIT_S = 5.0


def mounts(paths: Mapping[str, Path], root: Path = ROOT) -> dict[str, FileSystem]:
    """Return the file system of each path, by role; for a missing path, of its nearest existing parent. On Lustre
    with its stripes by `lfs getstripe`."""
    table = mount_table(root)
    return {role: _file_system(path, table) for role, path in paths.items()}


def mount_table(root: Path = ROOT) -> list[FileSystem]:
    """Return all mounts of /proc/self/mountinfo in the order of mounting."""
    table = []
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        before, _, behind = line.partition(" - ")
        left, right = before.split(), behind.split()
        if len(left) >= 6 and len(right) >= 2:
            options = ",".join(dict.fromkeys(f"{left[5]},{right[2] if len(right) > 2 else ''}".strip(",").split(",")))
            point, source = _plain(left[4]), _plain(right[1])
            table.append(FileSystem(mount=point, type=right[0], source=source, options=options))
    return table


def _plain(word: str) -> str:
    """Return a path without the kernel's octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda escape: chr(int(escape.group(1), 8)), word)


def _file_system(path: Path, table: list[FileSystem]) -> FileSystem:
    existing = next((candidate for candidate in (path, *path.parents) if candidate.exists()), path).resolve()
    candidates = [mount for mount in table if existing.is_relative_to(str(mount.mount))]
    # of several at one point the last one: it hides the others
    mount = max(reversed(candidates), key=lambda mount: len(Path(str(mount.mount)).parts), default=FileSystem())
    return replace(
        mount,
        path=str(path),
        free_bytes=_free_bytes(existing),
        stripes=stripes(existing) if mount.type == "lustre" else None,
    )


def _free_bytes(path: Path) -> int | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def stripes(path: Path) -> Stripes | None:
    """Return count, size in bytes and pool of a Lustre folder's stripes; None if lfs fails.

    Of a layout with several components, those of the first; `components` is their number.
    """
    output = output_of("lfs", "getstripe", "-d", path, within_s=WAIT_S) or ""
    counts, sizes = _figures("stripe_count", output), _figures("stripe_size", output)
    if not counts:
        return None
    pool = re.search(r"pool:\s*(\S+)", output)
    return Stripes(
        count=counts[0],
        size_bytes=sizes[0] if sizes else None,
        pool=pool.group(1) if pool else None,
        components=len(counts),
    )


def _figures(name: str, output: str) -> list[int]:
    return [int(value) for value in re.findall(rf"{name}:\s*(-?\d+)", output)]
