"""Slowdowns of pairs of parties that were not measured together, predicted from each party beside burners. Pure.

What a party loses beside a burner of one resource is its sensitivity; what the burner loses is the party's demand for
that resource, as a share of what the largest burner takes alone. A pair's slowdown is the sensitivity of the one at
the demand of the other, multiplied over resources. After Mars et al., Bubble-Up (MICRO 2011), where the bubble is a
burner of memory.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import permutations
from math import ceil, exp, log

from seamark.analysis.checks.host import OF_PARTIES
from seamark.model.parties import BURNER, OF_THE_WHOLE, SETS, names_in
from seamark.model.plurals import counted, in_percent
from seamark.model.results.summary import SummaryRow
from seamark.model.service import Value
from seamark.model.trial import PARTY
from seamark.report.numbers import aligned, levels_text, number
from seamark.report.source import Results
from seamark.stats.compare import compare_family

CONFIDENCE = 0.9
BY = {"latency_ms.p50": "lower", "throughput.value": "higher"}
"""The first of these that a party has in every set is its slowdown; with the better direction."""
RATE = "throughput.value"
BEYOND = 0.05
"""A demand so far above the largest that was measured is taken for that one: short loads have as much noise."""

Levels = tuple[tuple[str, Value], ...]
Who = tuple[str, Levels]
"""A party with its own levels."""
Cell = tuple[Who, frozenset[Who]]
"""A party, and those beside it."""
ByBlock = dict[Hashable, float]


@dataclass(frozen=True, kw_only=True)
class PairPrediction:
    """The predicted slowdown of a party beside another, above 1 for slower, and the measured one where it is known.

    `by` is the figure of both. `low` and `high` are the ends of its interval; None with too few measured slowdowns.
    `doubts` are codes of trials that it rests on, for which these do not say what parties cost each other. `reason`:
    why there is no prediction."""

    party: str
    beside: str
    by: str = RATE
    fixed: Mapping[str, Value] = field(default_factory=dict)
    value: float | None = None
    low: float | None = None
    high: float | None = None
    measured: float | None = None
    doubts: tuple[str, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class SlowdownPredictions:
    """Predictions of all directed pairs. `off` are measured over predicted slowdowns where both are known and without
    doubts, in increasing order: the calibration of the intervals."""

    pairs: tuple[PairPrediction, ...]
    off: tuple[float, ...]
    confidence: float = CONFIDENCE


def predictions_of(results: Results) -> SlowdownPredictions:
    """Return the predicted slowdown of each party beside each other one, under each placement that was measured."""
    groups: dict[Hashable, list[SummaryRow]] = defaultdict(list)
    names = [whole.name for whole in OF_THE_WHOLE if whole is not SETS]
    for row in results.treatments:
        if SETS.name in row.factors:
            whole = (row.workload.partition(".")[0], row.deployment.partition(PARTY)[0])
            groups[(*whole, *(row.factors.get(name) for name in names))].append(row)
    found: list[PairPrediction] = []
    for rows in groups.values():
        fixed = {name: rows[0].factors[name] for name in names if name in rows[0].factors}
        found += _Measured(results, rows, fixed).pairs()
    return with_intervals(found)


def with_intervals(pairs: Sequence[PairPrediction], confidence: float = CONFIDENCE) -> SlowdownPredictions:
    """Return predictions with their intervals, from those of which the slowdown was measured too."""
    known = [pair for pair in pairs if not pair.doubts]
    off = sorted(pair.measured / pair.value for pair in known if pair.measured and pair.value)
    width = half_width([log(ratio) for ratio in off], confidence)
    shown = []
    for pair in pairs:
        if pair.value is None or width is None:
            shown.append(pair)
        else:
            low, high = pair.value * exp(-width), pair.value * exp(width)
            shown.append(replace(pair, low=low, high=high))
    return SlowdownPredictions(pairs=tuple(shown), off=tuple(off), confidence=confidence)


class _Measured:
    """What was measured of parties at one start under one placement, by party and what was beside it."""

    def __init__(self, results: Results, rows: Sequence[SummaryRow], fixed: Mapping[str, Value]) -> None:
        self._fixed = fixed
        self._figures: dict[Cell, dict[str, ByBlock]] = {}
        self._doubts: dict[Cell, tuple[str, ...]] = {}
        self._burners: dict[str, dict[Who, float]] = defaultdict(dict)
        self._rests_on: set[Cell] = set()
        parties = {row.workload.partition(".")[2] for row in rows}
        for row in rows:
            who, beside = _who(row, parties)
            if row.component == BURNER:
                self._burners[str(row.config["resource"])][who] = float(row.config["bytes"] or 0)
            by_block: dict[str, ByBlock] = {name: {} for name in BY}
            for view in results.trials_of(row):
                for name in BY:
                    value = view.good.figure(name) if view.good and view.verdict != "INVALID" else None
                    if value:
                        by_block[name][view.trial.block] = value
            self._figures[who, beside] = by_block
            self._doubts[who, beside] = tuple(code for code in row.codes if code in OF_PARTIES)

    @cached_property
    def _parties(self) -> list[Who]:
        burners = {who for group in self._burners.values() for who in group}
        return list(dict.fromkeys(who for who, _ in self._figures if who not in burners))

    def pairs(self) -> Iterator[PairPrediction]:
        """Yield each directed pair of parties that are no burners."""
        for who, other in permutations(self._parties, 2):
            if who[0] != other[0]:
                self._rests_on.clear()
                measured = self._slowdown(who, other)
                value, reason = None, None
                try:
                    value = self._predicted(who, other)
                except LookupError as error:
                    reason = str(error.args[0])
                yield PairPrediction(
                    party=_name(who),
                    beside=_name(other),
                    by=self._figure_of(who),
                    fixed=self._fixed,
                    value=value,
                    measured=measured,
                    doubts=tuple(sorted({code for cell in self._rests_on for code in self._doubts[cell]})),
                    reason=reason,
                )

    def _predicted(self, who: Who, other: Who) -> float:
        """Return the predicted slowdown. Raises LookupError with the reason where it would be a guess."""
        if not self._burners:
            raise LookupError("no party was measured beside a burner")
        slowdown = 1.0
        for resource, levels in self._burners.items():
            most = max(levels, key=self._alone)
            demand = self._demand(other, most)
            if demand > 1 + BEYOND:
                raise LookupError(f"{_name(other)} uses more {resource} than {_name(most)} did")
            points = [(0.0, 1.0)]
            for burner in sorted(levels, key=self._alone):
                if (loss := self._slowdown(who, burner)) is not None:
                    points.append((self._alone(burner) / self._alone(most), loss))
            if points[-1][0] < 1:
                raise LookupError(f"{_name(who)} was not measured beside {_name(most)}")
            slowdown *= between(points, min(demand, 1.0))
        return slowdown

    def _demand(self, who: Who, burner: Who) -> float:
        """Return what a party takes of a resource alone, as a share of what the burner takes alone: what the burner
        loses beside it, times the party's throughput alone over that beside the burner."""
        own, theirs = self._slowdown(who, burner, RATE), self._slowdown(burner, who, RATE)
        if own is None or theirs is None:
            raise LookupError(f"{_name(who)} was not measured beside {_name(burner)}")
        return max(0.0, 1 - 1 / theirs) * own

    def _alone(self, burner: Who) -> float:
        """Return the bytes a second of a burner alone."""
        rates = self._figures.get((burner, frozenset()), {}).get(RATE, {}).values()
        if not rates:
            raise LookupError(f"{_name(burner)} was not measured alone")
        size = next(sizes[burner] for sizes in self._burners.values() if burner in sizes)
        return size * sum(rates) / len(rates)

    def _slowdown(self, who: Who, other: Who, by: str | None = None) -> float | None:
        """Return the slowdown of a party beside another by the first figure that it has everywhere, or by one."""
        cells: list[Cell] = [(who, frozenset()), (who, frozenset((other,)))]
        name = by or self._figure_of(who)
        alone, together = (self._figures.get(cell, {}).get(name) for cell in cells)
        if not alone or not together:
            return None
        ratio = compare_family({name: (alone, together)}, better="lower")[name].ratio
        if ratio is None:
            return None
        self._rests_on.update(cells)
        return ratio.estimate if BY[name] == "lower" else 1 / ratio.estimate

    def _figure_of(self, who: Who) -> str:
        """Return the first figure that a party has in every set in which it has any."""
        own = [figures for (party, _), figures in self._figures.items() if party == who and any(figures.values())]
        return next((name for name in BY if all(figures[name] for figures in own)), RATE)


