"""A plan as text and as JSON: factors, time, cost, and the differences that its statistics can detect."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import get_args

from seamark.analysis.comparison.contrasts import contrasts_of, family_of, fewest_blocks, successions
from seamark.config.forms.table import is_structured, label_of
from seamark.config.levels import show
from seamark.dispatch.dispatcher import leaves_this_machine
from seamark.dispatch.order import Order, order_of, runs_several
from seamark.model.items import ItemCount, item_counts
from seamark.model.plurals import counted, in_percent
from seamark.model.scenario import Comparing, Restarts, why_no_p
from seamark.model.service import Service, Value
from seamark.model.site import Site
from seamark.model.trial import RESOURCES, SERVICE, Plan, Trial, levels_of
from seamark.patterns.trace_file import counted_from
from seamark.planning.plan_answers import (
    answer_lines,
    context_notes,
    detectable_scores,
)
from seamark.planning.plan_time import starts_of, time_of
from seamark.stats.compare import Method, method_of, reachable_p
from seamark.stats.decision import detectable_shift, repetitions_for

ALPHA = 0.05
POWER = 0.8
FIRST_TRIALS = 8
ITEM_BY_ITEM = " Scores of answers are compared item by item and need no repetitions."
BLOCKS: Mapping[Method, str] = {
    "rank-sum": ", where blocks do not differ; what they differ by adds to it",
    "signed-rank": ", however much blocks differ",
}
TESTS: Mapping[Method, str] = {"rank-sum": "rank-sum test", "signed-rank": "signed-rank test of blocks"}


@dataclass(frozen=True, kw_only=True)
class WorkloadFacts:
    """Treatments of a service, and the levels of what varies among them. Where its answers are scored and the number
    of `items` is known, `detectable_score` is the smallest difference of right answers that each can show, by the
    share of items with another score."""

    treatments: int
    factors: Mapping[str, tuple[Value, ...]]
    items: tuple[ItemCount, ...] = ()
    detectable_score: tuple[Mapping[str, float | None], ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlanFacts:
    """The numbers that `bench plan` prints.

    Statistics (`smallest_p` and the following fields) are those of the family that `bench compare` tests, as far as
    its treatments share a start of a server or have several; None without any. `environments_to_make` are those of
    services that the run must create first. `starts_least_s` and `starts_most_s` are the time of all starts by each
    kind of restarts.
    """

    scenario: str
    source: str
    seed: int
    trials: int
    treatments: int
    repetitions: int
    deployments: int
    factors: Mapping[str, Mapping[str, tuple[Value, ...]]]
    workloads: Mapping[str, WorkloadFacts]
    loads_s: float
    estimated_least_s: float
    estimated_typical_s: float
    estimated_most_s: float
    environments_to_make: tuple[str, ...]
    node_hours: float
    gpu_hours: float
    longest_deployment_s: float
    smallest_p: float | None
    comparisons: int
    smallest_p_holm: float | None
    repetitions_needed: int | None
    repetitions_needed_holm: int | None
    detectable_shift_sd: float | None
    detectable_shift_sd_one_more: float | None
    factors_without_p: tuple[str, ...]
    first_trials: tuple[str, ...]
    restarts: Restarts
    starts_least_s: Mapping[str, float]
    starts_most_s: Mapping[str, float]
    notes: tuple[str, ...] = ()


def plan_facts(
    plan: Plan,
    services: Mapping[str, Service] | None = None,
    site: Site | None = None,
    environment: Mapping[str, str] = os.environ,
    unmade: Sequence[str] = (),
    measured_s: Mapping[str, float] = MappingProxyType({}),
) -> PlanFacts:
    """Return the numbers of a plan. `services` and `site` make notes and times more exact, `environment` has the
    variables of the plan's paths, `measured_s` the lengths of finite loads by treatment."""
    sizes = {name: len({trial.treatment for trial in trials}) for name, trials in _by_service(plan).items()}
    declared = plan.compare or Comparing()
    comparisons = family_of(contrasts_of(plan, declared.baseline), plan)
    starts = {kind: starts_of(plan, services or {}, kind) for kind in get_args(Restarts)}
    time = time_of(plan, services or {}, len(unmade), measured_s)
    times = {name: span.most for name, span in time.deployments.items()}
    method = method_of(plan.repetitions, max(1, comparisons), ALPHA)
    best = reachable_p(method, plan.repetitions, plan.repetitions) if comparisons else None
    facts = PlanFacts(
        scenario=plan.scenario,
        source=plan.source,
        seed=plan.seed,
        trials=len(plan.trials),
        treatments=sum(sizes.values()),
        repetitions=plan.repetitions,
        deployments=len({deployment.name for deployment in plan.deployments}),
        factors=plan.factors,
        workloads={
            name: WorkloadFacts(
                treatments=sizes[name],
                factors=_factors(plan, trials),
                items=(items := _items(trials, (services or {}).get(name))),
                detectable_score=tuple(detectable_scores(count, max(1, comparisons)) for count in items),
            )
            for name, trials in _by_service(plan).items()
        },
        loads_s=time.loads.most,
        estimated_least_s=time.whole.least,
        estimated_typical_s=time.whole.typical,
        estimated_most_s=time.whole.most,
        environments_to_make=tuple(unmade),
        node_hours=sum(times[deployment.id] * deployment.nodes for deployment in plan.deployments) / 3600,
        gpu_hours=sum(times[deployment.id] * deployment.gpus for deployment in plan.deployments) / 3600,
        longest_deployment_s=max(times.values(), default=0.0),
        smallest_p=best,
        comparisons=comparisons,
        smallest_p_holm=None if best is None else min(1.0, best * comparisons),
        repetitions_needed=repetitions_for(ALPHA) if comparisons else None,
        repetitions_needed_holm=repetitions_for(ALPHA, comparisons) if comparisons else None,
        detectable_shift_sd=_detectable(plan.repetitions, comparisons),
        detectable_shift_sd_one_more=_detectable(plan.repetitions + 1, comparisons),
        factors_without_p=plan.factors_without_p,
        first_trials=tuple(trial.id for trial in plan.trials[:FIRST_TRIALS]),
        restarts=plan.restarts,
        starts_least_s={kind: span.least for kind, span in starts.items()},
        starts_most_s={kind: span.most for kind, span in starts.items()},
    )
    return replace(facts, notes=tuple(_notes(plan, facts, services or {}, site, environment)))


