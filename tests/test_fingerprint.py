"""Names, hashes, seeds and order of every trial of every shipped scenario, against those of version 0.1.0."""

import hashlib
import json

import pytest
from shipped import RECORDED, ROOT

from seamark.model.sample import CHUNK, SAMPLE
from seamark.planning.study import Study


def fingerprint(scenario: str) -> dict[str, object]:
    """Return how many trials a shipped scenario has, the id of the first, and a digest of all identities."""
    trials = Study.at(ROOT, scenario=scenario).plan.trials
    identities = [
        [each.id, each.trial_id, each.config_hash, each.seed, each.deployment, each.block, each.position]
        for each in trials
    ]
    digest = hashlib.sha256(json.dumps(identities).encode()).hexdigest()
    return {"trials": len(trials), "first": trials[0].id, "sha256": digest}


@pytest.mark.covers("D1", "E-FR02", "E-CFG", "E-EX")
@pytest.mark.parametrize("name", RECORDED["scenarios"])
def test_the_identity_of_every_shipped_trial_stays(name: str):
    assert fingerprint(f"config/scenarios/{name}") == RECORDED["scenarios"][name]


@pytest.mark.covers("B16")
@pytest.mark.parametrize(
    ("name", "stubs", "options"),
    [("evaluation_basic", 12, None), ("evaluation_advanced", 32, '{"padding_side": "left"}')],
)
def test_the_shipped_examples_of_system_b_have_its_numbers_of_stubs(name: str, stubs: int, options: str | None):
    study = Study.at(ROOT, scenario=f"config/scenarios/{name}.yaml")
    assert len(study.plan.trials) == len({trial.treatment for trial in study.plan.trials}) == stubs
    assert [(each.service, each.gpus) for each in study.plan.deployments] == [("attention_cuda", 1)] * 2
    assert {each.settings.get("tokenizer_options") for each in study.plan.deployments} == {options}
    assert study.plan.compare is not None
    assert study.plan.compare.quality_margin == 0.01


def test_every_recorded_column_of_raw_samples_is_still_there():
    assert set(RECORDED["samples"]) <= set(SAMPLE.names or ())
    assert set(RECORDED["chunks"]) <= set(CHUNK.names or ())
