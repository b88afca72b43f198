"""A driver inside the client whose calls take a known CPU time, a known sleep, or both. Test only."""

import time
from collections.abc import Sequence

from seamark.load.driver import Body, Call, Reply, Session, Target
from seamark.model.sample import Failure


class Working(Call):
    """Each call works for `work_ms` of CPU time, then sleeps for `sleep_ms`."""

    unit = "reply"
    kinds: Sequence[str] = ("call",)
    body_count = 1

    def __init__(self, target: Target) -> None:
        self.work_s = float(target.settings["work_ms"] or 0) / 1e3
        self.sleep_s = float(target.settings["sleep_ms"] or 0) / 1e3

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        return [Body(content=None)] * count

    def session(self) -> Session:
        return _Session(self)

    def failure(self, error: Exception) -> Failure:
        return Failure.PROTOCOL


class _Session(Session):
    def __init__(self, driver: Working) -> None:
        self.driver = driver

    def call(self, body: Body) -> Reply:
        until_s = time.thread_time() + self.driver.work_s
        while time.thread_time() < until_s:
            pass
        time.sleep(self.driver.sleep_s)
        return Reply()

    def close(self) -> None:
        """Nothing is open."""
