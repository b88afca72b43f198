"""What `bench plan` says: sizes, time, cost, statistics, and notes on what the design cannot tell."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from shipped import SERVICES

from seamark.config.read import read_scenario, read_site
from seamark.errors import UserError
from seamark.model.scenario import Artifacts, Resources, Scenario, Workload
from seamark.model.site import Partition, Site
from seamark.planning.plan import plan
from seamark.planning.plan_text import describe, duration, plan_facts
from seamark.planning.study import Study
from seamark.storage.codec import encode
from seamark.trials.lane import pending_units
from seamark.workflow.lanes import require_order

ROOT = Path(__file__).parents[2]
HERE = Site(name="here", summary="no batch system")


def study(repetitions: int = 3, resources: Resources | None = None, **levels: tuple[object, ...]) -> Scenario:
    load = Workload(name="files", component="storage", service="fileio", levels={"duration_s": (9.0,), **levels})
    return Scenario(
        name="study",
        path=Path("study.yaml"),
        workloads=(load,),
        repetitions=repetitions,
        resources=resources or Resources(),
    )


@pytest.mark.covers("E-AC04", "E-FR01", "E-EX")
def test_the_sample_scenario_is_described_with_its_numbers() -> None:
    site = read_site(ROOT / "config" / "sites" / "meluxina.yaml")
    path = ROOT / "config" / "scenarios" / "llm_vllm_baseline.yaml"
    text = describe(plan(read_scenario(path, SERVICES), SERVICES, site), SERVICES, site)
    assert "18 treatments x 3 repetitions = 54 trials on 1 deployment; seed 0" in text
    assert "concurrency          workload    1, 8, 32" in text
    assert "smallest p               0.10 with 3 repetitions" in text
    assert "3 repetitions cannot reach p = 0.05: use at least 4" in text
    assert "in a family of 33 comparisons" in text
    assert "vllm: The container, vLLM's own image for GPUs, was not run yet." in text
    assert "... and 46 more" in text


def test_time_is_a_span_that_counts_loads_and_what_is_around_them() -> None:
    facts = plan_facts(plan(study(3, concurrency=(1, 2)), SERVICES, HERE), SERVICES)
    assert facts.loads_s == pytest.approx(6 * (9 + 1))
    assert facts.loads_s + 6 * 0.2 < facts.estimated_least_s < facts.estimated_most_s
    assert 0 < facts.node_hours * 3600 < facts.estimated_most_s
    assert facts.gpu_hours == 0


@pytest.mark.parametrize(
    ("name", "unmade", "took_s"),
    [
        ("quickstart", ("faiss", "postgres", "s3", "triton"), 172.0),
        ("quickstart", (), 155.0),
        ("vectors_milvus_local", ("milvus",), 235.0),
        ("vectors_milvus_local", (), 146.0),
    ],
)
def test_runs_that_were_measured_lie_in_the_span_of_their_plan(
    name: str, unmade: tuple[str, ...], took_s: float
) -> None:
    """Wall-clock times of `bench submit` in new studies on two cores, idle (quickstart) and busy with seven times as
    much (Milvus; the wait for another load on the node taken off), with and without the making of environments."""
    site = read_site(ROOT / "config" / "sites" / "local.yaml")
    scenario = read_scenario(ROOT / "config" / "scenarios" / f"{name}.yaml", SERVICES)
    made = plan(scenario, SERVICES, site)
    facts = plan_facts(made, SERVICES, site, unmade=unmade)
    assert facts.estimated_least_s <= took_s <= facts.estimated_most_s
    assert facts.loads_s < facts.estimated_least_s
    text = describe(made, SERVICES, site, unmade)
    assert f"{duration(facts.estimated_least_s)} to {duration(facts.estimated_most_s)}" in text
    assert ("environments to install first: " + ", ".join(unmade) in text) is bool(unmade)


def test_a_trial_whose_id_names_no_level_has_its_levels_beside_it() -> None:
    text = describe(plan(study(1, concurrency=(1, 2)), SERVICES, HERE), SERVICES)
    assert {line.partition("  (")[2] for line in text.splitlines() if "--defaults-" in line} == {"concurrency 1)"}
    assert sum("--r1" in line and "(" in line for line in text.splitlines()) == 1
    alone = describe(plan(study(1), SERVICES, HERE), SERVICES)
    assert alone.endswith("--r1  (nothing varies)")


def test_cost_counts_the_nodes_and_gpus_of_each_deployment() -> None:
    resources = Resources(nodes=(2,), gpus=(0, 8))
    facts = plan_facts(plan(study(2, resources), SERVICES, HERE), SERVICES)
    one_s = facts.longest_deployment_s
    assert one_s > 2 * 10
    assert facts.node_hours == pytest.approx(2 * 2 * one_s / 3600)
    assert facts.gpu_hours == pytest.approx(8 * one_s / 3600)
    assert facts.workloads["fileio"].factors == {"gpus": (0, 8)}


@pytest.mark.parametrize(("repetitions", "p", "warns"), [(3, 0.1, True), (4, 0.0286, False), (5, 0.0079, False)])
def test_a_design_that_cannot_reach_significance_is_told_so(repetitions: int, p: float, warns: bool) -> None:
    facts = plan_facts(plan(study(repetitions, concurrency=(1, 2)), SERVICES, HERE))
    assert facts.smallest_p == pytest.approx(p, rel=0.01)
    assert any("cannot reach p = 0.05" in note for note in facts.notes) is warns
    assert (facts.detectable_shift_sd is None) is warns


def test_a_single_treatment_is_compared_with_nothing_and_so_not_warned_about() -> None:
    facts = plan_facts(plan(study(2), SERVICES, HERE))
    assert facts.notes == ()


def test_a_family_of_many_comparisons_needs_more_repetitions() -> None:
    facts = plan_facts(plan(study(4, concurrency=(1, 2, 3, 4)), SERVICES, HERE))
    assert facts.comparisons == 3
    assert facts.smallest_p_holm == pytest.approx(3 * 2 / 70)
    assert any("for 3 comparisons at once (Holm) it takes 5" in note for note in facts.notes)


@pytest.mark.covers("E-MR05")
@pytest.mark.parametrize(("environment", "notes"), [({}, ["DATA", "WORK"]), ({"WORK": "/x", "DATA": "/y"}, [])])
def test_a_variable_of_a_path_that_is_not_set_is_noted(environment: dict[str, str], notes: list[str]) -> None:
    files = replace(study(2), artifacts=Artifacts(container="$WORK/x.sif"), binds=("${DATA}/y:/y",))
    facts = plan_facts(plan(files, SERVICES, HERE), SERVICES, HERE, environment)
    assert [note.split()[0] for note in facts.notes] == [f"${name}" for name in notes]


def test_a_factor_with_one_start_for_each_level_gets_neither_a_p_nor_a_smallest_effect() -> None:
    made = plan(study(5, files=(1, 2)), SERVICES, HERE)
    facts, text = plan_facts(made, SERVICES, HERE), describe(made, SERVICES, HERE)
    assert facts.factors_without_p == ("files",)
    statistics = ("smallest_p", "smallest_p_holm", "detectable_shift_sd", "repetitions_needed")
    assert {getattr(facts, name) for name in statistics} == {None}
    assert "0.0079" not in text
    assert "smallest p " not in text
    assert "no p and no smallest effect: each level of files is measured on one start" in text
    assert facts.notes == ()


def test_factors_within_a_start_keep_their_statistics_beside_a_factor_of_starts() -> None:
    made = plan(replace(study(5, files=(1, 2), concurrency=(1, 2, 4)), restarts="once"), SERVICES, HERE)
    facts, text = plan_facts(made, SERVICES, HERE), describe(made, SERVICES, HERE)
    assert facts.smallest_p == pytest.approx(2 / 252)
    assert facts.comparisons == 4, "two levels with their baseline, on each of two starts"
    assert facts.detectable_shift_sd is not None
    assert "smallest p               0.0079 with 5 repetitions" in text
    assert "no p and no smallest effect: each level of files" in text


@pytest.mark.covers("E-MR01")
def test_a_deployment_that_outlasts_its_qos_is_noted() -> None:
    site = Site(
        name="x",
        summary="",
        partitions={"cpu": Partition(nodes=4, cpus=8, mem_gb=64)},
        qos={"default": 60, "long": 9999},
    )
    notes = plan_facts(plan(study(5, concurrency=(1, 2)), SERVICES, site), SERVICES, site).notes
    said = r"a deployment takes up to 2 min \d+ s, but the QoS 'default' ends a job after 1 min 0 s"
    assert any(re.search(said, note) for note in notes)


def test_the_facts_are_json() -> None:
    facts = encode(plan_facts(plan(study(3, concurrency=(1, 2), directory=(None, "/x")), SERVICES, HERE), SERVICES))
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts


@pytest.mark.parametrize(("seconds", "text"), [(59.4, "59 s"), (59.6, "1 min 0 s"), (7500, "2 h 5 min")])
def test_a_duration_is_shown_in_the_units_that_matter(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_what_was_not_seen_in_a_container_is_noted_only_where_one_is_used() -> None:
    path = ROOT / "config" / "scenarios" / "llm_vllm_local.yaml"
    here = plan(read_scenario(path, SERVICES), SERVICES, HERE)
    assert "vLLM's own image" not in describe(here, SERVICES, HERE)
    contained = replace(HERE, runtime="apptainer")
    assert "vLLM's own image" in describe(here, SERVICES, contained)


def test_a_setting_that_is_left_out_is_shown_as_the_report_shows_it() -> None:
    talks = Study.at(ROOT, scenario="talks_known")
    [line] = [each for each in describe(talks.plan).splitlines() if each.strip().startswith("rate_rps")]
    assert line.split()[2:] == ["default,", "10,", "20,", "80"]


def test_answers_of_one_repetition_are_compared_item_by_item_and_need_no_p_of_repetitions() -> None:
    study = Study.at(ROOT, scenario="evaluation_basic")
    text = describe(study.plan, study.services, study.site)
    assert "scores of 5 items" in text
    assert "however large" not in text
    assert "repetitions:" not in text


def test_results_of_parties_are_counted_as_the_report_counts_them(tmp_path: Path) -> None:
    path = tmp_path / "co.yaml"
    path.write_text(
        "scenario: co\nrepetitions: 3\nworkload:\n  duration_s: 1\n  sets: [[search], [search, ingest]]\n  parties:\n"
        "    search: {service: known, pattern: poisson, rate_rps: 20}\n"
        "    ingest: {service: 'null', concurrency: 2}\n"
    )
    made = plan(read_scenario(path, SERVICES, HERE), SERVICES, HERE)
    assert (len(made.trials), len(made.measured)) == (6, 9)
    assert "6 trials with 9 results" in describe(made, SERVICES, HERE)


TWO_WORKLOADS = """\
scenario: two
repetitions: 1
workloads:
  - {name: a, service: 'null', delay_ms: 1, duration_s: 1}
  - {name: b, service: 'null', delay_ms: 5, duration_s: 1}
