"""Which treatments of two results are compared: those with equal settings, but for what differs everywhere. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seamark.analysis.comparison.contrasts import Contrast, key, key_of, ordered, sorted_levels
from seamark.errors import UserError, did_you_mean
from seamark.model.plurals import counted
from seamark.model.results.comparison import Difference
from seamark.model.service import Value
from seamark.model.trial import SERVICE, Plan, settings_of

Settings = Mapping[str, Value]
MOST_LEVELS = 6


@dataclass(frozen=True, kw_only=True)
class Source:
    """One of two results, by the name that it is shown by."""

    name: str
    plan: Plan


@dataclass(frozen=True, kw_only=True)
class Matched:
    """The treatments that two results have in common, the settings that differ between them, and what was left out.
    The names of treatments in `contrasts` begin with `base: ` or `new: `."""

    contrasts: tuple[Contrast, ...]
    settings: tuple[Difference, ...]
    notes: tuple[str, ...]


def matched(base: Source, new: Source) -> Matched:
    """Return the pairs of treatments with equal settings.

    A setting that has one value in each result, but another one, is what differs: it is named and not matched by.
    Workloads belong together by name, or if each result has a single one. Raises UserError without a common
    treatment. The pairs stand in the order of their levels in the baseline's scenario.
    """
    contrasts: list[Contrast] = []
    settings: dict[str, Difference] = {}
    notes, reasons = [], []
    for workload, baseline, other in _workloads(base, new):
        varying = _varying(baseline) | _varying(other)
        for difference in _differing(baseline, other, varying):
            known = settings.get(difference.fact, difference)
            sides = ((*known.base, *difference.base), (*known.new, *difference.new))
            ours, theirs = (tuple(dict.fromkeys(values)) for values in sides)
            settings[difference.fact] = Difference(fact=difference.fact, base=ours, new=theirs)
        names = [name for name in _names(baseline, other) if name in varying]
        places = {key_of(levels, names): treatment for treatment, levels in other.items()}
        pairs = {
            treatment: places[at] for treatment, levels in baseline.items() if (at := key_of(levels, names)) in places
        }
        shown = [name for name in names if len({key(baseline[treatment].get(name)) for treatment in pairs}) > 1]
        ranks = _ranks(base.plan, baseline, shown)
        by_level = sorted(pairs, key=lambda mine: [ranks[name][key(baseline[mine].get(name))] for name in shown])
        contrasts += [
            Contrast(
                workload=workload,
                base=f"base: {mine}",
                new=f"new: {pairs[mine]}",
                fixed={name: baseline[mine].get(name) for name in shown},
            )
            for mine in by_level
        ]
        for source, count in ((base, len(baseline) - len(pairs)), (new, len(other) - len(pairs))):
            if pairs and count:
                of = "" if base.plan.scenario == workload else f" of {workload}"
                notes.append(
                    f"{counted(count, 'treatment')}{of} in {source.name} without a counterpart: not compared"
                )
        if not pairs:
            reasons.append(_apart(workload, baseline, other, names, base.name, new.name))
    if not contrasts:
        raise UserError(f"{base.name} and {new.name} have no treatment in common: {'; '.join(reasons)}.")
    return Matched(contrasts=tuple(contrasts), settings=tuple(settings.values()), notes=tuple(notes))


def _ranks(plan: Plan, side: Mapping[str, Settings], names: Sequence[str]) -> dict[str, dict[object, int]]:
    """Return the place of each level of each factor: as the scenario writes it, else by size."""
    written = {name: values for role in plan.factors.values() for name, values in role.items()}
    orders = {name: ordered(sorted_levels(_levels(side, name)), written.get(name, ())) for name in names}
    return {name: {key(level): rank for rank, level in enumerate(order)} for name, order in orders.items()}


def _workloads(base: Source, new: Source) -> list[tuple[str, Mapping[str, Settings], Mapping[str, Settings]]]:
    one, other = _grouped(base.plan), _grouped(new.plan)
    common = [name for name in one if name in other]
    if common:
        return [(name, one[name], other[name]) for name in common]
    if len(one) == len(other) == 1:
        [(name, mine)], [(_, its)] = one.items(), other.items()
        return [(name, mine, its)]
    guess = next((hint for name in other if (hint := did_you_mean(name, one))), "")
    raise UserError(
        f"{base.name} and {new.name} have no workload in common: {', '.join(one)} and {', '.join(other)}.{guess}"
    )


def _grouped(plan: Plan) -> dict[str, dict[str, Settings]]:
    settings = settings_of(plan)
    workloads: dict[str, dict[str, Settings]] = {}
    for trial in plan.measured:
        all_settings = {SERVICE: trial.service, **settings[trial.treatment]}
        workloads.setdefault(trial.group, {}).setdefault(trial.treatment, all_settings)
    return workloads


def _names(*sides: Mapping[str, Settings]) -> list[str]:
    return list(dict.fromkeys(name for side in sides for levels in side.values() for name in levels))


def _varying(side: Mapping[str, Settings]) -> set[str]:
    return {name for name in _names(side) if len(_levels(side, name)) > 1}


def _levels(side: Mapping[str, Settings], name: str) -> list[Value]:
    return list({key(levels.get(name)): levels.get(name) for levels in side.values()}.values())


def _differing(one: Mapping[str, Settings], other: Mapping[str, Settings], varying: set[str]) -> list[Difference]:
    differences = []
    for name in _names(one, other):
        if name not in varying:
            [mine], [its] = _levels(one, name), _levels(other, name)
            if key(mine) != key(its):
                differences.append(Difference(fact=name, base=(_shown(mine),), new=(_shown(its),)))
    return differences


def _apart(
    workload: str,
    one: Mapping[str, Settings],
    other: Mapping[str, Settings],
    names: Sequence[str],
    base: str,
    new: str,
) -> str:
    """Return a factor that has no level in common, with the levels of both; or that no combination is."""
    for name in names:
        mine, its = _levels(one, name), _levels(other, name)
        if not {key(level) for level in mine} & {key(level) for level in its}:
            return f"{name} of {workload} is {_list(mine)} in {base} and {_list(its)} in {new}"
    return f"no combination of {', '.join(names)} of {workload} is in both"


def _list(levels: Sequence[Value]) -> str:
    shown = [_shown(level) for level in sorted_levels(levels)[:MOST_LEVELS]]
    return ", ".join(shown) + (", ..." if len(levels) > MOST_LEVELS else "")


def _shown(level: Value) -> str:
    return "default" if level is None else str(level).lower() if isinstance(level, bool) else str(level)
