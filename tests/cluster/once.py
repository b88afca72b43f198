"""What two test runs of one machine must not install at the same time."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(made: Path) -> Iterator[None]:
    """Wait until nobody else makes this file or folder, and hold them off."""
    made.parent.mkdir(parents=True, exist_ok=True)
    with made.with_name(f".{made.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
