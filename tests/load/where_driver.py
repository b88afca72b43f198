"""A driver that writes down which CPUs its threads may use."""

import os
import threading
from collections.abc import Mapping, Sequence

from seamark.load.driver import Body, Reply, Session, Target
from seamark.model.sample import Failure


class Where:
    unit = "reply"
    kinds: Sequence[str] = ("call",)
    body_count = 1

    def __init__(self, target: Target) -> None:
        self._target = target

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        return [Body(content=None)]

    def session(self) -> Session:
        return _Session(self._target)

    def failure(self, error: Exception) -> Failure:
        return Failure.DRIVER


class _Session:
    def __init__(self, target: Target) -> None:
        self._folder = target.data

    def call(self, body: Body) -> Reply:
        name = f"cpus-{os.getpid()}-{threading.get_native_id()}"
        (self._folder / name).write_text(str(sorted(os.sched_getaffinity(0))))
        return Reply()

    def close(self) -> None:
        pass


def quality(target: Target, seed: int) -> Mapping[str, float]:
    return {"cpus_allowed": float(len(os.sched_getaffinity(0)))}