def describe(
    plan: Plan,
    services: Mapping[str, Service] | None = None,
    site: Site | None = None,
    unmade: Sequence[str] = (),
    measured_s: Mapping[str, float] = MappingProxyType({}),
) -> str:
    """Return the plan as text for a terminal; see `plan_facts`."""
    facts = plan_facts(plan, services, site, unmade=unmade, measured_s=measured_s)
    used = {deployment.service for deployment in plan.deployments}
    levels = levels_of(plan)
    virtual = all(name in (services or {}) and (services or {})[name].virtual_clock for name in used)
    lines = [
        f"Scenario {plan.scenario} ({plan.source})",
        "",
        f"  {counted(facts.treatments, 'treatment')} x {counted(plan.repetitions, 'repetition')}"
        f" = {counted(facts.trials, 'trial')}{_of_parties(plan)} on {counted(facts.deployments, 'deployment')}"
        + (f" with {len(plan.deployments)} starts" if plan.divided and not virtual else "")
        + f"; seed {plan.seed}",
        f"  about {duration(facts.estimated_typical_s)} ({duration(facts.estimated_least_s)} to"
        f" {duration(facts.estimated_most_s)}), of it"
        f" {duration(facts.loads_s)} of load; at most {facts.node_hours:.2f} node-hours"
        + (f", {facts.gpu_hours:.2f} GPU-hours" if facts.gpu_hours else ""),
        "",
        *_factor_lines(plan, facts, services or {}),
        "",
        *_design_lines(plan, facts, virtual=virtual),
        "",
        *(() if virtual else _start_lines(plan, facts)),
        "First trials",
        *(f"  {trial.id}{_of_defaults(trial, levels)}" for trial in plan.trials[:FIRST_TRIALS]),
    ]
    more = facts.trials - len(facts.first_trials)
    lines += [f"  ... and {more} more"] if more > 0 else []
    if facts.notes:
        lines += ["", *(f"Note: {note}" for note in facts.notes)]
    return "\n".join(lines)


