"""A data set is kept once, under a name that is its content, whole or not at all."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from seamark.datasets.prepare import ARRAYS, damage_of, prepared, prepared_settings, records_in
from seamark.drivers.vectors.dataset import Dataset
from seamark.errors import UserError
from seamark.load.driver import Target
from seamark.model.service import Setting

SEEDED = "seeded:vectors:rows=300,dimensions=4,queries=5"


def jsonl(path: Path, *prompts: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts))
    return path


@pytest.mark.covers("E-FR02")
def test_equal_content_is_made_once_whatever_its_name_and_other_content_beside_it(tmp_path):
    root = tmp_path / "sets"
    first, record = prepared(str(jsonl(tmp_path / "a" / "a.jsonl", "one", "two")), root)
    made = (first / "prompts.jsonl").stat().st_mtime_ns
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "LICENSE").write_text("MIT\n")
    again, renamed = prepared(str(jsonl(tmp_path / "b" / "b.jsonl", "one", "two")), root)
    assert (again, (again / "prompts.jsonl").stat().st_mtime_ns) == (first, made)
    assert (record.name, record.licence, record.rows) == ("a.jsonl", None, 2)
    assert (renamed.name, renamed.licence, renamed.sha256) == ("b.jsonl", "MIT", record.sha256)
    other, _ = prepared(str(jsonl(tmp_path / "a" / "a.jsonl", "one", "three")), root)
    assert {folder for folder, _ in records_in(root)} == {first, other}


@pytest.mark.covers("E-FR23")
def test_vectors_of_a_seed_are_those_that_a_deployment_draws_and_are_linked_into_its_folder(tmp_path):
    drawn = Dataset.generate(vectors=300, dimensions=4, queries=5, seed=0)
    setting = Setting(name="dataset", type="str", role="deployment", help="", file=True, dataset="vectors")
    service = type("Recipe", (), {"settings": (setting,)})()
    settings = prepared_settings(service, {"dataset": SEEDED, "k": 10, "metric": "l2"}, tmp_path / "sets")
    assert settings["k"] == 10
    staged = Dataset.stage(Target(settings=settings, data=tmp_path / "deployment"), seed=7)
    loaded = Dataset.load(tmp_path / "deployment")
    for data in (staged, loaded):
        for name in ARRAYS:
            np.testing.assert_allclose(getattr(data, name), getattr(drawn, name), atol=1e-9)
    assert (tmp_path / "deployment" / "vectors.npy").resolve().parent == Path(str(settings["dataset"]))
    assert prepared(SEEDED + ",seed=1", tmp_path / "sets")[0] != Path(str(settings["dataset"]))


@pytest.mark.parametrize(
    ("dataset", "code"),
    [
        ("none.jsonl", "no_such_file"),
        ("notes.txt", "wrong_form"),
        ("empty", "wrong_form"),
        ("a.jsonl", "wrong_form"),
        ("seeded:vectors:row=3", "wrong_form"),
        ("seeded:vectors:rows=0", "wrong_form"),
        ("seeded:words", "wrong_form"),
    ],
)
def test_what_is_no_data_set_of_vectors_is_one_line(dataset, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "a.jsonl", "one")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError) as refused:
        prepared(dataset, tmp_path / "sets", "vectors")
    assert [(mistake.file, mistake.code) for mistake in refused.value.mistakes] == [(dataset, code)]
    assert not (tmp_path / "sets").exists()


def test_a_file_that_has_changed_or_gone_is_found_and_a_lost_record_is_made_again(tmp_path):
    folder, _ = prepared(SEEDED, tmp_path)
    [(_, record)] = records_in(tmp_path)
    assert damage_of(folder, record) is None
    whole = (folder / "truth.npy").read_bytes()
    (folder / "truth.npy").write_bytes(whole[:-1] + b"\x00")
    assert damage_of(folder, record) == "truth.npy"
    (folder / "truth.npy").unlink()
    assert damage_of(folder, record) == "truth.npy"
    (folder / "dataset.json").write_text("{")
    prepared(SEEDED, tmp_path)
    [(again, record)] = records_in(tmp_path)
    assert (again, damage_of(again, record)) == (folder, None)


KILLED = """
import os, signal, sys
from pathlib import Path
from seamark.datasets import prepare
prepare.sha256_of = lambda path: os.kill(os.getpid(), signal.SIGKILL)
prepare.prepared(sys.argv[1], Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_makes_one_leaves_nothing_that_is_read(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, SEEDED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert any(tmp_path.iterdir())
    assert list(records_in(tmp_path)) == []
    folder, _ = prepared(SEEDED, tmp_path)
    assert [(path, damage_of(path, record)) for path, record in records_in(tmp_path)] == [(folder, None)]
