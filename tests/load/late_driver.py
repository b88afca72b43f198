"""A driver whose last call is in flight long after the first worker's; its quality counts the calls that ended."""

import time
from collections.abc import Mapping, Sequence

from seamark.load.driver import Body, Reply, Target
from seamark.model.sample import Failure


class Late:
    unit = "call"
    kinds = ("call",)

    def __init__(self, target: Target) -> None:
        self.target = target

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        return [Body(content=None)]

    def session(self) -> "Late":
        return self

    def call(self, body: Body) -> Reply:
        time.sleep(0.8 * self.target.worker)
        (self.target.data / f"ended-{self.target.worker}").touch()
        return Reply()

    def failure(self, error: Exception) -> Failure:
        return Failure.DRIVER

    def close(self) -> None:
        pass


def quality(target: Target, seed: int) -> Mapping[str, float]:
    return {"ended": float(len(list(target.data.glob("ended-*"))))}
