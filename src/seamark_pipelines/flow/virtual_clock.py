"""A clock by which one stage is faster than it is: virtual speed-up, as Coz does it for lines of a program.

While that stage runs, time passes by `faster` more slowly, and every other run still takes its whole time: its thread
waits for the clock at its end. So all that depends on time, such as queues, arrivals and users, takes place in the
order and at the times that a faster stage would give (Curtsinger and Berger, Coz: Finding Code that Counts with
Causal Profiling, 2015).
"""

from collections.abc import Callable, Collection
from threading import Condition, Event, Lock
from time import monotonic_ns
from typing import TypeVar

from seamark_pipelines.flow.stage import RUNNING

Given = TypeVar("Given")
Made = TypeVar("Made")
INSERTED, LATE = "inserted_ms", "late_pause_ratio"
NEAR_NS = 20_000_000
"""Waits that are shorter follow the clock's rate; longer ones do not wake up whenever that changes."""


class VirtualClock:
    """Time in ns, that of CLOCK_MONOTONIC less the pauses. The stages with these ids are by the share `faster`, below
    1, faster than they are.

    `inserted_ns` are the pauses so far. In `late_ns` of them another stage was in the middle of a run, which nothing
    can pause: it went on, and its thread waited afterwards.
    """

    def __init__(self, stages: Collection[int], faster: float) -> None:
        self.slowest = 1 - faster
        self.inserted_ns = self.late_ns = 0
        self._stages = frozenset(stages)
        self._faster = faster
        self._fast = self._others = 0
        self._seen_ns = monotonic_ns()
        self._rises = Condition(Lock())
        """Notified when time passes at its usual rate again."""

    def now_ns(self) -> int:
        """Return the time."""
        with self._rises:
            return self._advanced()

    def _advanced(self) -> int:
        now_ns = monotonic_ns()
        if self._fast:
            pause_ns = round(self._faster * (now_ns - self._seen_ns))
            self.inserted_ns += pause_ns
            if self._others:
                self.late_ns += pause_ns
        self._seen_ns = now_ns
        return now_ns - self.inserted_ns

    def wait_until(self, at_ns: int, stop: Event | None = None) -> None:
        """Return at `at_ns`, or soon after `stop` is set."""
        while (left_ns := at_ns - self.now_ns()) > NEAR_NS:
            if (stop or Event()).wait((left_ns - NEAR_NS / 2) / 1e9):
                return
        with self._rises:
            while (left_ns := at_ns - self._advanced()) > 0:
                self._rises.wait(left_ns / 1e9 / (self.slowest if self._fast else 1))

    def timed(self, stage: int, run: Callable[[Given], Made], given: Given) -> tuple[Made, int, int]:
        """Run a stage; return what it returns, and the times of its beginning and its end, at which this returns."""
        fast = stage in self._stages
        with self._rises:
            begin_ns = self._advanced()
            started_ns = self._seen_ns
            self._fast += fast
            self._others += not fast
        RUNNING.now_ns = self.now_ns if fast else lambda: begin_ns + monotonic_ns() - started_ns
        try:
            made = run(given)
        finally:
            with self._rises:
                end_ns = self._advanced()
                self._fast -= fast
                self._others -= not fast
                if not fast:
                    end_ns = begin_ns + self._seen_ns - started_ns
                elif not self._fast:
                    self._rises.notify_all()
            self.wait_until(end_ns)
        return made, begin_ns, end_ns

    @property
    def pauses(self) -> dict[str, float]:
        """The time by which others were paused, and the share of it in which another stage went on."""
        return {INSERTED: self.inserted_ns / 1e6, LATE: self.late_ns / (self.inserted_ns or 1)}
