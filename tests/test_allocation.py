"""What a deployment asks a batch system for."""

from dataclasses import replace
from pathlib import Path

import pytest

from seamark.allocation import SERVE_MIN, TEARDOWN_MIN, WARMUP_MIN, deployment_min, gpus_per_node, load_min
from seamark.study import Study

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def study() -> Study:
    return Study.at(ROOT, scenario=str(ROOT / "config/scenarios/null.yaml"))


def test_a_deployment_asks_for_the_sum_of_its_phases_since_its_loads_run_one_after_another(study: Study) -> None:
    trials = study.plan.trials
    assert deployment_min(trials[:1]) == SERVE_MIN + WARMUP_MIN + load_min(trials[0]) + TEARDOWN_MIN
    assert deployment_min(trials) - deployment_min(trials[:-1]) == load_min(trials[-1])
    assert load_min(trials[0]) * 60 > sum(
        trials[0].settings[name] for name in ("warmup_s", "duration_s", "timeout_s")
    )


@pytest.mark.covers("E-FR04")
@pytest.mark.parametrize(("nodes", "gpus", "of_each"), [(1, 4, 4), (2, 8, 4), (2, 4, 2), (3, 8, 3), (2, 0, 0)])
def test_the_gpus_of_a_deployment_are_those_of_all_its_nodes(
    study: Study, nodes: int, gpus: int, of_each: int
) -> None:
    assert gpus_per_node(replace(study.plan.deployments[0], nodes=nodes, gpus=gpus)) == of_each
