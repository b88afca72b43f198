"""A fuzz: many cases of one strategy, each of which survives, raises what nobody should see, or hangs."""

import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

HANG_S = 30
Case = TypeVar("Case")


class HangError(BaseException):
    """A case took longer than any input may."""


@contextmanager
def within(seconds: int = HANG_S) -> Iterator[None]:
    """Raise HangError in this block when it takes that much of a processor, or ten times as long: what a busy machine
    takes is no hang."""

    def end(number: int, frame: object) -> None:
        raise HangError(f"not done after {seconds} s")

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, 10 * seconds))
    before = [(number, signal.signal(number, end)) for _, number, _ in timers]
    for timer, _, limit_s in timers:
        signal.setitimer(timer, limit_s)
    try:
        yield
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)
        for number, handler in before:
            signal.signal(number, handler)


@dataclass(frozen=True, kw_only=True)
class Harm:
    """What came of the cases of a fuzz or of a matrix: how many survived, and of each other one what it was."""

    table: str
    counted: Callable[..., None]
    limit_s: int = HANG_S
    tracebacks: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for outcome in ("survived", "tracebacks", "hangs"):
            self.counted(self.table, outcome, 0)

    def case(self, name: object, act: Callable[[], object]) -> None:
        """Try one case: `act` raises AssertionError or anything else where it does not survive."""
        try:
            with within(self.limit_s):
                act()
        except HangError:
            self.counted(self.table, "hangs")
            self.hangs.append(f"{name!r}: {traceback.format_exc(limit=-6)}")
        except Exception:
            self.counted(self.table, "tracebacks")
            self.tracebacks.append(f"{name!r}: {traceback.format_exc(limit=-6)}")
        else:
            self.counted(self.table, "survived")

    def require_none(self) -> None:
        """Fail where a case did not survive, with the first of them."""
        distinct = {each.rpartition("\n  File")[2]: each for each in self.tracebacks}
        shown = "\n".join(each[:3000] for each in list(distinct.values())[:5])
        tracebacks = f"{len(self.tracebacks)} tracebacks in {len(distinct)} places, such as {shown}"
        assert not self.hangs, f"{len(self.hangs)} hangs, such as {self.hangs[0]}; {tracebacks}"
        assert not self.tracebacks, tracebacks


def fuzz(cases: SearchStrategy[Case], act: Callable[[Case], object], examples: int, harm: Harm) -> None:
    """Try as many cases as `examples` says, the same ones in each run, and fail where one does not survive."""
    unlimited = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )

    @unlimited
    @given(cases)
    def each(case: Case) -> None:
        harm.case(case, lambda: act(case))

    each()
    harm.require_none()
