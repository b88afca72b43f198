"""The table of kinds of trials: each module of its folder has a row, and each trial the kind that is its own."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from samples import a_trial
from shipped import SERVICES

from seamark.model.scenario import Search
from seamark.planning.study import Study
from seamark.services.supervisor.control_files import control_files_of
from seamark.trials import kinds
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.kinds.table import KINDS, kind_of

PLAIN = a_trial()
SEARCHED = replace(PLAIN, search=Search(setting="rate_rps", from_level=1.0, to_level=9.0))


def test_each_module_of_the_folder_has_a_row():
    modules = {path.stem for path in Path(str(kinds.__file__)).parent.glob("*.py")} - {"__init__", "table"}
    assert modules == set(KINDS)


@pytest.mark.parametrize(
    ("trial", "service", "name"),
    [
        (PLAIN, "null", "seamark.trials.kinds.timed_load"),
        (SEARCHED, "null", "seamark.trials.kinds.search"),
        (replace(PLAIN, parties=(PLAIN,)), "null", "seamark.trials.kinds.parties"),
        (PLAIN, "fitted", "seamark_simulate.trials.virtual_clock"),
    ],
)
def test_a_trial_is_measured_by_the_module_of_its_kind(trial, service, name):
    kind = kind_of(trial, SERVICES[service])
    assert kind.__name__ == name  # type: ignore[attr-defined]
    assert callable(kind.measure_trial)


@pytest.mark.covers("A3")
def test_a_load_of_one_party_renews_the_leases_of_the_members_that_are_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    party = {"service": "null", "duration_s": 1}
    workload = {"sets": "alone", "parties": {"a": party, "b": party, "c": party}}
    (tmp_path / "try.yaml").write_text(json.dumps({"scenario": "try", "repetitions": 1, "workload": workload}))
    study = Study.at(tmp_path, scenario="try.yaml")
    [deployment] = study.plan.deployments
    leases = [control_files_of(study.folder("try").deployment(member.id)).lease for member in deployment.members]
    for lease in leases:
        lease.parent.mkdir(parents=True, exist_ok=True)
    own = DeploymentContext.of(study, "try", deployment.members[0].id)
    assert "the run that asked" in str(own.on_tick(parent_pid=1)())
    assert [lease.exists() for lease in leases] == [True] * 3
