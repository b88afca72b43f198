"""Which level a search measures next, from what its probes have answered so far. Pure, and the same every time.

It doubles from where it begins until a level fails, bisects the grid between the largest level that passed and the
smallest that failed, and measures what it found again. A level that fails then is left for the next one below. One
that no probe could judge, twice, is not gone beyond.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from seamark.model.search import Outcome, Search
from seamark.search.levels import Levels, levels_of

Verdict = Literal["pass", "fail", "void"]
ATTEMPTS = 2
"""How often a probe is measured that says nothing of the server."""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One load to measure. `confirmation` counts from 0, the first time; `attempt` from 1."""

    level: int | float
    confirmation: int = 0
    attempt: int = 1


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a probe said: the server bears this load, does not, or (void) the probe cannot tell."""

    probe: Probe
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Found:
    """How a search ended. `bracket`: the largest level that passed and the smallest that did not; None where there is
    none. `confirmed`: every repeated measurement of what was found passed, and there was one."""

    outcome: Outcome
    found: int | float | None
    confirmed: bool
    bracket: tuple[int | float | None, int | float | None]


def next_step(search: Search, answers: Sequence[Answer]) -> Probe | Found:
    """Return what to measure next, or what was found."""
    levels = levels_of(search)
    known = _Known(answers)
    low, high = known.bracket(levels)
    if high is None and low is None:
        return known.probe(search.level(search.from_level))
    if high is None or low is None:
        if high is None and low == len(levels) - 1:
            return _confirmed(search, known, levels[low]) or _found(search, known, "all_pass")
        if low is None and (high == 0 or known.void(levels[high or 0])):
            return _found(search, known, "none_pass" if not known.void(levels[high or 0]) else "not_judged")
        return known.probe(levels[_twice(levels, low) if low is not None else _half(levels, high or 0)])
    if high - low > 1:
        below = high - 1 if known.passes(levels[high]) else (low + high) // 2
        return known.probe(levels[below])
    outcome: Outcome = "not_judged" if known.void(levels[high]) else "converged"
    return _confirmed(search, known, levels[low]) or _found(search, known, outcome)


def spent(search: Search, answers: Sequence[Answer]) -> Found:
    """Return what is found when there is no time for another probe."""
    step = next_step(search, answers)
    return step if isinstance(step, Found) else _found(search, _Known(answers), "budget_spent")


class _Known:
    """What the answers say of each level."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._of: dict[float, list[Answer]] = {}
        for answer in answers:
            self._of.setdefault(answer.probe.level, []).append(answer)

    def passes(self, level: float) -> int:
        """How often the level passed."""
        return sum(answer.verdict == "pass" for answer in self._of.get(level, ()))

    def failed(self, level: float) -> bool:
        return any(answer.verdict == "fail" for answer in self._of.get(level, ()))

    def void(self, level: float) -> bool:
        """Whether all attempts to judge the level for the first time said nothing."""
        first = [answer for answer in self._of.get(level, ()) if answer.probe.confirmation == 0]
        return len(first) >= ATTEMPTS and all(answer.verdict == "void" for answer in first)

    def bracket(self, levels: Levels) -> tuple[int | None, int | None]:
        """Return the places of the largest level that passed below all that did not, and of the smallest of these."""
        bad = (place for place, level in enumerate(levels) if self.failed(level) or self.void(level))
        high = next(bad, None)
        below = range(len(levels) if high is None else high)
        return max((place for place in below if self.passes(levels[place])), default=None), high

    def probe(self, level: int | float, confirmation: int = 0) -> Probe:
        """Return the probe of a level, another attempt when the last one was void."""
        made = sum(answer.probe.confirmation == confirmation for answer in self._of.get(level, ()))
        return Probe(level=level, confirmation=confirmation, attempt=made + 1)


def _twice(levels: Levels, place: int) -> int:
    return next((i for i, level in enumerate(levels) if level >= 2 * levels[place]), len(levels) - 1)


def _half(levels: Levels, place: int) -> int:
    return max((i for i, level in enumerate(levels[:place]) if level <= levels[place] / 2), default=0)


def _confirmed(search: Search, known: _Known, level: int | float) -> Probe | None:
    """Return the probe that confirms a level next; None when it is confirmed, or cannot be."""
    done = known.passes(level)
    if done > search.confirm:
        return None
    probe = known.probe(level, done)
    return None if probe.attempt > ATTEMPTS else probe


def _found(search: Search, known: _Known, outcome: Outcome) -> Found:
    levels = levels_of(search)
    low, high = known.bracket(levels)
    found = None if low is None else levels[low]
    return Found(
        outcome=outcome,
        found=found,
        confirmed=found is not None and search.confirm > 0 and known.passes(found) > search.confirm,
        bracket=(found, None if high is None else levels[high]),
    )
