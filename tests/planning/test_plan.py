"""Plans: which trials a scenario gives, what they are called, in which order they run, what stays when it grows."""

import json
import os
import random
import re
import subprocess
import sys
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shipped import SERVICES

from seamark.config.read import read_scenario, read_site
from seamark.errors import UserError
from seamark.model.scenario import Artifacts, Metadata, Resources, Scenario, Workload
from seamark.model.service import Service, Setting
from seamark.model.site import Partition, Site
from seamark.model.trial import Plan
from seamark.planning.identity import LONGEST, part, word
from seamark.planning.plan import plan
from seamark.storage.codec import encode
from seamark.storage.documents import read

ROOT = Path(__file__).parents[2]
HERE = Site(name="here", summary="no batch system")
TOY = Service(
    name="toy",
    component="inference",
    summary="a toy",
    version="1",
    licence="Apache-2.0",
    driver="toys:Toy",
    workers="wire",
    settings=(
        Setting(name="model", type="str", role="deployment", default="small", help="Which model."),
        Setting(name="parallel", type="int", role="deployment", default=1, minimum=1, help="GPUs of a layer."),
        Setting(name="batch", type="int", role="workload", default=1, minimum=1, help="Items of a request."),
        Setting(name="exact", type="bool", role="workload", default=False, help="Whether to be exact."),
    ),
)


def scenario(*workloads: dict[str, Any] | Workload, **fields: Any) -> Scenario:
    """Return a scenario of workloads of the toy; a dict gives levels, a tuple of levels being a factor."""
    made = [
        each
        if isinstance(each, Workload)
        else Workload(name="toy", component="inference", service="toy", levels=each)
        for each in workloads
    ]
    defaults = {"name": "study", "path": Path("study.yaml"), "workloads": tuple(made), "restarts": "once"}
    return Scenario(**defaults | fields)


def planned(*workloads: dict[str, Any] | Workload, site: Site = HERE, **fields: Any) -> Plan:
    return plan(scenario(*workloads, **fields), {"toy": TOY}, site)


def ids(each: Plan) -> set[str]:
    return {trial.id for trial in each.trials}


def workload(levels: dict[str, Any], **fields: Any) -> Workload:
    return Workload(name="toy", component="inference", service="toy", levels=levels, **fields)


def combinations(each: Plan, *names: str) -> list[tuple[Any, ...]]:
    return sorted({tuple(trial.settings[name] for name in names) for trial in each.trials}, key=str)


@pytest.mark.covers("E-CFG", "E-EX", "E-FR02", "E-FR26", "E-AC02", "D1")
@pytest.mark.parametrize("site", ["local", "meluxina"])
def test_the_sample_scenario_plans_to_18_treatments_and_54_trials(site: str) -> None:
    where = read_site(ROOT / "config" / "sites" / f"{site}.yaml")
    sample = plan(read_scenario(ROOT / "config" / "scenarios" / "llm_vllm_baseline.yaml", SERVICES), SERVICES, where)
    assert len({trial.treatment for trial in sample.trials}) == 18
    assert len(sample.trials) == 54
    assert len(sample.deployments) == 1
    assert sample.factors["workload"] == {"prompt_len": (128, 512), "batch": (1, 4, 8), "concurrency": (1, 8, 32)}
    assert sample.qos == ("default" if site == "meluxina" else None)


def test_the_quickstart_measures_two_loads_of_five_services_twice() -> None:
    path = ROOT / "config" / "scenarios" / "quickstart.yaml"
    quickstart = plan(read_scenario(path, SERVICES), SERVICES, HERE)
    assert quickstart.repetitions == 2
    for service in ("fileio", "postgres", "s3", "faiss", "triton"):
        assert len({trial.treatment for trial in quickstart.trials if trial.service == service}) in (2, 4), service
    assert {(t.settings["access"], t.settings["operation"]) for t in quickstart.trials if t.service == "fileio"} == {
        (access, operation) for access in ("sequential", "random") for operation in ("read", "write")
    }


@pytest.mark.covers("D3", "E-FR21")
def test_four_deployments_with_nine_workloads_each_start_four_servers() -> None:
    found = planned({"parallel": (1, 2, 3, 4), "batch": (1, 2, 3), "concurrency": (1, 2, 3)}, repetitions=1)
    assert len(found.trials) == 36
    assert len(found.deployments) == 4
    assert Counter(trial.deployment for trial in found.trials) == {each.id: 9 for each in found.deployments}
    assert found.factors == {
        "deployment": {"parallel": (1, 2, 3, 4)},
        "workload": {"batch": (1, 2, 3), "concurrency": (1, 2, 3)},
    }


