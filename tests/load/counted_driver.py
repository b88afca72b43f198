"""A Call driver that counts its sessions: quality says how many were opened and, in the end, closed."""

import threading
import time
from collections.abc import Mapping, Sequence

from seamark.load.driver import Body, Reply, Target
from seamark.model.sample import Failure

LOCK = threading.Lock()
COUNTS = {"opened": 0.0, "closed": 0.0}
PATIENCE_S = 5.0


def count(name: str) -> None:
    with LOCK:
        COUNTS[name] += 1


class Counted:
    """Each call sleeps for `sleep_s`."""

    unit = "call"
    kinds = ("call",)

    def __init__(self, target: Target) -> None:
        self.sleep_s = float(target.settings.get("sleep_s") or 0)

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        return [Body(content=None)]

    def session(self) -> "CountedSession":
        return CountedSession(self.sleep_s)

    def failure(self, error: Exception) -> Failure:
        return Failure.DRIVER


class CountedSession:
    """Closing it counts, and raises: that is nobody's fault but its own."""

    def __init__(self, sleep_s: float) -> None:
        self.sleep_s = sleep_s
        count("opened")

    def call(self, body: Body) -> Reply:
        time.sleep(self.sleep_s)
        return Reply()

    def close(self) -> None:
        count("closed")
        raise RuntimeError("the server had closed it")


def quality(target: Target, seed: int) -> Mapping[str, float]:
    """Wait until all are closed, but not for ever."""
    until_s = time.monotonic() + PATIENCE_S
    while COUNTS["closed"] < COUNTS["opened"] and time.monotonic() < until_s:
        time.sleep(0.01)
    return dict(COUNTS)
