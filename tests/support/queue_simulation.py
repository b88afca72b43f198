"""A simulation of a queue with one server, for tests of simulated trials: its waiting times are known from theory."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event

import numpy as np

from seamark.load.driver import Target, Task, TaskFailure, TaskRecorder
from seamark.model.sample import EventKind

SECOND_NS = 1_000_000_000


class Queue(Task):
    """M/M/1: Poisson arrivals of `arrivals_rps`, exponential times of service of mean `service_ms`."""

    unit = "request"
    kinds: Sequence[str] = ("request",)
    stages: Sequence[str] = ("server",)

    def __init__(self, target: Target) -> None:
        self.settings = target.settings

    def run(self, recorder: TaskRecorder, stop: Event) -> None:
        rng = np.random.default_rng(recorder.seed)
        count = int(self.settings["jobs"] or 0)
        if self.settings["mode"] == "fail":
            raise TaskFailure("program_failed", "the queue is closed")
        if self.settings["mode"] == "own":
            raise TaskFailure("queue_closed", "the queue is closed")
        if self.settings["mode"] == "hang":
            stop.wait()
            return
        if self.settings["mode"] == "slow":
            with Path(str(self.settings["log"])).open("a", buffering=1) as log:
                log.write(f"{os.getpid()} {time.time()} begin\n")
                stop.wait(1.0)
                log.write(f"{os.getpid()} {time.time()} end\n")
        arrivals_rps, service_s = (
            float(self.settings["arrivals_rps"] or 1),
            float(self.settings["service_ms"] or 1) / 1e3,
        )
        due_ns = np.rint(np.cumsum(rng.exponential(1 / arrivals_rps, count)) * SECOND_NS).astype(np.int64)
        served_ns = np.rint(rng.exponential(service_s, count) * SECOND_NS).astype(np.int64)
        track, free_ns = recorder.track(), 0
        for index, (due, served) in enumerate(zip(due_ns.tolist(), served_ns.tolist(), strict=True)):
            begin = max(due, free_ns)
            free_ns = begin + served
            if track is not None:
                track.add(index, 0, EventKind.WAIT, due, begin)
                track.add(index, 0, EventKind.RUN, begin, free_ns)
            recorder.sample(index, due_ns=due, sent_ns=begin, last_ns=free_ns)
        recorder.quality("virtual_s", recorder.now_ns() / SECOND_NS)