@pytest.mark.covers("E-FR26", "E-FR04")
def test_resources_may_be_factors_of_the_deployment() -> None:
    found = planned({"batch": (1, 2)}, resources=Resources(gpus=(1, 2), mem_gb=(8,)), repetitions=1)
    assert sorted((each.gpus, each.mem_gb) for each in found.deployments) == [(1, 8), (2, 8)]
    assert found.factors["deployment"] == {"gpus": (1, 2)}
    assert len(found.trials) == 4


def test_exclude_drops_every_treatment_that_matches() -> None:
    found = planned(workload({"batch": (1, 2), "concurrency": (1, 2)}, exclude=({"batch": 2, "concurrency": 1},)))
    assert combinations(found, "batch", "concurrency") == [(1, 1), (1, 2), (2, 2)]
    found = planned(workload({"batch": (1, 2), "concurrency": (1, 2)}, exclude=({"batch": 2},)))
    assert combinations(found, "batch", "concurrency") == [(1, 1), (1, 2)]


def test_exclude_may_speak_of_resources() -> None:
    resources = Resources(gpus=(1, 2))
    found = planned(workload({"parallel": (1, 2)}, exclude=({"gpus": 1, "parallel": 2},)), resources=resources)
    assert sorted((each.gpus, each.settings["parallel"]) for each in found.deployments) == [(1, 1), (2, 1), (2, 2)]


def test_include_adds_treatments_that_take_the_first_level_of_the_rest() -> None:
    found = planned(workload({"batch": (1, 2), "concurrency": (4, 8)}, include=({"batch": 64},)))
    assert combinations(found, "batch", "concurrency") == [(1, 4), (1, 8), (2, 4), (2, 8), (64, 4)]


@pytest.mark.covers("D5")
def test_with_no_factor_the_included_treatments_are_all_there_are() -> None:
    entries = ({"batch": 2, "concurrency": 8}, {"batch": 4})
    found = planned(workload({"concurrency": (3,)}, include=entries))
    assert combinations(found, "batch", "concurrency") == [(2, 8), (4, 3)]


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("batch <= concurrency", [(1, 1), (1, 4), (4, 4)]),
        ("batch * concurrency < 8 and not batch == concurrency", [(1, 4), (4, 1)]),
        ("batch in [4, 5] or concurrency // 4 == 1", [(1, 4), (4, 1), (4, 4)]),
        ("model == 'small' and 1 <= batch < 4", [(1, 1), (1, 4)]),
        ("exact == false", [(1, 1), (1, 4), (4, 1), (4, 4)]),
    ],
)
def test_a_condition_keeps_what_it_says(condition: str, kept: list[tuple[int, int]]) -> None:
    found = planned(workload({"batch": (1, 4), "concurrency": (1, 4)}, where=(condition,)))
    assert combinations(found, "batch", "concurrency") == kept


@pytest.mark.covers("E-CLI02")
def test_where_the_pattern_varies_a_setting_it_does_not_read_makes_no_second_trial() -> None:
    found = planned({"pattern": ("closed", "poisson"), "rate_rps": (10.0, 20.0)}, repetitions=1)
    assert combinations(found, "pattern", "rate_rps") == [("closed", None), ("poisson", 10.0), ("poisson", 20.0)]


def test_every_name_is_a_path_of_three_parts() -> None:
    levels = {
        "model": (
            "meta-llama/Llama-3.1-8B",
            "../../etc/passwd",
            "a:b",
            "a/b",
            "Größe",
            "日本",
            ".",
            "x" * 300,
            "--a--",
        ),
        "batch": (1, 2),
        "exact": (True, False),
    }
    found = planned(levels, repetitions=2)
    assert len(ids(found)) == len(found.trials) == 9 * 2 * 2 * 2
    assert len(found.deployments) == 9
    for trial in found.trials:
        assert re.fullmatch(r"[A-Za-z0-9._+-]+", trial.id)
        deployment, load, repetition = trial.id.split("--")
        assert (deployment, load, repetition) == (trial.deployment, trial.workload, f"r{trial.repetition}")
        assert trial.treatment == f"{deployment}--{load}"
        assert len(deployment) <= LONGEST
        assert len(load) <= LONGEST
        assert not trial.id.startswith((".", "-"))
    assert any("meta-llama-Llama-3.1-8B" in each.id for each in found.deployments)


def test_values_that_read_alike_get_names_of_their_own() -> None:
    found = planned({"model": ("a/b", "a:b", "a b", "A/B")}, repetitions=1)
    assert len({each.id.casefold() for each in found.deployments}) == 4


GROWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a level": ({"batch": (1, 2, 3)}, {}),
    "a level of the deployment": ({"parallel": (1, 2, 3)}, {}),
    "a repetition": ({}, {"repetitions": 5}),
    "a factor that has its default among its levels": ({"concurrency": (1, 8)}, {}),
    "a setting at its default": ({"exact": (False,), "timeout_s": (30.0,)}, {}),
    "a resource at its default": ({}, {"resources": Resources(nodes=(1,), gpus=(0, 1))}),
    "notes": ({}, {"metadata": Metadata(notes="why")}),
    "an account": ({}, {"account": "p1", "partition": "gpu"}),
}


