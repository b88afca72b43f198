"""The unit of inference of a comparison: trials of the same starts of a server, else the starts themselves. Pure."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from seamark.analysis.comparison.observations import Observation
from seamark.model.results.comparison import UnitOfInference

Values = Mapping[Hashable, float]


@dataclass(frozen=True, kw_only=True)
class Units:
    """The values of two treatments that a test may use; equal keys are a pair.

    `kind` says what is counted, `starts` how many starts of a server each side has, `unmatched` how many trials of
    each side were left out because the other side has none on their start.
    """

    kind: UnitOfInference
    base: Values
    new: Values
    starts: tuple[int, int]
    unmatched: tuple[int, int] = (0, 0)


def units_of(base: Sequence[Observation], new: Sequence[Observation], path: str, *, paired: bool) -> Units:
    """Return the values by their unit of inference. Every observation has a value at `path`.

    Where both treatments were measured on the same starts, the trial is the unit: a pair are the trials of one block
    on one start. Else the start is the unit, with the median of its trials, and two starts are a pair if each has the
    trials of one block alone, the same one. Without `paired` two starts are never a pair.
    """
    starts = [list(dict.fromkeys(each.start for each in side)) for side in (base, new)]
    counts = len(starts[0]), len(starts[1])
    if shared := {*starts[0]} & {*starts[1]}:
        one, other = ([each for each in side if each.start in shared] for side in (base, new))
        return Units(
            kind="trial",
            base={(each.start, each.block): _value(each, path) for each in one},
            new={(each.start, each.block): _value(each, path) for each in other},
            starts=counts,
            unmatched=(len(base) - len(one), len(new) - len(other)),
        )
    pairs = paired and _one_block_each(base) and _one_block_each(new)
    return Units(kind="start", base=_by_start(base, path, pairs), new=_by_start(new, path, pairs), starts=counts)


def _one_block_each(side: Sequence[Observation]) -> bool:
    """Return whether each start has the trials of one block, and each block those of one start."""
    places = {(each.start, each.block) for each in side}
    return len(places) == len({start for start, _ in places}) == len({block for _, block in places})


def _by_start(side: Sequence[Observation], path: str, by_block: bool) -> Values:
    found: dict[Hashable, list[float]] = {}
    for each in side:
        found.setdefault(each.block if by_block else each.start, []).append(_value(each, path))
    return {key: median(values) for key, values in found.items()}


def _value(each: Observation, path: str) -> float:
    value = each.figure(path).value
    assert value is not None, "observations without the figure are left out before"
    return value
