"""The list of units that lanes of one run claim from, in a folder: an atomic rename claims, a lock shows who lives.

A unit is one file that moves from `waiting` to `running` to `done`. The lane that has claimed it holds a lock on it,
which the kernel releases when the lane is killed: the next claim then returns the unit to the list.
"""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from seamark.dispatch.order import Order, Unit, UnitState
from seamark.storage.documents import read, write

STATES: tuple[UnitState, ...] = get_args(UnitState)
KILLED = "killed"
"""Folder of units whose lanes were killed, each a file with a byte for every such lane."""
LIST = "units.json"
CHOOSING = ".choosing.lock"
CLAIMS = "SEAMARK_CLAIMS"
"""Environment variable of what runs in a lane: the folder of the list."""


@dataclass(frozen=True, kw_only=True)
class UnitList:
    """units.json: the units of a run in the order of the plan."""

    units: tuple[Unit, ...]
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A unit that this process has claimed. It is held until it is done, or this process ends."""

    unit: Unit
    file: int


class ClaimList:
    """The list of a run's units, shared by its lanes on one node."""

    def __init__(self, root: Path, units: Sequence[Unit]) -> None:
        self.root = root
        self._units = {unit.id: unit for unit in units}

    @classmethod
    def make(cls, root: Path, units_now: Callable[[], Sequence[Unit]]) -> "ClaimList":
        """Write a list of waiting units into a folder, unless one is there: its states stay."""
        for state in (*STATES, KILLED):
            (root / state).mkdir(parents=True, exist_ok=True)
        with _locked(root / CHOOSING):
            if not (root / LIST).exists():
                for unit in (units := tuple(units_now())):
                    (root / "waiting" / unit.id).touch()
                write(root / LIST, UnitList(units=units))
        return cls.open(root)

    @classmethod
    def open(cls, root: Path) -> "ClaimList":
        """Read the list in a folder. Raises FileNotFoundError without one."""
        return cls(root, read(root / LIST, UnitList).units)

    def claim(self, order: Order) -> Claim | None:
        """Claim the next unit by an order, None while none may begin.

        One lane chooses at a time, so that an order which counts running units (window) counts all of them.
        """
        with _locked(self.root / CHOOSING):
            self._return_dead()
            chosen = order.next_of(self.units())
            if chosen is None:
                return None
            file = os.open(self._path(chosen.id, "waiting"), os.O_RDWR | os.O_CLOEXEC)
            _lock(file, fcntl.LOCK_EX)
            os.ftruncate(file, 0)  # it may have begun in a lane that was killed
            self._path(chosen.id, "waiting").rename(self._path(chosen.id, "running"))
        return Claim(unit=replace(chosen, state="running"), file=file)

    def begin(self, claim: Claim) -> None:
        """Note that a claimed unit has a device, and begins."""
        os.write(claim.file, b"+")

    def finish(self, claim: Claim) -> None:
        """Mark a claimed unit as done."""
        with _locked(self.root / CHOOSING):
            running = self._path(claim.unit.id, "running")
            os.utime(running)  # when it ended, for `ran_beside`
            running.rename(self._path(claim.unit.id, "done"))
        os.close(claim.file)

    def units(self) -> tuple[Unit, ...]:
        """Return every unit with its present state, in the order of the plan."""
        states: dict[str, UnitState] = {name: state for state in STATES for name in self._names(state)}
        killed = {name: self._path(name, KILLED).stat().st_size for name in self._names(KILLED)}
        return tuple(
            replace(unit, state=states.get(unit.id, unit.state), killed_lanes=killed.get(unit.id, 0))
            for unit in self._units.values()
        )

    def ended(self) -> bool:
        """Return whether every unit is done."""
        with _locked(self.root / CHOOSING):
            return not self._names("waiting") and not self._names("running")

    def _return_dead(self) -> None:
        """Return units of killed lanes to the list."""
        for name in self._names("running"):
            file = os.open(self._path(name, "running"), os.O_RDWR | os.O_CLOEXEC)
            try:
                with suppress(BlockingIOError):
                    if _lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
                        with self._path(name, KILLED).open("ab") as count:
                            count.write(b"+")
                        self._path(name, "running").rename(self._path(name, "waiting"))
            finally:
                os.close(file)

    def _names(self, state: str) -> list[str]:
        with os.scandir(self.root / state) as entries:
            return [entry.name for entry in entries]

    def _path(self, unit: str, state: str) -> Path:
        return self.root / state / unit


def ran_beside(own: str, since_unix_s: float) -> tuple[str, ...]:
    """Return the units of other lanes of this run that have run since a time; none outside of a lane."""
    folder = os.environ.get(CLAIMS)
    if not folder:
        return ()
    root = Path(folder)
    with _locked(root / CHOOSING), os.scandir(root / "running") as running, os.scandir(root / "done") as done:
        found = {entry.name for entry in running if entry.stat().st_size}  # others wait for a device
        found |= {entry.name for entry in done if entry.stat().st_mtime >= since_unix_s}
    return tuple(sorted(found - {own}))


def _lock(file: int, operation: int) -> bool:
    """Lock an open file; return False on a file system without locks, where no claim is ever taken for dead."""
    try:
        fcntl.flock(file, operation)
    except OSError as cause:
        if cause.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):
            return False
        raise
    return True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _lock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