@pytest.mark.covers("E-FR14")
@pytest.mark.parametrize("what", GROWN)
def test_old_trials_keep_names_seeds_and_hashes_when_a_scenario_gets(what: str) -> None:
    levels, fields = GROWN[what]
    before = {"batch": (1, 2), "parallel": (1, 2)}
    old = {trial.id: trial for trial in planned(before).trials}
    new = {trial.id: trial for trial in planned(before | levels, **fields).trials}
    assert set(old) <= set(new)
    for name, trial in old.items():
        assert (new[name].trial_id, new[name].seed) == (trial.trial_id, trial.seed)
        assert new[name].config_hash == trial.config_hash
        assert new[name].changed == trial.changed


def test_a_recipe_that_gains_a_setting_keeps_the_names_of_old_trials() -> None:
    longer = replace(
        TOY,
        settings=(
            Setting(name="precision", type="str", role="deployment", default="bf16", help="New."),
            *reversed(TOY.settings),
        ),
    )
    study = scenario({"batch": (1, 2), "model": ("big",), "exact": (True,)})
    assert ids(plan(study, {"toy": longer}, HERE)) == ids(plan(study, {"toy": TOY}, HERE))


def test_a_warm_up_of_auto_is_a_level_of_its_own_that_takes_a_quarter_of_the_duration() -> None:
    each = planned(workload({"warmup_s": ("auto", 1.0), "duration_s": (8.0,)}))
    assert sorted(trial.load.length_s for trial in each.trials if trial.repetition == 1) == [9.0, 10.0]


def test_the_name_of_a_workload_is_not_in_its_trials() -> None:
    first = planned(workload({"batch": (2,)}))
    renamed = planned(replace(workload({"batch": (2,)}), name="other"))
    assert ids(first) == ids(renamed)


def test_workloads_on_the_same_settings_share_a_server() -> None:
    found = planned({"batch": (2, 3)}, {"concurrency": (4,)})
    assert len(found.deployments) == 1
    assert [trial.position for trial in found.trials] == list(range(1, 10))


@pytest.mark.parametrize(
    "other",
    [
        {"metadata": Metadata(seed=1)},
        {"resources": Resources(cpus_per_task=(4,))},
        {"artifacts": Artifacts(container="$WORK/other.sif")},
    ],
)
def test_what_changes_the_measurement_changes_the_names(other: dict[str, Any]) -> None:
    assert not ids(planned({"batch": (2,)})) & ids(planned({"batch": (2,)}, **other))


def test_a_changed_default_keeps_the_name_but_not_the_hash_of_the_samples() -> None:
    other = replace(TOY, settings=(*TOY.settings[:3], replace(TOY.settings[3], default=True)))
    old = planned({"batch": (2,)}, repetitions=1).trials[0]
    new = plan(scenario({"batch": (2,)}, repetitions=1), {"toy": other}, HERE).trials[0]
    assert old.id == new.id
    assert old.config_hash != new.config_hash


def test_repetitions_differ_in_seed_hash_and_uuid() -> None:
    found = planned({"batch": (1, 2)}, repetitions=20)
    assert len({trial.seed for trial in found.trials}) == 40
    assert len({trial.config_hash for trial in found.trials}) == 40
    assert len({trial.trial_id for trial in found.trials}) == 40
    assert all(uuid.UUID(trial.trial_id).version == 5 for trial in found.trials)
    assert all(0 <= trial.seed < 2**32 for trial in found.trials)


def test_the_same_trial_of_two_scenarios_has_two_uuids() -> None:
    one, other = planned({}, name="one"), planned({}, name="other")
    assert ids(one) == ids(other)
    assert one.trials[0].trial_id != other.trials[0].trial_id


def test_each_block_of_a_deployment_holds_every_treatment_once() -> None:
    found = planned({"batch": (1, 2, 3), "concurrency": (1, 2), "parallel": (1, 2)}, repetitions=4)
    for deployment in found.deployments:
        mine = [trial for trial in found.trials if trial.deployment == deployment.id]
        assert [trial.position for trial in mine] == list(range(1, 25))
        assert [trial.block for trial in mine] == [block for block in (1, 2, 3, 4) for _ in range(6)]
        assert all(trial.block == trial.repetition for trial in mine)
        for block in (1, 2, 3, 4):
            assert len({trial.workload for trial in mine if trial.block == block}) == 6