def _of_defaults(trial: Trial, levels: Mapping[str, Mapping[str, Value]]) -> str:
    """Return the levels of a trial whose id names none, as all of its settings have their defaults."""
    if "--defaults-" not in trial.id:
        return ""
    own = levels[trial.treatment].items()
    return f"  ({', '.join(f'{name} {_levels(name, (value,))}' for name, value in own) or 'nothing varies'})"


def _of_parties(plan: Plan) -> str:
    """Return how many results trials of several parties have: one for each party under load, as in the report."""
    count = len(plan.measured)
    return f" with {counted(count, 'result')} of parties" if count > len(plan.trials) else ""


def duration(seconds: float) -> str:
    """Return a duration in its largest units: 45 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _factor_lines(plan: Plan, facts: PlanFacts, services: Mapping[str, Service]) -> list[str]:
    lines = ["Factors"]
    planned = {name: role for role, levels in plan.factors.items() for name in levels}
    if names := plan.factors.get("deployment", {}).get(SERVICE):
        lines.append(f"    {SERVICE:<20} {'deployment':<11} {_levels(SERVICE, names)}")
    for service, about in facts.workloads.items():
        own = services[service].settings if service in services else ()
        roles = dict.fromkeys(RESOURCES, "deployment") | {setting.name: setting.role for setting in own} | planned
        lines.append(f"  {service}: {counted(about.treatments, 'treatment')}")
        for name, levels in about.factors.items():
            role = roles.get(name, "workload")
            lines.append(f"    {name:<20} {role:<11} {_levels(name, levels)}")
        if not about.factors:
            lines.append("    nothing varies")
        searches = dict.fromkeys(trial.search for trial in plan.trials if trial.service == service)
        for search in filter(None, searches):
            span = f"{show(search.level(search.from_level))} to {show(search.level(search.to_level))}"
            lines.append(f"    {search.setting:<20} {'searched':<11} {span}, {duration(search.budget_s)} at most")
    return lines


def _design_lines(plan: Plan, facts: PlanFacts, *, virtual: bool) -> list[str]:
    count, comparisons = plan.repetitions, 0 if _by_item_alone(plan, facts.workloads) else facts.comparisons
    where = "in the same blocks" if plan.restarts == "each" else "of one start"
    test = TESTS[method_of(count, max(1, comparisons), ALPHA)]
    lines = [f"Detectable differences (two treatments {where}, exact two-sided {test})"]
    if facts.smallest_p is not None and comparisons:
        lines.append(f"  smallest p               {_number(facts.smallest_p)} with {counted(count, 'repetition')}")
    elif not facts.factors_without_p and not facts.comparisons:
        why = "one repetition has no spread" if virtual else "no start has two treatments to compare"
        lines.append(f"  nothing                  {why}")
    if comparisons > 1 and facts.smallest_p_holm is not None:
        lines.append(
            f"  after Holm               {_number(facts.smallest_p_holm)} in a family of {comparisons} comparisons"
            f" ({_family(plan)})"
        )
    if comparisons and facts.detectable_shift_sd is None:
        lines.append(f"  smallest effect          none: no difference, however large, can reach {ALPHA}")
    elif comparisons:
        lines.append(
            f"  smallest effect          {facts.detectable_shift_sd:.2f} x the standard deviation of a trial within"
            f" its block{BLOCKS[method_of(count, comparisons, ALPHA)]}, at {in_percent(POWER)} power (simulated)"
        )
    if comparisons and facts.detectable_shift_sd_one_more is not None:
        blocks = BLOCKS[method_of(count + 1, comparisons, ALPHA)]
        lines.append(f"  one more block           {facts.detectable_shift_sd_one_more:.2f} x{blocks}")
    lines += [
        line for about in facts.workloads.values() for line in answer_lines(about.items, about.detectable_score)
    ]
    if names := tuple(facts.factors_without_p):
        lines.append(f"  between starts           {why_no_p(names)}")
    return lines


def _by_item_alone(plan: Plan, workloads: Mapping[str, WorkloadFacts]) -> bool:
    """Return whether the design is for scores alone, which are compared item by item: the trials of one repetition
    have no spread."""
    return plan.repetitions == 1 and all(about.items for about in workloads.values())


def _items(trials: Sequence[Trial], service: Service | None) -> tuple[ItemCount, ...]:
    """Return the numbers of items of a service's trials, where their answers are scored; nothing where not known."""
    if service is None or service.judge is None:
        return ()
    return tuple(sorted(item_counts(trial.settings for trial in trials)))


