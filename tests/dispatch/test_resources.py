"""What a deployment asks a batch system for."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from seamark.dispatch.job import (
    SERVE_MIN,
    TEARDOWN_MIN,
    WARMUP_MIN,
    deployment_min,
    gpus_per_node,
    loads_min,
    minutes_of,
)
from seamark.planning.study import Study
from seamark.workflow.dag import Dag

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def study() -> Study:
    return Study.at(ROOT, scenario=str(ROOT / "config/scenarios/null.yaml"))


def test_a_deployment_asks_for_the_sum_of_its_phases_since_its_loads_run_one_after_another(study: Study) -> None:
    trials = study.plan.trials
    assert deployment_min(trials, study.site) == SERVE_MIN + WARMUP_MIN + loads_min(trials) + TEARDOWN_MIN
    assert loads_min(trials) * 60 > sum(
        trial.settings[name] for trial in trials for name in ("warmup_s", "duration_s", "timeout_s")
    )


@pytest.mark.covers("E-FR04")
@pytest.mark.parametrize("duration_s", [1.0, 31.0, 4000.0])
def test_minutes_of_many_loads_add_up_to_those_of_all(study: Study, duration_s: float) -> None:
    one = study.plan.trials[0]
    trials = [
        replace(one, id=f"trial-{k}", settings={**one.settings, "duration_s": duration_s, "timeout_s": 5.0})
        for k in range(40)
    ]
    minutes = minutes_of(trials)
    assert sum(minutes.values()) == loads_min(trials)
    assert loads_min(trials) < 40 * loads_min(trials[:1]) or duration_s > 60
    assert all((duration_s - 60) / 60 < each <= loads_min(trials[:1]) for each in minutes.values())


@pytest.mark.covers("E-FR04")
@pytest.mark.parametrize(
    ("service", "nodes", "gpus", "of_each"),
    [
        ("vllm", 1, 4, 4),
        ("vllm", 2, 4, 4),  # the load's node has none of them
        ("vllm_ray", 2, 8, 4),
        ("vllm_ray", 3, 8, 3),
        ("faiss", 2, 4, 2),  # it runs in the load
        ("vllm", 2, 0, 0),
    ],
)
def test_the_gpus_of_a_deployment_are_those_of_its_servers_nodes(
    study: Study, service: str, nodes: int, gpus: int, of_each: int
) -> None:
    deployment = replace(study.plan.deployments[0], nodes=nodes, gpus=gpus)
    assert gpus_per_node(deployment, study.services[service]) == of_each


@pytest.mark.covers("E-FR04")
def test_the_minutes_of_a_server_that_is_left_alone_first_are_asked_for_too(study: Study, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "config", tmp_path / "config")
    site = tmp_path / "config/sites/local.yaml"
    site.write_text(f"{site.read_text()}\nidle_s: 301\n")
    idle = Study.at(tmp_path, scenario="config/scenarios/null.yaml")
    assert deployment_min(idle.plan.trials, idle.site) == deployment_min(study.plan.trials, study.site) + 6
    assert Dag(study=idle).runtime_min("serve")(None) == SERVE_MIN + 6
