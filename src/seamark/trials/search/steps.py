"""The next level of a search, from the verdicts of its probes so far. Pure and deterministic.

It doubles from the first level until a level fails and bisects the grid between. Up to there a level counts by its
likelier verdict. Then the levels on both sides of the limit are measured further, each time longer and with another
seed, until all probes of a level together decide at the stated error, or the level has had MOST_LOOKS of them. An
undecided level then lies inside the bracket, and levels further out are decided instead. The search does not go
beyond a level with two void probes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from seamark.model.results.load_record import SearchOutcome
from seamark.model.results.search_record import Probe
from seamark.model.scenario import Outcome, Search

Verdict = Literal["pass", "fail", "likely_pass", "likely_fail", "void"]
ATTEMPTS = 2
"""Attempts for a void probe."""
TIMES = (1, 1, 2, 4, 8)
"""Length of each look at a level in units of `duration_s`: sixteen in all."""
MOST_LOOKS = len(TIMES)
LOOK_ERROR = 0.005
"""Error probability of one look. The confidence of a bracket is 1 less this for each look of its search."""
HALVINGS = 4
"""Number of times that a failing first level is halved at most."""

Levels = tuple[int | float, ...]


@dataclass(frozen=True, kw_only=True)
class LevelVerdict:
    """Verdict of all probes of a level after this one: pass or fail, decided or likely; `void` if this probe is no
    evidence."""

    probe: Probe
    verdict: Verdict


def levels_of(search: Search) -> Levels:
    """Return the levels in ascending order, without duplicates: equal ratios of at most 1 + within, from `from` to
    `to`."""
    span = math.log(search.to_level / search.from_level)
    up = math.ceil(span / math.log(1 + search.within) - 1e-9)
    ratio = math.exp(span / up)
    down = math.floor(HALVINGS * math.log(2) / math.log(ratio))
    values = {search.level(search.from_level * ratio**k) for k in range(-down, up + 1)}
    return tuple(sorted(value for value in values if value > 0))


def next_step(search: Search, answers: Sequence[LevelVerdict]) -> Probe | SearchOutcome:
    """Return the next probe, or the result."""
    levels = levels_of(search)
    known = _Levels(levels, answers)
    low, high = known.likely()
    if low is None and high is None:
        return known.probe(levels.index(search.level(search.from_level)))
    if high is None and low is not None and low < len(levels) - 1:
        return known.probe(_twice(levels, low))
    if low is None and high is not None and high > 0 and not known.void(high):
        return known.probe(_half(levels, high))
    if low is not None and high is not None and high - low > 1:
        return known.probe((low + high) // 2)
    edges = [edge for edge in (known.open_edge(low, -1), known.open_edge(high, 1)) if edge is not None]
    if edges:
        return known.probe(min(edges, key=known.looks))
    if low is not None and known.looks(low) <= search.confirm and not known.used_up(low):
        return known.probe(low)
    return _found(search, known, _outcome(known, low, high))


def spent(search: Search, answers: Sequence[LevelVerdict]) -> SearchOutcome:
    """Return the result if there is no time for another probe."""
    step = next_step(search, answers)
    if isinstance(step, SearchOutcome):
        return step
    return _found(search, _Levels(levels_of(search), answers), "budget_spent")


class _Levels:
    """The verdicts of each level, by its place."""

    def __init__(self, levels: Levels, answers: Sequence[LevelVerdict]) -> None:
        self.levels = levels
        self.answers = answers
        self._of: dict[float, list[LevelVerdict]] = {}
        for answer in answers:
            self._of.setdefault(answer.probe.level, []).append(answer)

    def verdict(self, place: int) -> Verdict | None:
        """The joint verdict of a level's probes; None without any, or with a single void one."""
        told = [answer.verdict for answer in self._at(place) if answer.verdict != "void"]
        if told:
            return told[-1]
        return "void" if self.void(place) else None

    def looks(self, place: int) -> int:
        return sum(answer.verdict != "void" for answer in self._at(place))

    def void(self, place: int) -> bool:
        """Whether all attempts at the first look of a level were void."""
        return len(self._at(place)) >= ATTEMPTS and all(answer.verdict == "void" for answer in self._at(place))

    def used_up(self, place: int) -> bool:
        """Whether a level is finished: it had all of its looks, or the next one was void twice."""
        look = self.looks(place) + 1
        return look > MOST_LOOKS or sum(answer.probe.look == look for answer in self._at(place)) >= ATTEMPTS

    def likely(self) -> tuple[int | None, int | None]:
        """Return the places of the largest level that likely passes below all that do not, and of the smallest of
        these."""
        verdicts = [self.verdict(index) for index in range(len(self.levels))]
        bad = [index for index, verdict in enumerate(verdicts) if verdict in ("fail", "likely_fail", "void")]
        high = min(bad, default=None)
        below = verdicts if high is None else verdicts[:high]
        good = [index for index, verdict in enumerate(below) if verdict in ("pass", "likely_pass")]
        return max(good, default=None), high

    def decided(self) -> tuple[int | None, int | None]:
        """Return the places of the largest level decided to pass below all decided to fail, and of the smallest of
        these."""
        verdicts = [self.verdict(index) for index in range(len(self.levels))]
        high = next((index for index, verdict in enumerate(verdicts) if verdict == "fail"), None)
        below = verdicts if high is None else verdicts[:high]
        return max((index for index, verdict in enumerate(below) if verdict == "pass"), default=None), high

    def open_edge(self, place: int | None, way: int) -> int | None:
        """Return the next level for this edge of the bracket; None if it is decided, or cannot be.

        That is the level at `place`, and once its looks are used up one that lies 1, 3, 7 ... further out.
        """
        if place is None:
            return None
        for out in _outwards(place, way, len(self.levels)):
            verdict = self.verdict(out)
            if verdict == ("pass" if way < 0 else "fail") or self.void(out):
                return None
            if not self.used_up(out):
                return out
        return None

    def probe(self, place: int) -> Probe:
        """Return the next probe of a level: another attempt if the last one was void, else the next look."""
        look = self.looks(place) + 1
        attempts = sum(answer.probe.look == look for answer in self._at(place))
        return Probe(level=self.levels[place], look=look, attempt=attempts + 1, times=TIMES[look - 1])

    def _at(self, place: int) -> Sequence[LevelVerdict]:
        return self._of.get(self.levels[place], ())


