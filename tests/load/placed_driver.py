"""A driver that writes down what its process sees: variables at import and in a call, CPUs, niceness, session."""

import json
import os
from collections.abc import Sequence

from seamark.load.driver import Body, Reply, Session, Target
from seamark.model.sample import Failure

NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
AT_IMPORT = {name: os.environ.get(name) for name in NAMES}


class Placed:
    unit = "reply"
    kinds: Sequence[str] = ("call",)
    body_count = 1

    def __init__(self, target: Target) -> None:
        self._folder = target.data

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        return [Body(content=None)]

    def session(self) -> Session:
        return _Session(self)

    def failure(self, error: Exception) -> Failure:
        return Failure.DRIVER

    def write(self) -> None:
        seen = {
            "at_import": AT_IMPORT,
            "in_a_call": {name: os.environ.get(name) for name in NAMES},
            "cpus": sorted(os.sched_getaffinity(0)),
            "niceness": os.getpriority(os.PRIO_PROCESS, 0),
            "parent": os.getppid(),
        }
        (self._folder / f"seen-{os.getpid()}.json").write_text(json.dumps(seen))


class _Session:
    def __init__(self, driver: Placed) -> None:
        self._driver = driver

    def call(self, body: Body) -> Reply:
        self._driver.write()
        return Reply()

    def close(self) -> None:
        pass
