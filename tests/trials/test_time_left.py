"""Time left of a run: measured loads in place of a recipe's guess, lanes side by side, devices by the hour."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from samples import a_load
from study_folder import StudyFolder

from seamark.planning.study import Study
from seamark.storage.codec import encode
from seamark.storage.documents import write, write_json
from seamark.trials.progress import progress_of
from seamark.trials.time_left import time_left

RECIPE = """\
extends: null.yaml
name: items
load: finite
limit_s: 1000
typical_load_s: 100
settings:
  items: {type: int, role: workload, default: 10, minimum: 1, help: Number of requests.}
  model: {type: str, role: deployment, default: a, help: A setting that needs a server of its own.}
"""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    folder = StudyFolder.new(tmp_path / "study")
    (folder.root / "config/services/items.yaml").write_text(RECIPE)
    workload = {"service": "items", "model": ["a", "b"], "items": [10, 20]}
    document = {"scenario": "try", "repetitions": 1, "workload": workload}
    (folder.root / "config/scenarios/try.yaml").write_text(json.dumps(document))
    return Study.at(folder.root, scenario="config/scenarios/try.yaml", site="local")


@pytest.mark.covers("B5")
def test_the_rest_takes_as_long_as_what_was_measured_and_nothing_is_left_of_a_finished_run(study: Study) -> None:
    first = time_left(study, progress_of(study))
    assert first is not None
    assert first.most_s > 4 * 100, "four loads by the recipe's guess"
    done = study.plan.trials[0]
    length = {"config_hash": done.config_hash, "duration_s": 7.0, "kind": "finite"}
    write(study.folder("try").trial(done.id).load, a_load(**length))
    now = progress_of(study)
    states = tuple(replace(state, state="ok") if state.trial == done.id else state for state in now.states)
    left = time_left(study, replace(now, states=states))
    assert left is not None
    assert 3 * 7 * 0.9 < left.least_s < left.most_s < 150, "three loads of 7 s, not of 100 s"
    assert left.least_s / 3600 < left.device_hours < left.most_s / 3600
    assert time_left(study, replace(now, states=tuple(replace(each, state="ok") for each in states))) is None


def test_a_start_that_was_measured_narrows_what_is_left(study: Study) -> None:
    now = progress_of(study)
    before = time_left(study, now)
    server = study.plan.deployments[0].id
    record = {"schema_version": 1, "deployment": server, "time_to_service_s": {"total_s": 50.0}}
    write_json(study.folder("try").deployment(server).record, record)
    after = time_left(study, now)
    assert before is not None
    assert after is not None
    assert after.typical_s - before.typical_s > 80, "two servers of the service start in 50 s"
    assert after.least_s < after.typical_s < after.most_s


def test_a_trial_that_a_lane_has_measured_stays_done_while_its_record_is_published(study: Study) -> None:
    trial, seen = study.plan.trials[0], {}
    folder = study.folder("try")
    load = a_load(config_hash=trial.config_hash, duration_s=7.0, kind="finite")
    write(folder.trial(trial.id).load, load)
    assert progress_of(study, seen).done == 1
    write(folder.lanes / "run" / "loads" / f"{trial.id}.json", load)
    folder.trial(trial.id).load.unlink()
    assert progress_of(study, seen).done == 1


def test_a_trial_counts_as_measured_when_its_job_is_lost_after_it(study: Study) -> None:
    measured, cut_off = (study.folder("try").trial(trial.id) for trial in study.plan.trials[:2])
    for trial, files in zip(study.plan.trials, (measured, cut_off), strict=False):
        files.root.mkdir(parents=True)
        files.samples.write_bytes(b"1234")
        load = encode(a_load(config_hash=trial.config_hash, duration_s=7.0, kind="finite"))
        write_json(files.record, {**load, "samples_bytes": 4})
    cut_off.samples.write_bytes(b"12")
    now = progress_of(study)
    assert [state.state for state in now.states] == ["ok", "planned", "planned", "planned"]


def test_lanes_halve_the_time_and_not_the_device_hours(study: Study) -> None:
    alone = time_left(study, progress_of(study))
    lanes = json.dumps({"cpus": "0,1", "parallel": 2})
    beside = replace(study, lanes=lanes)
    both = time_left(beside, progress_of(beside))
    assert alone is not None
    assert both is not None
    assert beside.site.parallel == 2
    assert 0.4 < both.most_s / alone.most_s < 0.7
    assert both.device_hours == alone.device_hours
