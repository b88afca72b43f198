"""A pipeline as a workload: what its file states of the load, and how long a plan takes it to be."""

from pathlib import Path

import pytest
import yaml

from seamark.errors import UserError
from seamark.model.trial import Plan
from seamark.planning.plan_time import time_of
from seamark.planning.study import Study

FILE = Path(__file__).parents[2] / "pipeline_configs" / "scripted.yml"


def study_of(folder: Path, **workload: object) -> Study:
    document = {"scenario": "try", "repetitions": 1, "workload": workload}
    (folder / "try.yaml").write_text(yaml.safe_dump(document))
    return Study.at(folder, scenario="try.yaml")


def planned(folder: Path, **workload: object) -> Plan:
    return study_of(folder, service="pipeline", graph=str(FILE), **workload).plan


@pytest.mark.covers("A9")
def test_the_file_states_the_load_unless_the_workload_does(tmp_path: Path) -> None:
    [trial] = planned(tmp_path, pipeline="Answers with retries").trials
    load = trial.load
    assert (load.pattern, load.requests, load.duration_s, load.warmup_s) == ("poisson", 100, 60.0, 0.0)
    assert (trial.settings["rate_rps"], load.until_last_reply, load.keep_events) == (20.0, True, True)
    [trial] = planned(tmp_path, pipeline="Training", requests=7, serialize_queries=True).trials
    assert (trial.load.pattern, trial.load.requests, trial.load.concurrency) == ("closed", 7, 1)


@pytest.mark.covers("A9")
def test_the_first_queries_may_be_left_out_but_not_all(tmp_path: Path) -> None:
    [trial] = planned(tmp_path, pipeline="Training", requests=7, warmup_items=1).trials
    assert (trial.load.requests, trial.load.warmup_items) == (7, 1)
    with pytest.raises(UserError) as refused:
        planned(tmp_path, pipeline="Training", requests=[9, 7], warmup_items=7)
    [mistake] = refused.value.mistakes
    assert (mistake.path, mistake.code) == ("workload.warmup_items", "out_of_limits")


@pytest.mark.covers("A9")
def test_a_setting_of_a_stage_is_a_factor_and_one_that_is_not_there_a_mistake(tmp_path: Path) -> None:
    varied: dict[str, object] = {"stages.2.config.cpu_ms": [10, 20.5], "stages.1.max_in_flight": 2}
    trials = planned(tmp_path, pipeline="Training", **varied).trials
    assert {trial.settings["stages.2.config.cpu_ms"] for trial in trials} == {10.0, 20.5}
    assert {trial.settings["stages.1.max_in_flight"] for trial in trials} == {2}
    for wrong in ({"stages.9.config.cpu_ms": 1}, {"stages.1.cpu_ms": 1}, {"pipeline": "Trainin"}, {"pipeline": None}):
        keys = {"pipeline": "Training", **wrong}
        with pytest.raises(UserError) as refused:
            planned(tmp_path, **{key: value for key, value in keys.items() if value is not None})
        [mistake] = refused.value.mistakes
        assert mistake.path in {f"workload.{key}" for key in (*wrong, "graph")}


def test_a_plan_takes_a_load_of_queries_to_last_as_long_as_their_rate_says(tmp_path: Path) -> None:
    study = study_of(
        tmp_path,
        sets="all",
        parties={
            "answers": {"service": "pipeline", "graph": str(FILE), "pipeline": "Answers with retries"},
            "slow": {"service": "pipeline", "graph": str(FILE), "pipeline": "Answers with retries", "rate_rps": 5},
        },
    )
    span = time_of(study.plan, study.services).loads
    assert (span.typical, span.most) == (20.0, 60.0)
