"""Folders of the result tree: one for each trial, whatever varies between trials of one model, method and task."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from samples import a_load, a_metrics, a_view

from seamark.errors import UserError
from seamark.model.results.answers import AnswersRecord, Score
from seamark.planning.study import SHIPPED, Study
from seamark.storage.paths import TrialFolder
from seamark_evaluate.evaluation.evaluated_trial import EvaluatedTrial
from seamark_evaluate.evaluation.result_tree import FILES, config_of, folders_of, is_current, is_of_another


@pytest.mark.covers("B10")
def test_a_task_at_two_lengths_has_the_length_in_its_folder_and_no_other_has() -> None:
    trials = Study.at(SHIPPED, scenario="config/scenarios/sparse_attention_local.yaml").plan.trials
    folders = folders_of(trials)
    assert len(set(folders.values())) == len(trials) == 120
    assert {path.name for path in folders.values() if path.parent == Path("known_reader/dense")} == {
        *(f"{task}{suffix}" for task in ("mock_benchmark", "ruler_niah_single_1") for suffix in ("", "_r2", "_r3")),
        *(f"needles_length_words_{words}{suffix}" for words in (256, 512) for suffix in ("", "_r2", "_r3")),
    }


@pytest.mark.covers("B14")
def test_trials_that_no_setting_tells_apart_are_refused_with_both_names() -> None:
    [first, *_] = Study.at(SHIPPED, scenario="config/scenarios/sparse_attention_local.yaml").plan.trials
    with pytest.raises(UserError, match="the trials x and y would share this folder"):
        folders_of([replace(first, id="x"), replace(first, id="y")])


def test_a_folder_is_current_for_the_trial_that_it_names_alone_and_only_while_that_has_figures(
    tmp_path: Path,
) -> None:
    [first, other, *_] = Study.at(SHIPPED, scenario="config/scenarios/sparse_attention_local.yaml").plan.trials
    own = TrialFolder(root=tmp_path / "trial")
    own.root.mkdir()
    own.metrics.write_text("{}")
    folder = tmp_path / "tree"
    folder.mkdir()
    for name in FILES:
        (folder / name).write_text(json.dumps({"trial": first.id, "config_hash": first.config_hash}))
    assert is_current(folder, EvaluatedTrial(trial=first, folder=own))
    for another in (other, replace(first, config_hash="cafe")):
        assert not is_current(folder, EvaluatedTrial(trial=another, folder=own))
        assert is_of_another(folder, EvaluatedTrial(trial=another, folder=own))
    assert not is_of_another(folder, EvaluatedTrial(trial=first, folder=own))
    own.metrics.unlink()
    assert not is_current(folder, EvaluatedTrial(trial=first, folder=own))
    (folder / "config.json").write_text("[]")
    assert not is_of_another(folder, EvaluatedTrial(trial=first, folder=own)), (
        "a folder that names no trial is left alone"
    )


@pytest.mark.covers("B10")
@pytest.mark.parametrize("content", ["", "{", "null", "[]", "{}", "\0" * 400])
def test_a_folder_whose_figures_are_damaged_is_not_current_and_so_is_written_again(
    tmp_path: Path, content: str
) -> None:
    [first, *_] = Study.at(SHIPPED, scenario="config/scenarios/sparse_attention_local.yaml").plan.trials
    own, folder = TrialFolder(root=tmp_path / "trial"), tmp_path / "tree"
    for each in (own.root, folder):
        each.mkdir()
    own.metrics.write_text("{}")
    answers = AnswersRecord(status="ok", answers=2, answered=2, scores={"score": Score(mean=0.5, scored=2)})
    trial = a_view(first, a_metrics(), EvaluatedTrial(trial=first, folder=own), load=a_load(items=2), answers=answers)
    assert trial.whole
    for name in FILES:
        (folder / name).write_text(json.dumps(config_of(trial)))
    (folder / "metrics.json").write_text(json.dumps(trial.document(), indent=1))
    assert is_current(folder, trial)
    (folder / "metrics.json").write_text(content)
    assert not is_current(folder, trial)
    assert not is_of_another(folder, trial)
