"""The search itself: asks for one probe after another until the bracket is decided or time is up. Touches nothing."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from seamark.model.search import Search
from seamark.trials.search.evidence import Seen, judged
from seamark.trials.search.steps import TIMES, Answer, Found, Probe, Verdict, next_step, spent

Measure = Callable[[Probe], "Measured"]
Note = Callable[[Probe, Verdict, str], None]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a probe saw, and how many seconds it took with all that belongs to it."""

    seen: Seen
    took_s: float


def largest_load(search: Search, duration_s: float, measure: Measure, note: Note) -> Found:
    """Return the largest load that meets the objectives. `measure` measures a probe, `note` is told its verdict.

    A look of `duration_s` times its number of times is made shorter where it would end after the budget, and none
    begins after it.
    """
    answers: list[Answer] = []
    seen: dict[float, list[Seen]] = {}
    spent_s = 0.0
    while isinstance(step := next_step(search, answers), Probe):
        if spent_s >= search.budget_s:
            return spent(search, answers)
        step = replace(step, times=_fitting(step.times, duration_s, search.budget_s - spent_s))
        found = measure(step)
        spent_s = round(spent_s + found.took_s, 3)
        of_level = seen.setdefault(step.level, [])
        of_level.append(found.seen)
        verdict, why = judged(of_level)
        answers.append(Answer(probe=step, verdict=verdict))
        note(step, verdict, why)
    return step


def _fitting(times: int, duration_s: float, left_s: float) -> int:
    return max(fit for fit in TIMES if fit == 1 or (fit <= times and fit * duration_s <= left_s))
