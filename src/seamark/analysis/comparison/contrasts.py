"""Which treatments of a plan are compared: each level of a factor with its baseline, other factors fixed; and
which follow one another. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from seamark.model.objectives import primary_metric
from seamark.model.parties import SETS, names_in
from seamark.model.scenario import Comparing
from seamark.model.service import Value
from seamark.model.trial import SERVICE, Plan, Trial, levels_of

Levels = Mapping[str, Value]
OTHER_QUESTIONS = frozenset(("task", "max_requests", "generated_requests", "requests_file"))
"""Factors whose levels are other questions, or other numbers of them: a difference between them says nothing of what
answers, so they are compared only where `compare` names them."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Two treatments, by name. `factor` is what differs, None between two results, and `tied` are the factors that
    always change with it; `fixed` are the levels of the other factors. Of two services `base_own` and `new_own` are
    the levels that each was given alone."""

    workload: str
    base: str
    new: str
    factor: str | None = None
    base_level: Value = None
    new_level: Value = None
    tied: tuple[str, ...] = ()
    fixed: Levels = field(default_factory=dict)
    base_own: Levels = field(default_factory=dict)
    new_own: Levels = field(default_factory=dict)


def _idle(factor: str, level: Value, first: Value, names: Collection[str]) -> Levels:
    """Return the levels, None, of parties that are under load at one level of `sets` and idle in its baseline."""
    if factor != SETS.name:
        return {}
    idle = {*names_in(str(level))} - {*names_in(str(first))}
    return {name: None for name in names if name.partition(".")[0] in idle}


def contrasts_of(plan: Plan, baseline: Levels) -> tuple[Contrast, ...]:
    """Return every level of every factor against its baseline, in each combination of the other factors.

    The baseline of a factor is its level in `baseline`, else the first of the plan. Factors that always change
    together are compared as one, by the name of the first; `baseline` may name any of them. A combination without the
    baseline has no contrast, nor have factors of OTHER_QUESTIONS that `compare` does not name.

    What a service alone was given (`Trial.own`) is compared within this service. Other services are compared with the
    service that is the baseline at its baseline levels of that.
    """
    asked = {*baseline, *(plan.compare.family if plan.compare is not None else ())}
    levels, trials = levels_of(plan), {trial.treatment: trial for trial in plan.measured}
    written = {name: values for role in plan.factors.values() for name, values in role.items()}
    contrasts: list[Contrast] = []
    for workload, treatments in treatments_of(plan).items():
        of_workload = _Workload(
            name=workload,
            trials={treatment: trials[treatment] for treatment in treatments},
            levels={treatment: levels[treatment] for treatment in treatments},
            written=written,
            baseline=baseline,
        )
        for name, tied in of_workload.tied.items():
            together = {name, *tied}
            if together & asked or ("task" not in together and not together <= OTHER_QUESTIONS):
                contrasts += of_workload.contrasts(name)
    return tuple(contrasts)


@dataclass(frozen=True, kw_only=True)
class _Workload:
    """The treatments of one workload, each with its trial and its levels; the levels of factors as the scenario
    writes them, and the baseline that it asks for."""

    name: str
    trials: Mapping[str, Trial]
    levels: Mapping[str, Levels]
    written: Mapping[str, Sequence[Value]]
    baseline: Levels

    @cached_property
    def tied(self) -> Mapping[str, tuple[str, ...]]:
        """The factors, each with those that always change with it."""
        return _tied(self.levels)

    @cached_property
    def own(self) -> frozenset[str]:
        """The factors that a service alone was given."""
        return frozenset(name for trial in self.trials.values() for name in trial.own or () if name in self.tied)

    @cached_property
    def of_services(self) -> Mapping[Value, list[str]]:
        """The treatments of each service."""
        groups: dict[Value, list[str]] = {}
        for treatment, trial in self.trials.items():
            groups.setdefault(trial.service, []).append(treatment)
        return groups

    def order(self, name: str, treatments: Iterable[str]) -> list[Value]:
        """Return the levels of a factor that some treatments have, in the order of the scenario."""
        return ordered([self.levels[treatment][name] for treatment in treatments], self.written.get(name, ()))

    def first(self, name: str, treatments: Sequence[str]) -> Value:
        """Return the baseline level of a factor among some treatments. `baseline` may name any factor that is tied to
        it; without a known level there it is the first level of the service alone, else of the plan."""
        for tied in (name, *self.tied[name]):
            for levels in (self.levels[treatment] for treatment in treatments if tied in self.baseline):
                if key(levels[tied]) == key(self.baseline[tied]):
                    return levels[name]
        order = self.order(name, treatments)
        places = {treatment: (self.trials[treatment].own or {}).get(name, 0) for treatment in treatments}
        return self.levels[min(treatments, key=lambda of: (places[of], order.index(self.levels[of][name])))][name]

    def contrasts(self, name: str) -> Iterator[Contrast]:
        """Yield the levels of a factor against its baseline, in the order of the levels."""
        names = [name, *(other for other in self.tied if other != name)]
        at = {key_of(levels, names): treatment for treatment, levels in self.levels.items()}
        ranks = {n: {key(level): rank for rank, level in enumerate(self.order(n, self.levels))} for n in names}
        apart = self.own if name == SERVICE else frozenset()
        for treatments in self.of_services.values() if name in self.own else [[*self.levels]]:
            first = self.first(name, treatments)
            beside = {factor: self.first(factor, self.of_services[first]) for factor in apart}
            for treatment in sorted(treatments, key=lambda of: [ranks[n][key(self.levels[of][n])] for n in names]):
                levels = self.levels[treatment]
                idle = _idle(name, levels[name], first, names)
                base = at.get(key_of({**levels, name: first, **idle, **beside}, names))
                if key(levels[name]) != key(first) and base is not None:
                    yield Contrast(
                        workload=self.name,
                        factor=name,
                        base=base,
                        new=treatment,
                        base_level=first,
                        new_level=levels[name],
                        tied=self.tied[name],
                        fixed={factor: levels[factor] for factor in self.tied if factor not in {name, *apart}},
                        base_own={n: self.levels[base][n] for n in self.trials[base].own or () if n in apart},
                        new_own={n: levels[n] for n in self.trials[treatment].own or () if n in apart},
                    )


def treatments_of(plan: Plan) -> dict[str, list[str]]:
    """Return the treatments of each workload, in the order of the plan."""
    groups: dict[str, dict[str, None]] = {}
    for trial in plan.measured:
        groups.setdefault(trial.group, {})[trial.treatment] = None
    return {workload: list(treatments) for workload, treatments in groups.items()}


def family_of(contrasts: Sequence[Contrast], plan: Plan) -> int:
    """Return how many tests the declared or default family of a plan has, as far as its starts allow a test."""
    comparing = plan.compare or Comparing()
    factors = factors_of(contrasts)
    metrics = [name for name in comparing.family if name not in factors] or comparing.metrics
    starts: dict[str, set[str]] = {}
    for trial in plan.measured:
        starts.setdefault(trial.treatment, set()).add(trial.deployment)
    in_blocks = plan.restarts == "each" and plan.repetitions > 1
    virtual = {deployment.id for deployment in plan.deployments if in_blocks and deployment.block is None}

    def allows_test(one: set[str], other: set[str]) -> bool:
        """On the same starts, on two starts each, or in several blocks on a virtual clock, which has no starts."""
        return bool(one & other) or min(len(one), len(other)) > 1 or one | other <= virtual

    testable = sum(
        in_family(contrast, comparing, factors) and allows_test(starts[contrast.base], starts[contrast.new])
        for contrast in contrasts
    )
    return testable * max(1, len(metrics))


def factors_of(contrasts: Sequence[Contrast]) -> frozenset[str]:
    """Return the factors of contrasts, with those that are tied to them."""
    return frozenset(
        name for contrast in contrasts if contrast.factor is not None for name in (contrast.factor, *contrast.tied)
    )


def in_family(contrast: Contrast, comparing: Comparing, factors: Collection[str]) -> bool:
    """Return whether a contrast belongs to the declared family: all do unless `family` names factors."""
    named = [name for name in comparing.family if name in factors]
    return not named or any(name in named for name in (contrast.factor, *contrast.tied))


def primaries(plan: Plan) -> Mapping[str, str]:
    """Return the primary metric of each workload."""
    return {
        trial.group: primary_metric(trial.component, searched=trial.search is not None, closed=trial.load.closed)
        for trial in plan.measured
    }


def key(level: Value) -> tuple[type, Value]:
    """Return a level with its type, as True is not the level 1."""
    return type(level), level


def sorted_levels(levels: Sequence[Value]) -> list[Value]:
    """Return levels in ascending order where all are numbers, else as they come."""
    numbers = [level for level in levels if isinstance(level, (int, float))]
    return [*sorted(numbers)] if len(numbers) == len(levels) else list(levels)


def _tied(own: Mapping[str, Levels]) -> dict[str, tuple[str, ...]]:
    """Return the factors without those that divide the treatments as an earlier one does, and these by that one."""
    alike: dict[Any, list[str]] = {}
    for name in next(iter(own.values()), {}):
        places: dict[Any, list[int]] = {}
        for index, levels in enumerate(own.values()):
            places.setdefault(key(levels[name]), []).append(index)
        alike.setdefault(tuple(map(tuple, places.values())), []).append(name)
    return {first: tuple(others) for first, *others in alike.values()}


def key_of(levels: Levels, names: Sequence[str]) -> tuple[tuple[type, Value], ...]:
    """Return the levels of some factors as a key."""
    return tuple(key(levels.get(name)) for name in names)


def ordered(levels: Sequence[Value], written: Sequence[Value]) -> list[Value]:
    """Return levels, without duplicates, in the order of the scenario; those that it does not list come last."""
    there = {key(level): level for level in levels}
    first = [level for level in written if key(level) in there]
    return [*first, *(level for at, level in there.items() if at not in {key(listed) for listed in first})]


class Succession(NamedTuple):
    """Treatments of a workload that follow one another in each block: on one server, or (not `shared`) each on a
    start of its own."""

    workload: str
    treatments: tuple[str, ...]
    shared: bool


def fewest_blocks(treatments: int) -> int:
    """Return from how many blocks on effects of predecessors are told."""
    return 2 * treatments


def successions(plan: Plan) -> list[Succession]:
    """Return the treatments whose predecessors can be compared. Several on one server follow one another there; where
    each has a server of its own, and each block starts them all, the starts do."""
    names = plan.names
    groups: dict[tuple[str, str | None], dict[str, dict[str, None]]] = {}
    for trial in plan.measured:
        servers = groups.setdefault((trial.group, trial.party), {})
        servers.setdefault(names.get(trial.deployment, trial.deployment), {})[trial.treatment] = None
    found = []
    for (workload, _), servers in groups.items():
        several = [tuple(treatments) for treatments in servers.values() if len(treatments) > 1]
        found += [Succession(workload, treatments, shared=True) for treatments in several]
        if not several and len(servers) > 1 and plan.restarts == "each":
            each = tuple(name for treatments in servers.values() for name in treatments)
            found.append(Succession(workload, each, shared=False))
    return found