def _start_lines(plan: Plan, facts: PlanFacts) -> list[str]:
    """Return what both kinds of restarts cost, where a factor needs another server."""
    if not plan.factors.get("deployment") or plan.repetitions == 1:
        return []
    once = sum(deployment.block in (None, 1) for deployment in plan.deployments)  # with all replicas
    counts = {"each": once * plan.repetitions, "once": once}
    words = {
        "each": "every block starts each server anew: a p value for every factor",
        "once": f"all blocks on one start: no p value for {', '.join(plan.factors['deployment'])}",
    }
    lines = ["Restarts"]
    for kind, count in counts.items():
        took = f"{duration(facts.starts_least_s[kind])} to {duration(facts.starts_most_s[kind])}"
        chosen = "  (planned)" if kind == plan.restarts else ""
        lines.append(f"  {kind:<24} {counted(count, 'start')}, {took} of starts; {words[kind]}{chosen}")
    return [*lines, ""]


def _detectable(repetitions: int, comparisons: int) -> float | None:
    """Return the smallest shift that the test of `bench compare` shows in a family of that size; None for none."""
    if not comparisons:
        return None
    paired = method_of(repetitions, comparisons, ALPHA) == "signed-rank"
    return detectable_shift(repetitions, ALPHA / comparisons, POWER, paired=paired)


def _family(plan: Plan) -> str:
    """Return which comparisons the family has: those that the scenario declares, else all of the first metric."""
    family = plan.compare.family if plan.compare else ()
    metrics = plan.compare.metrics if plan.compare else ()
    if family:
        return f"declared: {', '.join(family)}"
    return "each level with its baseline, by " + (", ".join(metrics) or "the first metric")


def _notes(
    plan: Plan,
    facts: PlanFacts,
    services: Mapping[str, Service],
    site: Site | None,
    environment: Mapping[str, str],
) -> list[str]:
    notes: list[str] = []
    if facts.environments_to_make:
        names = ", ".join(facts.environments_to_make)
        notes.append(f"environments to install first: {names}. The time includes download and installation.")
    declared = plan.compare.family if plan.compare else ()
    if lost := [name for name in declared if name in facts.factors_without_p]:
        remedy = "remove 'restarts: once'" if plan.repetitions > 1 else "set 'repetitions' to more than one"
        notes.append(
            f"what `compare: family` asks of {', '.join(lost)} cannot be answered: each level has one start of its"
            f" server. To answer it, {remedy}."
        )
    by_item = _by_item_alone(plan, facts.workloads)
    if facts.smallest_p is not None and facts.smallest_p > ALPHA and not by_item:
        notes.append(
            f"{counted(plan.repetitions, 'repetition')} cannot reach p = {ALPHA}: use at least"
            f" {facts.repetitions_needed} ('repetitions: {facts.repetitions_needed}')."
            + (ITEM_BY_ITEM if any(about.items for about in facts.workloads.values()) else "")
        )
    for about in facts.workloads.values():
        notes += context_notes(about.items, max(1, facts.comparisons))
    fewer = "fewer sets" if any(trial.parties for trial in plan.trials) else "'exclude'"
    if facts.comparisons > 1 and (facts.smallest_p_holm or 0.0) > ALPHA and not by_item:
        notes.append(
            ("what `compare: family` asks cannot be answered: " if declared else "")
            + f"for {facts.comparisons} comparisons at once (Holm) it takes {facts.repetitions_needed_holm}"
            f" repetitions, fewer comparisons in `compare: family`, or fewer treatments: fewer levels, or {fewer}."
        )
    if plan.compare is not None and plan.compare.carry_over:
        notes += [
            f"carry-over among {counted(len(treatments), 'treatment')} of {workload} can't be told from"
            f" {counted(plan.repetitions, 'block')}: use 'repetitions: {fewest_blocks(len(treatments))}'."
            for workload, treatments, _ in successions(plan)
            if plan.repetitions < fewest_blocks(len(treatments))
        ]
    for service in sorted({trial.service for trial in plan.trials}):
        contained = site is not None and site.in_images
        if service in services and (reason := services[service].unseen(contained=contained)):
            notes.append(f"{service}: {reason.strip()}")
    for trace in dict.fromkeys(str(name) for trial in plan.trials if (name := trial.settings.get("trace"))):
        with suppress(OSError, ValueError):
            if began := counted_from(trace):
                notes.append(f"times of {trace} are counted from its first row, {began}.")
    for name in sorted(_variables(plan) - set(environment)):
        notes.append(f"${name} is used in paths but is not set here: `export {name}=...` before a run.")
    if site is not None and site.parallel == 1 and not leaves_this_machine(site) and runs_several(site.order):
        notes.append(f"order '{site.order}': this site runs one deployment at a time; --parallel N lets N run.")
    if site is not None and facts.comparisons and (parted := _parted(site)):
        notes.append(
            f"order '{site.order}' measures the levels of {', '.join(parted)} one after another: comparisons of them"
            " have no p (confounded_with_time)."
        )
    limit = site.qos.get(plan.qos or "") if site is not None else None
    if limit is not None and facts.longest_deployment_s > limit:
        notes.append(
            f"a deployment takes up to {duration(facts.longest_deployment_s)}, but the QoS '{plan.qos}' ends a job"
            f" after {duration(limit)}. Use a longer one, or fewer trials for each deployment."
        )
    return notes


