"""Outages of a load: times without a good reply, or with more failures than replies. They stay in every figure."""

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from seamark.analysis.metrics.course import Course

LEAST_MISSED = 20
"""Where fewer replies were to be expected, none may be chance."""
TYPICAL = 3
"""A time without replies that is no longer than this many typical replies may lie between two rounds of requests."""
LEAST_S = 0.1
"""A shorter pause is one of the slow replies that a percentile is about."""
MOST_SHARE = 0.5
"""What goes on for more than half of the window is how the service was, and no outage."""


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A time in which a service answered nothing well, or failed more than it answered, from the start of load.

    `missed` is how many good replies there would have been at the rate of the rest, or how many requests were due.
    """

    start_s: float
    end_s: float
    missed: int
    failed: int

    @property
    def text(self) -> str:
        """Say when it was and what was missed."""
        when = f"from {self.start_s:.3g} s to {self.end_s:.3g} s"
        if self.failed:
            return f"{self.failed:,} requests failed {when}, more than were answered"
        return f"no good reply came {when}, where {self.missed:,} were to be expected"


def outages(course: Course, *, users: int | None) -> tuple[Outage, ...]:
    """Return the outages of a load. `users` is the concurrency of a closed loop, None for an open one."""
    down = course.replies <= course.failures
    if not (~down).any() or down.mean() > MOST_SHARE:
        return ()
    usual = float(course.replies[~down].mean())
    typical_s = float(np.median(course.response_s)) if users is None else users / usual * course.part_s
    found, begin = [], 0
    for is_down, group in groupby(down):
        end = begin + len(list(group))
        failed = int(course.failures[begin:end].sum())
        missed = (end - begin) * usual if users is not None else float(course.due[begin:end].sum())
        length_s = (end - begin) * course.part_s
        long_enough = length_s >= LEAST_S and (failed or length_s >= TYPICAL * typical_s)
        if is_down and max(missed, failed) >= LEAST_MISSED and long_enough:
            start_s, end_s = course.at_s(begin), course.at_s(end)
            found.append(Outage(start_s=start_s, end_s=end_s, missed=round(missed), failed=failed))
        begin = end
    return tuple(found)
