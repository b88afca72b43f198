"""Workers that are started before it is known what they will measure: they import while their parent still reads.

Imports nothing heavy itself: it is the first thing that a load does.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

OUTSIDE = Path(__file__).resolve().parents[1] / "outside.py"


@dataclass(frozen=True, kw_only=True)
class Standby:
    """A worker process that waits for its share, and the file that takes what it writes to stderr."""

    process: "subprocess.Popen[bytes]"
    errors: Path


def start_worker(python: Path | None, errors: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    """Start a worker in the interpreter `python` (None: this one), its two pipes open."""
    with errors.open("wb") as log:
        return subprocess.Popen(
            [str(python or sys.executable), str(OUTSIDE), "seamark.load.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
        )


def stand_by(python: Path | None, driver: str, parts: Path, many: int) -> list[Standby]:
    """Start `many` workers that import the driver's module and wait for their shares."""
    parts.mkdir(parents=True, exist_ok=True)
    module = driver.partition(":")[0]
    waiting = []
    for k in range(many):
        errors = parts / f"standby-{k}.log"
        waiting.append(Standby(process=start_worker(python, errors, "--stand-by", module), errors=errors))
    return waiting
