"""Which trials in a results folder count as measured, by what their commit marks say. Nothing is measured here."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from seamark.errors import UserError
from seamark.model.server_identity import ServerRecord
from seamark.model.trial import Trial
from seamark.planning.study import Study
from seamark.services.server_identity import server_identities
from seamark.storage.codec import encode
from seamark.trials.conflicts import conflicts, put_conflicts_aside, refusal, require_no_conflicts
from seamark.trials.kinds.search import finished, goes_on
from seamark.trials.progress import progress
from seamark.trials.run_deployment import pending
from seamark.trials.trial_files import put_aside
from seamark.workflow.dag import Dag

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """A study of four trials on two deployments, with nothing measured."""
    workload = {"service": "null", "reply_bytes": [2, 64], "concurrency": [1, 2]}
    path = tmp_path / "config/scenarios/try.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump({"scenario": "try", "repetitions": 1, "workload": workload}))
    return Study.at(tmp_path, scenario="config/scenarios/try.yaml", site="local")


def asked(study: Study, trial: Trial) -> ServerRecord:
    return server_identities(study, "try")[trial.deployment]


def leave(study: Study, trial: Trial, server: ServerRecord | None, **more: Any) -> None:
    """Write what a finished measurement on this server leaves, but for samples that could be read."""
    folder = study.folder("try").trial(trial.id)
    folder.root.mkdir(parents=True, exist_ok=True)
    folder.samples.write_bytes(b"samples")
    record = {"status": "ok", "config_hash": trial.config_hash, "samples_bytes": 7} | more
    if server is not None:
        record["server_identity"] = encode(server.brief())
        folder.meta.write_text(json.dumps({"server_identity": encode(server)}))
    for path in (folder.record, folder.load):
        path.write_text(json.dumps(record))


@pytest.mark.covers("E-NFR05", "D9")
def test_trials_of_other_servers_come_by_server_with_their_number_and_what_differs(study: Study) -> None:
    first, second, third, fourth = study.plan.trials
    here = asked(study, first)
    leave(study, first, here)
    leave(study, second, here.changed(machine="elsewhere"))
    leave(study, third, here.changed(machine="elsewhere"))
    leave(
        study, fourth, here.changed(recipe=dict(here.recipe or {}) | {"command": ["sleep", "9"]}, lock_sha256="f00d")
    )
    elsewhere, edited = conflicts(study)
    assert elsewhere.trials == (second.id, third.id)
    assert elsewhere.text() == (
        f"2 trials were measured on site 'local' (venv, on elsewhere); this run asks for site 'local' (venv, on"
        f" {here.machine})."
    )
    assert edited.trials == (fourth.id,)
    assert edited.text().startswith("1 trial was measured with another configuration on site 'local' (venv, on ")
    assert "recipe.command: sleep 9 -> {python} {package}/platform/isolated_main.py" in edited.text()
    assert "lock_sha256: f00d -> nothing" in edited.text()
    with pytest.raises(UserError) as refused:
        require_no_conflicts(study)
    assert refused.value.exit_code == 2
    assert refused.value.lines == tuple(refusal(study, (elsewhere, edited)))
    require_no_conflicts(study, besides=[second.id, third.id, fourth.id])


def test_what_is_not_known_of_a_server_is_no_conflict_and_a_configuration_that_differs_is(study: Study) -> None:
    first, second, *_ = study.plan.trials
    leave(study, first, None)
    leave(study, second, None, config_hash="0" * 64)
    [found] = conflicts(study)
    assert (found.trials, found.measured) == ((second.id,), None)
    states = progress(study.plan, study.folder("try"), server_identities(study, "try")).states
    assert [state.state for state in states] == ["ok", "other", "planned", "planned"]


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"server_identity": []}', '{"server_identity": {"digest": 1}}'])
def test_a_damaged_mark_is_no_conflict_and_stops_nothing(study: Study, damaged: str) -> None:
    trial = study.plan.trials[0]
    leave(study, trial, asked(study, trial))
    study.folder("try").trial(trial.id).record.write_text(damaged)
    assert conflicts(study) == ()
    Dag(study=study).sweep()


@pytest.mark.parametrize(("category", "kept"), [("interrupted", False), ("not_tried", False), ("server_died", True)])
def test_the_next_run_measures_what_was_interrupted_or_not_tried_and_keeps_other_failures(
    study: Study, category: str, kept: bool
) -> None:
    trial = study.plan.trials[0]
    leave(study, trial, asked(study, trial), status="failed", category=category, reason="x")
    folder = study.folder("try").trial(trial.id)
    folder.record.unlink()  # a load that failed is not committed
    Dag(study=study).sweep()
    assert folder.load.exists() == kept


@pytest.mark.covers("E-NFR04")
def test_conflicts_are_put_aside_whole_and_counted_on_from_earlier_attempts(study: Study) -> None:
    trial = study.plan.trials[0]
    folder = study.folder("try").trial(trial.id)
    for number, machine in enumerate(("a", "b"), 1):
        leave(study, trial, asked(study, trial).changed(machine=machine))
        folder.telemetry.write_bytes(b"watched")
        before = {path.name: path.read_bytes() for path in folder.root.iterdir() if path.is_file()}
        assert put_conflicts_aside(study) == (trial.id,)
        kept = folder.attempts / str(number)
        assert {path.name: path.read_bytes() for path in kept.iterdir()} == before
        assert [path.name for path in folder.root.iterdir()] == ["attempts"]
    assert put_aside(folder) is None, "nothing is left to put aside"


def test_snakemake_and_exported_jobs_take_no_trial_of_another_server_for_measured(study: Study) -> None:
    first, second, *_ = study.plan.trials
    here = asked(study, first)
    leave(study, first, here)
    leave(study, second, here.changed(site="other"))
    left = [trial.id for each in study.plan.deployments for trial in pending(study, "try", each.id)]
    assert first.id not in left
    assert second.id in left
    with pytest.raises(UserError, match="1 trial was measured on site 'other'"):
        Dag(study=study).sweep()
    assert study.folder("try").trial(second.id).load.exists(), "nothing was taken back"


def test_probes_of_a_search_are_answers_on_their_own_server_only(study: Study) -> None:
    trial = study.plan.trials[0]
    here = asked(study, trial)
    folder = study.folder("try").trial(trial.id)
    assert goes_on(folder, trial, here), "a search that has not begun goes on"
    leave(study, trial, here)
    for server, same in ((here, True), (here.changed(address="h:1"), False)):
        document = {"config_hash": trial.config_hash, "server_identity": encode(server.brief()), "outcome": None}
        folder.search.write_text(json.dumps(document))
        assert goes_on(folder, trial, here) is same
        assert finished(folder, trial, server) is same
    folder.search.write_text(json.dumps({"outcome": None}))
    assert goes_on(folder, trial, here), "one that knows no server goes on"