def test_trials_of_a_deployment_are_planned_one_after_another() -> None:
    found = planned({"parallel": (1, 2, 3), "batch": (1, 2)})
    order = list(dict.fromkeys(trial.deployment for trial in found.trials))
    assert order == [each.id for each in found.deployments]
    assert [trial.deployment for trial in found.trials] == [name for name in order for _ in range(6)]


@pytest.mark.slow
@pytest.mark.covers("E-FR14")
def test_blocks_are_shuffled_evenly_and_each_in_its_own_way() -> None:
    found = planned({"batch": tuple(range(1, 7))}, repetitions=600)
    first = Counter(trial.settings["batch"] for trial in found.trials if trial.position % 6 == 1)
    assert set(first) == set(range(1, 7))
    # 600 draws over 6: chi-squared with 5 degrees of freedom stays below 20.5 in 999 of 1000 cases.
    assert sum((count - 100) ** 2 / 100 for count in first.values()) < 20.5
    assert found.trials == planned({"batch": tuple(range(1, 7))}, repetitions=600).trials
    other = planned({"batch": tuple(range(1, 7))}, repetitions=600, metadata=Metadata(seed=7))
    assert [t.settings["batch"] for t in other.trials] != [t.settings["batch"] for t in found.trials]


def test_the_order_of_levels_and_workloads_in_the_file_changes_nothing() -> None:
    forth = planned({"batch": (1, 2, 3)}, {"model": ("b", "c")})
    back = planned({"model": ("c", "b")}, {"batch": (3, 1, 2)})
    assert forth.trials == back.trials
    assert forth.deployments == back.deployments


@pytest.mark.slow
def test_a_plan_is_the_same_in_another_process() -> None:
    code = (
        "import sys; sys.path.insert(0, 'tests/planning'); from test_plan import planned;"
        "print([t.id + str(t.seed) + t.config_hash for t in planned({'batch': (1, 2), 'model': ('a', 'b')}).trials])"
    )
    here = [t.id + str(t.seed) + t.config_hash for t in planned({"batch": (1, 2), "model": ("a", "b")}).trials]
    there = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests/support"))),
            "PYTHONHASHSEED": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout == f"{here}\n"


def test_settings_hold_every_value_and_changed_only_what_differs() -> None:
    trial = planned({"batch": (4,), "concurrency": (1,)}, repetitions=1).trials[0]
    assert trial.changed == {"batch": 4}
    assert {"model", "parallel", "batch", "exact", "pattern", "concurrency", "duration_s"} <= set(trial.settings)
    assert (trial.settings["model"], trial.settings["concurrency"], trial.settings["rate_rps"]) == ("small", 1, None)


def test_a_deployment_holds_its_own_settings_only() -> None:
    (deployment,) = planned({"model": ("big",), "batch": (4,)}).deployments
    assert deployment.settings == {"model": "big", "parallel": 1}


@pytest.mark.covers("E-VAL")
def test_the_same_treatment_of_two_workloads_is_a_mistake() -> None:
    other = replace(workload({"batch": (2, 3)}), name="other")
    with pytest.raises(UserError, match="planned twice: 'other' measures the same as 'toy'"):
        planned(workload({"batch": (1, 2)}), other)


@pytest.mark.covers("E-VAL")
def test_impossible_combinations_of_resources_are_named_but_not_those_that_are_excluded() -> None:
    site = Site(name="x", summary="", partitions={"gpu": Partition(nodes=4, cpus=8, mem_gb=64, gpus=4)})
    fields: dict[str, Any] = {"partition": "gpu", "account": "a", "resources": Resources(nodes=(1, 2), gpus=(4, 8))}
    with pytest.raises(UserError, match="8 a node, but a node of the partition 'gpu' has 4 GPUs"):
        planned({}, site=site, **fields)
    found = planned(workload({}, exclude=({"nodes": 1, "gpus": 8},)), site=site, **fields)
    assert sorted((each.nodes, each.gpus) for each in found.deployments) == [(1, 4), (2, 4), (2, 8)]


def test_a_plan_survives_json(tmp_path: Path) -> None:
    found = planned({"batch": (1, 2), "exact": (True,), "model": ("a/b",)}, binds=("/a:/b",))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(encode(found)))
    assert read(path, Plan) == found


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"schema_version": 9}', '{"schema_version": 1}', '{"schema_version": 1, "factors": 3}']
)
def test_a_damaged_plan_names_its_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"plan\.json"):
        read(path, Plan)


def test_words_never_make_a_separator() -> None:
    draw = random.Random(5)
    letters = "aZ09-._+/ :\\\t\n\0é日%$~"
    for _ in range(5000):
        text = "".join(draw.choice(letters) for _ in range(draw.randrange(12)))
        name = part([word(text), word(text)], {"x": text})
        assert "--" not in name
        assert re.fullmatch(r"[A-Za-z0-9_+][A-Za-z0-9._+-]*-[0-9a-f]{8}", name), (text, name)
