"""Restarts: which plans start servers anew for every block, in which order, and what stays as it is."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from shipped import SERVICES

from seamark.errors import UserError
from seamark.model.scenario import Comparing, Resources, Restarts, Scenario, Workload
from seamark.model.site import Site
from seamark.model.trial import Plan
from seamark.planning.plan import plan
from seamark.planning.plan_text import describe, plan_facts
from seamark.planning.study import SHIPPED
from seamark_evaluate.config.benchmark_files import task_of
from seamark_evaluate.tasks.benchmark import task_document

ROOT = Path(__file__).parents[2]
HERE = Site(name="here", summary="no batch system")


def scenario(restarts: Restarts | None, duration_s: float = 2.0, **levels: tuple[object, ...]) -> Scenario:
    load = Workload(
        name="known",
        component="llm",
        service="known",
        levels={"duration_s": (duration_s,), "warmup_s": (0,), **levels},
    )
    return Scenario(name="study", path=Path("study.yaml"), workloads=(load,), repetitions=6, restarts=restarts)


def planned(restarts: Restarts | None, duration_s: float = 2.0, **levels: tuple[object, ...]) -> Plan:
    return plan(scenario(restarts, duration_s, **levels), SERVICES, HERE)


def test_every_block_starts_each_level_once_in_an_order_of_its_own_with_its_trials_inside() -> None:
    made = planned("each", ttft_ms=(1, 2, 4), concurrency=(1, 2))
    assert len(made.deployments) == 18
    blocks = [[each.name for each in made.deployments if each.block == block] for block in range(1, 7)]
    assert all(len(set(names)) == 3 for names in blocks), "each level once in a block"
    assert [each.block for each in made.deployments] == sorted(each.block or 0 for each in made.deployments)
    assert len({tuple(names) for names in blocks}) > 1, "the order differs between blocks"
    starts = {each.id: each for each in made.deployments}
    assert len(starts) == 18
    for start, trials in made.by_deployment().items():
        assert [trial.block for trial in trials] == [starts[start].block] * 2
        assert {trial.id.partition("--")[0] for trial in trials} == {starts[start].name}
    assert [trial.deployment for trial in made.trials] == [each.id for each in made.deployments for _ in range(2)]


def test_a_declared_family_on_what_needs_another_server_starts_it_in_every_block() -> None:
    levels: dict[str, tuple[object, ...]] = {"ttft_ms": (1, 2), "concurrency": (1, 2)}
    short = scenario(None, 0.1, **levels)
    assert plan(short, SERVICES, HERE).restarts == "once", "starts are not cheap against loads of 0.1 s"
    for family, restarts in ((("ttft_ms",), "each"), (("concurrency",), "once")):
        made = plan(replace(short, compare=Comparing(family=family)), SERVICES, HERE)
        assert made.restarts == restarts
        assert {trial.id for trial in made.trials} == {trial.id for trial in plan(short, SERVICES, HERE).trials}
    asked = replace(short, restarts="once", compare=Comparing(family=("ttft_ms",)))
    [note] = [note for note in plan_facts(plan(asked, SERVICES, HERE)).notes if "ttft_ms" in note]
    assert "cannot be answered" in note


def test_restarts_change_no_name_no_seed_no_position_and_no_identity() -> None:
    once, each = (planned(kind, ttft_ms=(1, 2), concurrency=(1, 2)) for kind in ("once", "each"))
    assert len(once.deployments) == 2
    same = {trial.id: replace(trial, deployment="") for trial in once.trials}
    assert {trial.id: replace(trial, deployment="") for trial in each.trials} == same
    assert once.restarts == "once"
    assert once.factors_without_p == ("ttft_ms",)
    assert each.factors_without_p == ()


@pytest.mark.parametrize(
    ("duration_s", "levels", "kind"),
    [
        (30.0, {"ttft_ms": (1, 2)}, "each"),
        (2.0, {"ttft_ms": (1, 2)}, "once"),
        (30.0, {"concurrency": (1, 2)}, "once"),
    ],
)
def test_servers_start_for_every_block_where_they_are_compared_and_starts_are_cheap(
    duration_s: float, levels: dict[str, tuple[object, ...]], kind: str
) -> None:
    assert planned(None, duration_s, **levels).restarts == kind


def test_one_repetition_starts_once_and_several_workloads_are_no_comparison_of_starts() -> None:
    alone = plan(replace(scenario(None, 30.0, ttft_ms=(1, 2)), repetitions=1), SERVICES, HERE)
    assert alone.restarts == "once"
    first = scenario(None, 30.0)
    other = Workload(name="null", component="llm", service="null", levels={"duration_s": (30.0,), "warmup_s": (0,)})
    two = replace(first, workloads=(*first.workloads, other))
    assert plan(two, SERVICES, HERE).restarts == "once"


def test_a_plan_prices_both_kinds_and_gives_starts_in_blocks_their_statistics() -> None:
    each = scenario("each", ttft_ms=(1, 2), concurrency=(1, 2))
    facts, text = plan_facts(plan(each, SERVICES, HERE), SERVICES), describe(plan(each, SERVICES, HERE), SERVICES)
    assert (facts.deployments, facts.comparisons, facts.factors_without_p) == (2, 4, ())
    assert facts.smallest_p == pytest.approx(2 / 924)
    assert facts.starts_most_s["each"] == pytest.approx(6 * facts.starts_most_s["once"])
    assert "24 trials on 2 deployments with 12 starts" in text
    assert "each                     12 starts" in text
    assert "no p value for ttft_ms" in text
    assert "between starts" not in text
    once = plan_facts(plan(replace(each, restarts="once"), SERVICES, HERE), SERVICES)
    assert (once.comparisons, once.factors_without_p) == (2, ("ttft_ms",))
    assert once.starts_most_s == facts.starts_most_s
    assert "Restarts" not in describe(planned("once", concurrency=(1, 2)), SERVICES)


def test_resources_are_levels_of_starts_as_well() -> None:
    sized = replace(scenario("each", concurrency=(1,)), resources=Resources(mem_gb=(1, 2)))
    made = plan(sized, SERVICES, HERE)
    assert [len({each.mem_gb for each in made.deployments if each.block == block}) for block in range(1, 7)] == [
        2
    ] * 6


def evaluation(replicas: int, repetitions: int = 1, **levels: tuple[object, ...]) -> Plan:
    made = Workload(name="quality", component="evaluation", service="attention", levels={"model": ("m",), **levels})
    study = Scenario(
        name="study",
        path=Path("study.yaml"),
        workloads=(made,),
        repetitions=repetitions,
        replicas=replicas,
        restarts="once",
    )
    return plan(study, SERVICES, HERE)


TASKS = tuple(
    json.dumps(task_document(task_of(name, [SHIPPED / "config/benchmarks"])))
    for name in ("needles", "mock_benchmark", "ruler/vt", "ruler/fwe", "ruler/cwe")
)
METHODS = tuple(f'{{"name": "method{number}"}}' for number in range(3))


@pytest.mark.covers("B7")
def test_replicas_divide_the_tasks_of_a_model_with_all_methods_of_one_on_the_same_start() -> None:
    once, made = (evaluation(count, task=TASKS, method=METHODS) for count in (1, 2))
    assert [each.id.removeprefix(once.deployments[0].id) for each in made.deployments] == [".replica1", ".replica2"]
    assert {each.name for each in made.deployments} == {once.deployments[0].id}
    tasks = {start: {trial.settings["task"] for trial in trials} for start, trials in made.by_deployment().items()}
    first, second = tasks.values()
    assert not first & second
    assert sorted(map(len, tasks.values())) == [2, 3]
    assert sorted(map(len, made.by_deployment().values())) == [6, 9], "each task with its three methods"
    same = {trial.id: replace(trial, deployment="") for trial in once.trials}
    assert {trial.id: replace(trial, deployment="") for trial in made.trials} == same, "what is measured is kept"
    assert "15 trials on 1 deployment with 2 starts" in describe(made, SERVICES)
    twice = plan_facts(made, SERVICES).starts_most_s["once"]
    assert twice == pytest.approx(2 * plan_facts(once, SERVICES).starts_most_s["once"])


def test_repetitions_of_a_task_may_go_to_several_replicas_and_no_start_is_without_trials() -> None:
    made = evaluation(8, repetitions=2, task=TASKS[:1], method=METHODS)
    groups = {start: {trial.repetition for trial in trials} for start, trials in made.by_deployment().items()}
    assert sorted(groups.values(), key=min) == [{1}, {2}]
    assert [each.replica for each in evaluation(8, task=TASKS[:1]).deployments] == [None], "one group needs one start"


def test_replicas_of_what_has_no_task_or_no_server_of_its_own_are_refused() -> None:
    load = replace(scenario("once"), replicas=2)
    with pytest.raises(UserError, match="workload 'known' has no 'task', and replicas divide tasks among servers"):
        plan(load, SERVICES, HERE)
    asked = Workload(name="a", component="llm", service="attention", levels={"model": ("m",), "task": TASKS})
    inside = {**SERVICES, "attention": replace(SERVICES["attention"], server=None)}
    with pytest.raises(UserError, match="'attention' starts no server of which there could be replicas"):
        plan(replace(load, workloads=(asked,)), inside, HERE)
    with pytest.raises(UserError, match="site 'far' has one external server"):
        plan(load, SERVICES, Site(name="far", summary="one server", runtime="external"))
