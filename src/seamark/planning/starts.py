"""How often servers start: once for all blocks of trials, or anew for every block, and how many replicas of each
divide the tasks. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from seamark.model.scenario import Restarts, Scenario
from seamark.model.service import Service, Value
from seamark.model.trial import Deployment, Plan, Trial, replica_mark
from seamark.planning.identity import block_order
from seamark.planning.plan_time import TYPICAL_AROUND_S, load_of, typical_start_s

TASK = "task"
"""The setting whose levels are divided among replicas."""
CHEAP = 0.5
"""Starts that take at most this ratio of the load between them are cheap."""


def restarts_of(
    scenario: Scenario, plan: Plan, services: Mapping[str, Service], virtual: Collection[str] = ()
) -> Restarts:
    """Return how often the servers of a plan with one start for all blocks should start.

    What the scenario says; else `each` where a workload varies what needs another server, so that its levels can only
    be compared by their starts, and the scenario declares their comparison or starts are cheap against the load
    between them. Where all services are `virtual`, on a virtual clock, there are no starts that trials could share.
    """
    if plan.deployments and all(deployment.service in virtual for deployment in plan.deployments):
        return "each"
    if scenario.restarts is not None:
        return scenario.restarts
    compared = _compared(plan)
    if plan.repetitions == 1 or not compared:
        return "once"
    if plan.compare is not None and not plan.factors["deployment"].keys().isdisjoint(plan.compare.family):
        return "each"
    load_s = sum(
        load_of(trial, services.get(trial.service)).most for trial in plan.trials if trial.deployment in compared
    )
    starts_s = sum(
        (typical_start_s(deployment, services) + TYPICAL_AROUND_S) * plan.repetitions
        for deployment in plan.deployments
        if deployment.id in compared
    )
    return "each" if starts_s <= CHEAP * load_s else "once"


def started_in_blocks(plan: Plan, virtual: Collection[str] = ()) -> Plan:
    """Return a plan in which every block starts each server once, in random order (balanced for predecessors where
    the scenario asks for carry-over), with its trials inside.

    Deployments of the services in `virtual` have no server, and stay as they are.
    """
    starts: list[Deployment] = [deployment for deployment in plan.deployments if deployment.service in virtual]
    real = {deployment.id: deployment for deployment in plan.deployments if deployment.service not in virtual}
    balanced = plan.compare is not None and plan.compare.carry_over
    for block in range(1, plan.repetitions + 1):
        ordered = block_order(real, plan.seed, "starts", block, balanced=balanced)
        starts += [real[name].started_for(block) for name in ordered]
    trials = plan.by_deployment()
    return replace(
        plan,
        restarts="each",
        deployments=tuple(starts),
        trials=tuple(
            trial.moved_to(start)
            for start in starts
            for trial in trials[start.name]
            if start.block in (None, trial.block)
        ),
    )


def divided_among_replicas(plan: Plan, count: int, services: Mapping[str, Service]) -> Plan:
    """Return a plan in which the tasks of each start are divided among up to `count` replicas of it.

    All trials of one task and repetition, which differ by what needs no other server, such as methods, stay together.
    Each goes, in the order of the plan, to the replica with the least load so far.
    """
    if count == 1:
        return plan
    trials = plan.by_deployment()
    deployments: list[Deployment] = []
    moved: list[Trial] = []
    for start in plan.deployments:
        groups: dict[tuple[Value, int], list[Trial]] = {}
        for trial in trials[start.id]:
            groups.setdefault((trial.settings.get(TASK), trial.repetition), []).append(trial)
        inside: list[list[Trial]] = [[] for _ in range(min(count, len(groups)))]
        loads_s = [0.0] * len(inside)
        for group in groups.values():
            least = loads_s.index(min(loads_s))
            inside[least] += group
            loads_s[least] += sum(load_of(trial, services.get(trial.service)).most for trial in group)
        for number, members in enumerate(inside, 1):
            part = replace(start, id=start.id + replica_mark(number), replica=number)
            deployments.append(part if len(inside) > 1 else start)
            moved += (trial.moved_to(deployments[-1]) for trial in members)
    return replace(plan, deployments=tuple(deployments), trials=tuple(moved))


def _compared(plan: Plan) -> frozenset[str]:
    """Return the deployments of workloads that have several: what is compared between starts."""
    of_group: dict[str, set[str]] = {}
    for trial in plan.trials:
        of_group.setdefault(trial.group, set()).add(trial.deployment)
    return frozenset(name for names in of_group.values() if len(names) > 1 for name in names)
