"""Metadata operations of file I/O: empty files of one session in a folder of its own, and one call for each."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import cycle
from pathlib import Path

from seamark.load.driver import Body, NoMoreRequests, Reply
from seamark.model.sample import Failure

OPERATIONS = ("create", "stat", "open", "unlink", "list")
ONCE = ("create", "unlink")
"""Operations that are possible once for each file: a session without files left ends the load."""
ENTRIES = 10_000
"""Files of a load whose setting `entries` is not set."""


class EntrySession:
    """Files of one session, made before the clock starts (none for `create`) and removed when it ends.

    `order` has their numbers in the order of the operations. One `list` reads the whole folder, and its units are
    entries. `create` and `open` close the file again, as mdtest does.
    """

    def __init__(self, folder: Path, operation: str, order: Iterable[int]) -> None:
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)  # of a killed load
        folder.mkdir(parents=True)
        paths = [f"{folder}/{number:08d}" for number in order]
        if operation != "create":
            for path in paths:
                _create(path)
        if operation == "list":
            self.call = _listing(folder, len(paths))
        else:
            self.call = _acting(ACTS[operation], iter(paths) if operation in ONCE else cycle(paths))

    def close(self) -> None:
        """Remove the files."""
        shutil.rmtree(self._folder)


def _acting(act: Callable[[str], object], paths: Iterator[str]) -> Callable[[Body], Reply]:
    good = Reply()

    def call(_: Body) -> Reply:
        path = next(paths, None)
        if path is None:
            raise NoMoreRequests
        act(path)
        return good

    return call


def _listing(folder: Path, count: int) -> Callable[[Body], Reply]:
    good = Reply(units=count)

    def call(_: Body) -> Reply:
        with os.scandir(folder) as entries:
            found = sum(1 for _ in entries)
        return good if found == count else Reply(units=0, failure=Failure.WRONG_REPLY)

    return call


def _create(path: str) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def _open(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


ACTS: Mapping[str, Callable[[str], object]] = {"create": _create, "stat": os.stat, "open": _open, "unlink": os.unlink}
