"""Processes that tests run beside themselves, such as the daemons of a cluster: started, waited for, ended."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import psutil

END_S = 10.0
Value = TypeVar("Value")


@contextmanager
def running(
    command: list[str], log: Path, environment: Mapping[str, str] = os.environ
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process whose output is added to `log`; end it afterwards."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(environment)
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(there: Callable[[], Value], said: Path | Callable[[], object] = str, within_s: float = 60.0) -> Value:
    """Return the first true value of a condition; after that long fail with the end of the log or of what is said."""
    limit_s = time.monotonic() + within_s
    while not (value := there()):
        if time.monotonic() > limit_s:
            text = said.read_text(errors="replace") if isinstance(said, Path) else str(said())
            raise AssertionError(f"{there} did not come true within {within_s} s: {text[-2000:]}")
        time.sleep(0.1)
    return value


def eventually(true: Callable[[], object], within_s: float = 10.0) -> bool:
    """Return whether something comes true in time."""
    limit_s = time.monotonic() + within_s
    while not true():
        if time.monotonic() > limit_s:
            return False
        time.sleep(0.02)
    return True


def load_workers() -> list[psutil.Process]:
    """Return the live processes of loads that this process has started."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # one that has ended, and nobody has waited for
            if "seamark.load" in " ".join(child.cmdline()):
                found.append(child)
    return found


def load_worker(number: str) -> psutil.Process:
    """Return the worker of a load that has this number."""
    return next(child for child in load_workers() if child.cmdline()[-1] == number)


def autogroup(pid: int) -> int:
    """Return the niceness of a process's session."""
    return int(Path(f"/proc/{pid}/autogroup").read_text().split()[-1])


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment with which a process was started."""
    words = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)
