"""The unit of inference of a comparison: trials of the same starts of a server, else the starts themselves. Pure."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from seamark.analysis.comparison.observations import VIRTUAL, Observation
from seamark.model.results.comparison import UnitOfInference
from seamark.stats.range import Range

Side = Mapping[Hashable, Sequence[Observation]]
MOST_BETWEEN = 1
"""Other values of the two treatments that may have been measured between the two of a pair: in turns it is none, and
where all of one side came first it is all but one of them."""


@dataclass(frozen=True, kw_only=True)
class Units:
    """The values of two treatments that a test may use, of ranges both ends; equal keys are a pair.

    `kind` says what is counted, `starts` how many starts of a server each side has. `unmatched` are how many trials
    of each side were left out because the other side has none in their block on their start, `apart` how many pairs
    because their two sides were not measured in turns, as after a retry or with a level that was added later.
    """

    kind: UnitOfInference
    base: Mapping[Hashable, Range]
    new: Mapping[Hashable, Range]
    starts: tuple[int, int]
    unmatched: tuple[int, int] = (0, 0)
    apart: int = 0

    @property
    def are_enough(self) -> bool:
        """Whether a test of these values means anything: of starts there must be two a side."""
        return min(len(self.base), len(self.new)) >= (2 if self.kind == "start" else 1)

    @property
    def are_apart(self) -> bool:
        """Whether too few pairs are left because the two sides were not measured in turns."""
        return self.apart > 0 and len(self.base) < 2


def units_of(base: Sequence[Observation], new: Sequence[Observation], path: str, *, paired: bool) -> Units:
    """Return the values by their unit of inference. Every observation has a value at `path`.

    Where both treatments were measured on the same starts, the trial is the unit: a pair are the trials of one block
    on one start. Else the start is the unit, with the median of its trials, and two starts are a pair if each has the
    trials of one block alone, the same one. What has no partner is left out, and a pair that was not measured in
    turns with the others: a block that only one side has, or a time, would be taken for an effect. Without `paired`,
    between two results, there are no pairs: the values are those of the trials, which say how far each result is
    known; only on a virtual clock are they units of inference.
    """
    starts = [list(dict.fromkeys(trial.start for trial in side)) for side in (base, new)]
    counts = len(starts[0]), len(starts[1])
    if paired and {*starts[0]} & {*starts[1]}:
        sides = [_grouped(side, lambda trial: (trial.start, trial.block)) for side in (base, new)]
        return _of_pairs("trial", sides[0], sides[1], path, counts)
    if paired and _one_block_each(base) and _one_block_each(new):
        sides = [_grouped(side, lambda trial: trial.block) for side in (base, new)]
        return _of_pairs("start", sides[0], sides[1], path, counts)
    virtual = {*starts[0], *starts[1]} == {VIRTUAL}
    by_trial = virtual or not paired
    sides = [_grouped(side, lambda trial: trial.trial if by_trial else trial.start) for side in (base, new)]
    kind: UnitOfInference = "trial" if virtual else "start" if paired else "result"
    if by_trial:  # trials of equal names are no pairs
        sides = [{(index, key): trials for key, trials in side.items()} for index, side in enumerate(sides)]
    return _units(kind, sides[0], sides[1], path, counts)


def _grouped(side: Sequence[Observation], key: Callable[[Observation], Hashable]) -> Side:
    groups: dict[Hashable, list[Observation]] = {}
    for trial in side:
        groups.setdefault(key(trial), []).append(trial)
    return groups


def _one_block_each(side: Sequence[Observation]) -> bool:
    """Return whether each start has the trials of one block, and each block those of one start."""
    places = {(trial.start, trial.block) for trial in side}
    return len(places) == len({start for start, _ in places}) == len({block for _, block in places})


def _of_pairs(kind: UnitOfInference, base: Side, new: Side, path: str, starts: tuple[int, int]) -> Units:
    """Return the values of the pairs that were measured in turns."""
    both = [key for key in base if key in new]
    kept = _in_turns(both, base, new)
    values = _units(kind, {key: base[key] for key in kept}, {key: new[key] for key in kept}, path, starts)
    return replace(
        values,
        unmatched=(_without(base, both), _without(new, both)),
        apart=len(both) - len(kept),
    )


def _in_turns(keys: Sequence[Hashable], base: Side, new: Side) -> list[Hashable]:
    """Return the keys of pairs between whose two sides at most MOST_BETWEEN others were measured, from their
    beginning to their end; all keys where a time is not known."""
    spans = [_span([*side[key]]) for key in keys for side in (base, new)]
    known = np.array([span for span in spans if span is not None]).reshape(-1, 2)
    if len(known) < len(spans):
        return list(keys)
    began_s, ended_s = known[:, 0], known[:, 1]
    kept: list[Hashable] = []
    for index, key in enumerate(keys):
        pair = slice(2 * index, 2 * index + 2)
        after_s, before_s = ended_s[pair].min(), began_s[pair].max()
        between = (began_s >= after_s) & (ended_s <= before_s)
        between[pair] = False
        if between.sum() <= MOST_BETWEEN:
            kept.append(key)
    return kept


def _span(trials: Sequence[Observation]) -> tuple[float, float] | None:
    """Return when the first of some trials began and the last ended, None where it is not known."""
    known = [trial.span_s for trial in trials if trial.span_s is not None]
    if len(known) < len(trials):
        return None
    return min(began_s for began_s, _ in known), max(ended_s for _, ended_s in known)


def _without(side: Side, keys: Collection[Hashable]) -> int:
    there = set(keys)
    return sum(len(trials) for key, trials in side.items() if key not in there)


def _units(kind: UnitOfInference, base: Side, new: Side, path: str, starts: tuple[int, int]) -> Units:
    return Units(kind=kind, base=_values(base, path), new=_values(new, path), starts=starts)


def _values(side: Side, path: str) -> dict[Hashable, Range]:
    """Return the medians of the lower and of the upper ends. Observations without the figure are left out before."""
    ranges = {key: [trial.figures[path] for trial in trials] for key, trials in side.items()}
    return {
        key: Range(low=median(ends.low for ends in values), high=median(ends.most for ends in values))
        for key, values in ranges.items()
    }


def lower(values: Mapping[Hashable, Range]) -> dict[Hashable, float]:
    """Return the lower ends of values."""
    return {key: ends.low for key, ends in values.items()}


def upper(values: Mapping[Hashable, Range]) -> dict[Hashable, float]:
    """Return the upper ends of values, infinite for none."""
    return {key: ends.most for key, ends in values.items()}
