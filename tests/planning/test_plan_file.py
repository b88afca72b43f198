"""A plan's files: what the jobs of a trial read instead of planning again, and what happens to a damaged one."""

import json
from pathlib import Path

import pytest

from seamark.errors import UserError
from seamark.planning.plan_file import levels_in, read_trial, trial_for, write_trials
from seamark.planning.study import Study

SCENARIO = "config/scenarios/try.yaml"


@pytest.fixture
def study(tmp_path: Path) -> Study:
    path = tmp_path / SCENARIO
    path.parent.mkdir(parents=True)
    workload = "{service: 'null', pattern: constant, rate_rps: [10, 20], duration_s: 1}"
    path.write_text(f"scenario: try\nrepetitions: 2\nworkload: {workload}\n")
    return Study.at(tmp_path, scenario=SCENARIO, site="local")


def test_a_job_finds_its_trial_and_deployment_in_trial_json_as_they_were_planned(study):
    study.write_trials("try")
    for trial in study.plan.trials:
        part = read_trial(study.folder("try").trial(trial.id), trial.config_hash)
        assert part is not None
        assert part.trials == (trial,)
        assert part.deployments == study.plan.deployments
        assert (part.max_retries, part.seed, part.source) == (
            study.plan.max_retries,
            study.plan.seed,
            study.plan.source,
        )
        assert levels_in(part) == {"rate_rps": trial.settings["rate_rps"]}, "no job needs the plan of the others"
        study.folder("try").trial(trial.id).load.write_text("{}")
        assert part == trial_for(study.folder("try").trial(trial.id), study.folder("try").plan)


@pytest.mark.parametrize("damage", ["missing", "cut", "edited", "not JSON", "another trial's", "a folder"])
def test_a_trial_json_that_cannot_be_used_is_made_again(study, damage):
    study.write_trials("try")
    first, second = study.plan.trials[:2]
    path = study.folder("try").trial(first.id).planned
    text = path.read_text()
    if damage == "another trial's":
        path.write_text(study.folder("try").trial(second.id).planned.read_text())
    elif damage == "edited":
        path.write_text(
            text.replace('"rate_rps": 10.0', '"rate_rps": 99.0').replace('"rate_rps": 20.0', '"rate_rps": 99.0')
        )
        assert path.read_text() != text
    elif damage in ("missing", "a folder"):
        path.unlink()
        if damage == "a folder":
            path.mkdir()
    else:
        path.write_text(text[:100] if damage == "cut" else "nonsense")
    again = study.of_trial("try", first.id, first.config_hash)
    assert again.trial("try", first.id) == first
    assert path.read_text() == text


def test_a_trial_json_of_an_older_configuration_is_not_used(study):
    study.write_trials("try")
    trial, folder = study.plan.trials[0], study.folder("try").trial(study.plan.trials[0].id)
    assert read_trial(folder, "0" * 64) is None
    path = study.root / SCENARIO
    path.write_text(path.read_text().replace("duration_s: 1", "duration_s: 2"))
    later = Study.at(study.root, scenario=SCENARIO, site="local")
    renamed = {other.id: other for other in later.plan.trials}
    planned = renamed.get(trial.id)
    if planned is not None:
        assert later.of_trial("try", trial.id, planned.config_hash).trial("try", trial.id) == planned
    with pytest.raises(UserError, match="no trial 'nothing'"):
        later.of_trial("try", "nothing")


def test_a_study_begun_by_an_older_version_gets_the_trial_files_that_it_lacks(study):
    study.write_plan("try")
    folder, plan = study.folder("try"), study.plan
    before = folder.plan.stat().st_mtime_ns
    kept = folder.trial(plan.trials[0].id)
    write_trials(plan, folder)
    for trial in plan.trials[1:]:
        folder.trial(trial.id).planned.unlink()
    written = kept.planned.stat().st_mtime_ns
    study.refresh_plan("try")
    assert all(read_trial(folder.trial(trial.id), trial.config_hash) for trial in plan.trials)
    assert (folder.plan.stat().st_mtime_ns, kept.planned.stat().st_mtime_ns) == (before, written)
    assert "digest" in json.loads(kept.planned.read_text())
