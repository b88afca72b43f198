"""The signs that keeper, load and scripts give each other: heartbeat, lease, stop, end. Only files.

Each is a file in a deployment's `.keeper/` folder on the shared file system, so all of it works across nodes. On
the node where a keeper runs, its age is told by the monotonic clock: a step of the wall clock ends nothing.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from seamark.dispatch.identity import allocation, boot_id, node
from seamark.storage.paths import DeploymentFolder, read_json, write_json

STALE_S = 10.0
"""A keeper on another node whose last heartbeat seems older than this is looked at twice."""

DEAD_S = 120.0
"""Clocks of nodes do not disagree so much: an older heartbeat of another node needs no second look."""

HUNG_S = 60.0
"""A keeper on this node that is there but has not beaten for so long counts as gone."""

HEARTBEAT_INTERVAL_S = 1.0


@dataclass(frozen=True, kw_only=True)
class ControlFiles:
    """The files of one deployment's keeper."""

    root: Path

    @property
    def lock(self) -> Path:
        """Held by the keeper and its guard for as long as either lives."""
        return self.root / "keeper.lock"

    @property
    def serve_lock(self) -> Path:
        """Held by whoever is starting this deployment."""
        return self.root / "serve.lock"

    @property
    def heartbeat(self) -> Path:
        """Who keeps the server and when it last said so; gone when everything has ended."""
        return self.root / "beat.json"

    @property
    def lease(self) -> Path:
        """Touched by every phase that still needs the server."""
        return self.root / "lease"

    @property
    def stop_request(self) -> Path:
        return self.root / "stop.json"

    @property
    def exit_record(self) -> Path:
        """Why the server ended; written as soon as that is known, before everything is cleaned up."""
        return self.root / "end.json"

    @property
    def answer(self) -> Path:
        """What the keeper has to say of its start: the content of endpoint.json."""
        return self.root / "answer.json"

    @property
    def published(self) -> Path:
        """There when endpoint.json is; from then on its removal ends the server."""
        return self.root / "published"

    @property
    def ports(self) -> Path:
        """The ports that were chosen, before the server is started."""
        return self.root / "ports.json"

    @property
    def log(self) -> Path:
        return self.root / "keeper.log"


def control_files_of(folder: DeploymentFolder) -> ControlFiles:
    """Return the files of the folder's keeper."""
    return ControlFiles(root=Path(os.path.realpath(folder.runtime)))  # Path.resolve raises for a loop of links


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """One heartbeat. `allocation` is the batch job in which the keeper runs, None outside of one."""

    pid: int
    node: str
    boot: str
    allocation: str | None
    monotonic_ns: int


def write_heartbeat(control: ControlFiles, pid: int) -> None:
    """Say that the keeper `pid` lives. Not synced to disk: after a crash it means nothing."""
    beat = {
        "pid": pid,
        "node": node(),
        "boot": boot_id(),
        "allocation": allocation(),
        "monotonic_ns": time.monotonic_ns(),
    }
    temporary = control.heartbeat.with_name(".beat.tmp")
    temporary.write_text(json.dumps(beat))
    temporary.replace(control.heartbeat)


def read_heartbeat(control: ControlFiles) -> Heartbeat | None:
    """Return the last heartbeat, None when there is none that can be read."""
    document = read_control_file(control.heartbeat)
    try:
        return Heartbeat(**document) if document else None
    except TypeError:
        return None


def is_alive(control: ControlFiles) -> bool:
    """Return whether a keeper still lives here or on another node.

    On another node its heartbeat must be young; one that seems old, perhaps because the clocks of the nodes
    disagree, is watched for up to three heartbeats before it counts as gone.
    """
    beat = read_heartbeat(control)
    if beat is None:
        return False
    if beat.boot == boot_id():
        return _runs(beat.pid) and time.monotonic_ns() - beat.monotonic_ns < HUNG_S * 1e9
    seen_ns = modified_ns(control.heartbeat)
    if seen_ns is None:
        return False
    age_s = abs(time.time() - seen_ns / 1e9)
    if STALE_S <= age_s < DEAD_S:
        return _changes(control.heartbeat, seen_ns, 3 * HEARTBEAT_INTERVAL_S)
    return age_s < STALE_S


def _changes(path: Path, seen_ns: int, within_s: float) -> bool:
    """Return whether a file is written anew (and not removed) within some seconds."""
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        time.sleep(0.1)
        if (now_ns := modified_ns(path)) != seen_ns:
            return now_ns is not None
    return False


def _runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def touch(path: Path) -> None:
    """Make the file, or make it newer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def modified_ns(path: Path) -> int | None:
    """Return when the file was last written, None when there is none.

    It is opened for that: a network file system may answer a bare stat from its cache, for up to a minute.
    """
    try:
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None


def read_control_file(path: Path) -> dict[str, Any] | None:
    """Return a JSON object, None when it is missing or damaged."""
    try:
        return read_json(path)
    except (OSError, ValueError):
        return None


def write_control_file(path: Path, document: Mapping[str, Any]) -> None:
    """Write a sign, whole; on a full disk an empty one, which is room enough to be seen."""
    try:
        write_json(path, document)
    except OSError:
        with contextlib.suppress(OSError):
            path.touch()


def open_lock_file(path: Path) -> TextIO:
    """Return a file to be locked, made if need be; never through a link. One that another user made is locked by
    whoever may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return open(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | flags, 0o666), "a+")
    except PermissionError:
        return open(os.open(path, os.O_RDONLY | flags))


def acquire_lock(path: Path, *, wait_s: float = 0.0) -> TextIO | None:
    """Return the locked file, None when someone else holds it after `wait_s`.

    A file system that knows no locks gives the file all the same: the heartbeat then is all that protects.
    """
    file = open_lock_file(path)
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if time.monotonic() >= deadline:
                file.close()
                return None
            time.sleep(0.05)
        except OSError:
            return file
