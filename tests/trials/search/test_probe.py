"""A search in a plan and its probes as trials: names, settings, seeds, identity, time."""

from dataclasses import replace
from pathlib import Path

import pytest
from samples import a_load
from shipped import SERVICES

from seamark.config.read import read_scenario, read_site
from seamark.model.results.search_record import Probe
from seamark.model.trial import Plan
from seamark.planning.plan import plan
from seamark.planning.plan_text import describe, plan_facts
from seamark.planning.study import Study
from seamark.storage.documents import read, write
from seamark.storage.paths import ScenarioFolder
from seamark.trials.search.probe_trial import found_trial, probe_trial
from seamark.workflow.dag import Dag

ROOT = Path(__file__).parents[3]
TEXT = """\
scenario: s
repetitions: 2
workload:
  service: "null"
  pattern: [poisson, constant]
  delay_ms: 1
  slos: [latency_s <= 0.1]
  search: {setting: rate_rps, from: 10, to: 1000, budget_s: 120}
"""


def planned(tmp_path: Path, old: str = "", new: str = "") -> Plan:
    path = tmp_path / "s.yaml"
    assert old in TEXT
    path.write_text(TEXT.replace(old, new) if old else TEXT)
    return plan(read_scenario(path, SERVICES), SERVICES, read_site(ROOT / "config" / "sites" / "local.yaml"))


def test_each_treatment_and_repetition_is_one_trial_that_begins_where_the_search_does(tmp_path):
    trials = planned(tmp_path).trials
    assert len(trials) == 4
    for trial in trials:
        assert trial.settings["rate_rps"] == 10
        assert trial.search is not None
        assert "search-rate_rps" in trial.id
        assert "rate_rps-10" not in trial.id


def test_a_plan_with_a_search_is_read_back_as_it_was(tmp_path):
    made = planned(tmp_path)
    write(tmp_path / "plan.json", made)
    assert read(tmp_path / "plan.json", Plan) == made


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("to: 1000", "to: 1001"),
        ("from: 10,", "from: 11,"),
        ("budget_s: 120", "budget_s: 121"),
        ("<= 0.1", "<= 0.2"),
    ],
)
def test_another_search_or_objective_is_another_trial(tmp_path, old, new):
    before, after = planned(tmp_path).trials, planned(tmp_path, old, new).trials
    assert not {trial.id for trial in before} & {trial.id for trial in after}
    assert not {trial.config_hash for trial in before} & {trial.config_hash for trial in after}


def test_a_plan_takes_as_long_as_its_searches_may_and_says_what_they_look_for(tmp_path):
    made = planned(tmp_path)
    facts = plan_facts(made, SERVICES)
    assert facts.loads_s == 4 * (120 + 11)
    assert facts.estimated_least_s < facts.loads_s < facts.estimated_most_s < facts.loads_s + 100
    assert "rate_rps             searched    10 to 1000, 2 min 0 s at most" in describe(made, SERVICES)


def test_a_batch_system_is_asked_for_time_for_the_whole_search(tmp_path, monkeypatch):
    (tmp_path / "s.yaml").write_text(TEXT)
    for name in ("config", "profiles"):
        (tmp_path / name).symlink_to(ROOT / name)
    study = Study.at(tmp_path, scenario=str(tmp_path / "s.yaml"))
    trial = study.plan.trials[0]

    class Wildcards:
        scenario, deployment, workload, repetition = "s", trial.deployment, trial.workload, str(trial.repetition)

    assert Dag(study=study).runtime_min("load")(Wildcards()) * 60 > 120 + 10 + 1 + 30


def test_probes_have_seeds_names_and_identities_of_their_own_and_the_same_every_time(tmp_path):
    trial = planned(tmp_path).trials[0]
    asked = [Probe(level=20.0), Probe(level=40.0), Probe(level=20.0, look=2, times=2), Probe(level=20.0, attempt=2)]
    probes = [probe_trial(trial, each, "s") for each in asked]
    assert probes == [probe_trial(trial, each, "s") for each in asked]
    for field in ("id", "trial_id", "seed", "config_hash"):
        assert len({getattr(each, field) for each in (*probes, trial)}) == 5, field
    assert [each.id.rpartition("/")[2] for each in probes] == [
        "rate_rps-20",
        "rate_rps-40",
        "rate_rps-20-look2",
        "rate_rps-20-again",
    ]
    for each, probe in zip(probes, asked, strict=True):
        assert each.settings["rate_rps"] == each.changed["rate_rps"] == probe.level
        assert each.settings["stop_when_saturated"] is True
        assert each.settings["duration_s"] == probe.times * trial.settings["duration_s"]
        assert each.search is None
        assert each.treatment == trial.treatment
        root = ScenarioFolder(root=Path("r")).trial(each.id).root
        assert root.parent == ScenarioFolder(root=Path("r")).trial(trial.id).probes


def test_users_are_searched_without_a_watch_for_what_only_an_open_loop_has(tmp_path):
    text = TEXT.replace("  pattern: [poisson, constant]\n", "").replace("rate_rps", "concurrency")
    (tmp_path / "s.yaml").write_text(text)
    made = plan(
        read_scenario(tmp_path / "s.yaml", SERVICES), SERVICES, read_site(ROOT / "config" / "sites" / "local.yaml")
    )
    probe = probe_trial(made.trials[0], Probe(level=20), "s")
    assert probe.settings["concurrency"] == 20
    assert not probe.settings["stop_when_saturated"]


def test_a_trial_is_measured_as_its_best_probe_and_one_without_a_search_as_it_is(tmp_path):
    trial = planned(tmp_path).trials[0]
    load = a_load(probe={"level": 320.0, "config_hash": "abc"})
    found = found_trial(trial, load)
    assert (found.settings["rate_rps"], found.changed["rate_rps"], found.config_hash) == (320.0, 320.0, "abc")
    assert found.id == trial.id
    assert found_trial(trial, a_load(status="failed")) == trial
    longer = found_trial(trial, replace(load, probe=replace(load.probe, times=4)))
    assert longer.settings["duration_s"] == 4 * trial.settings["duration_s"]