def _outwards(place: int, way: int, count: int) -> Iterator[int]:
    step = 1
    while 0 <= place < count:
        yield place
        place, step = place + way * step, 2 * step


def _twice(levels: Levels, place: int) -> int:
    return next((i for i, level in enumerate(levels) if level >= 2 * levels[place]), len(levels) - 1)


def _half(levels: Levels, place: int) -> int:
    return max((i for i, level in enumerate(levels[:place]) if level <= levels[place] / 2), default=0)


def _outcome(known: _Levels, low: int | None, high: int | None) -> Outcome:
    if high is not None and known.void(high):
        return "not_judged"
    if low is None:
        return "none_pass"
    sure_low, sure_high = known.decided()
    if sure_low != low or sure_high != high:
        return "undecided"
    return "all_pass" if high is None else "converged"


def _found(search: Search, known: _Levels, outcome: Outcome) -> SearchOutcome:
    place, _ = known.likely()
    low, high = known.decided()
    looks = sum(answer.verdict != "void" for answer in known.answers)
    return SearchOutcome(
        setting=search.setting,
        outcome=outcome,
        found=None if place is None else known.levels[place],
        confirmed=place is not None and place == low and known.looks(place) > search.confirm > 0,
        bracket=(None if low is None else known.levels[low], None if high is None else known.levels[high]),
        confidence=max(0.0, round(1 - LOOK_ERROR * looks, 6)),
    )