"""


def test_a_setting_that_differs_between_workloads_has_the_role_that_its_recipe_gives_it(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(TWO_WORKLOADS)
    text = describe(plan(read_scenario(path, SERVICES, HERE), SERVICES, HERE), SERVICES, HERE)
    [line] = [each for each in text.splitlines() if each.strip().startswith("delay_ms")]
    assert line.split()[1:] == ["deployment", "1,", "5"]


def test_an_order_of_ones_own_gets_every_setting_and_is_tried_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config/scenarios").mkdir(parents=True)
    (tmp_path / "config/scenarios/two.yaml").write_text(TWO_WORKLOADS)
    (tmp_path / "own_order.py").write_text(
        "def slow_first(units):\n    return max(units, key=lambda unit: unit.levels['delay_ms'])\n"
        "def mistyped(units):\n    return max(units, key=lambda unit: unit.levels['dilay_ms'])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def at(order: str) -> Study:
        return Study.at(tmp_path, scenario="two", lanes=json.dumps({"order": order}))

    study = at("own_order:slow_first")
    require_order(study)
    assert [unit.levels["delay_ms"] for unit in pending_units(study, "two")] == [5.0, 1.0]
    require_order(at("unroll(delay_ms)"))
    with pytest.raises(UserError, match="dilay_ms"):
        require_order(at("own_order:mistyped"))
