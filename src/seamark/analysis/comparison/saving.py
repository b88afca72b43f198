"""Whether levels cost less than their baseline, by tests of one family: of items, else of trials. Pure."""

from collections.abc import Mapping, Sequence

from seamark.analysis.comparison.items import item_values
from seamark.analysis.comparison.metric_names import ComparedMetric
from seamark.analysis.comparison.observations import Observation
from seamark.analysis.comparison.units import Units, units_of
from seamark.stats.compare import ALPHA, Comparison, compare_family, holm
from seamark.stats.paired_compare import paired_test

APART = "it and the baseline were not measured in turns"
NO_BLOCK = "it and the baseline have no block of trials in common"
ONE_START = "the trials of a side are on one start of the server"

Trials = Sequence[Observation]


def savings(base: Trials, others: Mapping[str, Trials], cost: ComparedMetric) -> dict[str, bool | str]:
    """Return for each level whether tests, one family, show a lower cost than that of the baseline, or why no test
    can; without those that have too few trials for one.

    A cost that every answer has, and that no clock gave, is compared by item; others by trial. Every trial has a
    value.
    """
    by_item = _by_item(base, others, cost)
    if by_item is not None:
        return {**by_item}
    units = {name: units_of(base, trials, cost.path, paired=True) for name, trials in others.items()}
    shown: dict[str, bool | str] = {
        name: why
        for name, of_level in units.items()
        if (why := _why_untested(of_level, max(len(base), len(others[name]))))
    }
    pairs = {
        name: (of_level.base, of_level.new)
        for name, of_level in units.items()
        if name not in shown and of_level.are_enough
    }
    tests = compare_family(pairs, better=cost.better)
    shown |= {name: _shows_less(test, cost) for name, test in tests.items() if test.reachable_p * len(tests) <= ALPHA}
    return shown


def _shows_less(test: Comparison, cost: ComparedMetric) -> bool:
    """Return whether a test shows a lower cost, however small the difference: there is no margin of a saving."""
    return test.p_adjusted <= ALPHA and (test.effect < 0 if cost.better == "lower" else test.effect > 0)


def _why_untested(units: Units, trials: int) -> str | None:
    """Return why no test is possible, None where it is only a matter of more trials; `trials` is their number."""
    if units.are_apart:
        return APART
    if not units.base or not units.new:
        return NO_BLOCK
    return ONE_START if units.kind == "start" and min(units.starts) < 2 and trials > 1 else None


def _by_item(base: Trials, others: Mapping[str, Trials], cost: ComparedMetric) -> dict[str, bool] | None:
    """Return the same by costs of the same items, clusters whole; None where the answers do not have this cost."""
    name = cost.path.removeprefix("quality.")
    if name == cost.path or not others:
        return None
    first = item_values(base, name)
    known = {of: item_values(trials, name) for of, trials in others.items()}
    if not first or not all(known.values()):
        return None
    tests = {}
    for of, values in known.items():
        items = [item for item in first if item in values]
        if not items:
            return None
        labels = [label for _, label in items]
        one, other = ([side[item] for item in items] for side in (first, values))
        tests[of] = paired_test(one, other, clusters=None if None in labels else labels)
    sign = 1 if cost.better == "lower" else -1
    adjusted = holm([test.p for test in tests.values()])
    return {
        of: p <= ALPHA and sign * test.difference < 0 for (of, test), p in zip(tests.items(), adjusted, strict=True)
    }