def between(points: Sequence[tuple[float, float]], at: float) -> float:
    """Return the value at a place between points in increasing order, by straight lines."""
    places = [place for place, _ in points]
    after = min(max(1, bisect_left(places, at)), len(points) - 1)
    (left, low), (right, high) = points[after - 1], points[after]
    return low + (high - low) * (at - left) / (right - left)


def _who(row: SummaryRow, parties: set[str]) -> tuple[Who, frozenset[Who]]:
    """Return the party of a row with its levels, and those beside it with theirs."""
    own = row.workload.partition(".")[2]
    names = names_in(str(row.factors[SETS.name]))
    whole = {setting.name for setting in OF_THE_WHOLE}
    levels: dict[str, dict[str, Value]] = defaultdict(dict)
    for name, value in row.factors.items():
        begin, _, rest = name.partition(".")
        if begin in parties and rest:
            levels[begin][rest] = value
        elif name not in whole:
            levels[own][name] = value
    found = {name: (name, tuple(sorted(levels[name].items()))) for name in {own, *names}}
    return found[own], frozenset(found[name] for name in names if name != own)


def _name(who: Who) -> str:
    levels = ", ".join(f"{name} {value}" for name, value in who[1])
    return f"{who[0]} ({levels})" if levels else who[0]


def prediction_lines(found: SlowdownPredictions) -> list[str]:
    """Return a table of all pairs, and how far predictions were off where both are known."""
    percent = in_percent(found.confidence)
    rows: list[tuple[str, ...]] = [("party", "beside", "by", "times as slow", f"{percent} interval", "measured")]
    for pair in found.pairs:
        fixed = levels_text(pair.fixed)
        interval = "-" if pair.low is None or pair.high is None else f"{number(pair.low)} to {number(pair.high)}"
        party = f"{pair.party} ({fixed})" if fixed else pair.party
        by = pair.by.removesuffix(".value")
        doubt = " !" if pair.doubts else ""
        rows.append((party, pair.beside, by, f"{number(pair.value)}{doubt}", interval, number(pair.measured)))
    lines = aligned(rows, left=(0, 1, 2))
    lines += dict.fromkeys(f"Not predicted: {pair.reason}." for pair in found.pairs if pair.reason)
    if codes := dict.fromkeys(code for pair in found.pairs for code in pair.doubts):
        lines.append(f"! rests on SUSPECT trials ({', '.join(codes)}), and is left out of the calibration.")
    if not found.off:
        return [*lines, "No pair was measured, so nothing is known of the errors. Add pairs to 'sets'."]
    text = f"Measured over predicted in {counted(len(found.off), 'measured slowdown')}: {number(found.off[0])}"
    lines.append(f"{text} to {number(found.off[-1])}.")
    if all(pair.low is None for pair in found.pairs):
        least = ceil(found.confidence / (1 - found.confidence) - 1e-9)
        lines.append(f"An interval of {percent} needs {least} measured slowdowns.")
    else:
        lines.append("The intervals hold for pairs that are like the measured ones.")
    return lines


def half_width(residuals: Sequence[float], confidence: float) -> float | None:
    """Return the half-width of the split-conformal interval by the absolute residuals of a calibration.

    The next prediction is off by no more with a probability of at least `confidence`, if it could as well have been
    one of the calibration: exchangeable. None where there are too few residuals: 90 % takes nine. Lei et al.,
    Distribution-Free Predictive Inference for Regression, JASA 113, 2018.
    """
    rank = ceil(round((len(residuals) + 1) * confidence, 9))
    return sorted(map(abs, residuals))[rank - 1] if 0 < rank <= len(residuals) else None