def _parted(site: Site) -> tuple[str, ...]:
    """Return the factors of which the order measures all starts of a level before those of the next one."""
    order: Order | None = order_of(site.order)
    names: list[str] = []
    while order is not None and order.groups == "in_sequence" and "block" not in order.factors:
        names += order.factors
        order = order.then
    return tuple(dict.fromkeys(names))


def _variables(plan: Plan) -> set[str]:
    """The environment variables in the plan's paths."""
    containers = (server.container for server in plan.served)
    paths = " ".join(path for path in (*containers, plan.dataset, *plan.binds) if path)
    return set(re.findall(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)", paths))


def _by_service(plan: Plan) -> dict[str, list[Trial]]:
    by_service: dict[str, list[Trial]] = {}
    for trial in plan.trials:
        by_service.setdefault(trial.service, []).append(trial)
    return dict(sorted(by_service.items()))


def _factors(plan: Plan, trials: list[Trial]) -> dict[str, tuple[Value, ...]]:
    """The factors of a service's trials, with levels in ascending order where they can be ordered."""
    names = dict.fromkeys(name for trial in trials for name in trial.settings)  # workloads may have some of their own
    levels = {name: tuple(dict.fromkeys(trial.settings.get(name) for trial in trials)) for name in names}
    served = [deployment for deployment in plan.deployments if deployment.service == trials[0].service]
    levels |= {name: tuple(dict.fromkeys(getattr(deployment, name) for deployment in served)) for name in RESOURCES}
    return {name: _sorted(values) for name, values in levels.items() if len(values) > 1}


def _sorted(values: tuple[Value, ...]) -> tuple[Value, ...]:
    numbers = all(value is None or isinstance(value, (int, float)) for value in values)
    return tuple(sorted(values, key=lambda value: (value is not None, value if numbers else str(value))))


def _levels(name: str, levels: Sequence[Value]) -> str:
    structured = is_structured(name)
    names = ("default" if at is None else label_of(name, str(at)) if structured else show(at) for at in levels[:12])
    shown = ("; " if structured else ", ").join(names)
    return f"{shown}, ... ({counted(len(levels), 'level')})" if len(levels) > 12 else shown


def _number(p: float) -> str:
    return f"{p:.2f}" if p >= 0.05 else f"{p:.2g}"
