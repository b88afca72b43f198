"""Modules of a study are named before they are imported."""

import sys
from importlib import import_module

from seamark.cli.main import _told
from seamark.model.dotted import search_in, tell_imports


def test_modules_of_a_study_are_named_before_their_import_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setenv("PYTHONPATH", "")
    (tmp_path / "own_pattern_x.py").write_text("")
    (tmp_path / "own_drivers_x").mkdir()
    (tmp_path / "own_drivers_x" / "mine.py").write_text("")
    (tmp_path / "colorsys.py").write_text("raise AssertionError")
    search_in(tmp_path)
    told: list[str] = []
    tell_imports(tmp_path, told.append)
    for name in ("own_pattern_x", "own_drivers_x.mine", "colorsys"):
        import_module(name)
    assert told == ["own_pattern_x", "own_drivers_x"]


def test_a_module_is_named_once_per_study_and_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SEAMARK_RUNTIME_DIR", str(tmp_path / "node"))
    (tmp_path / "node").mkdir()
    for study in ("one", "one", "other"):
        (tmp_path / study).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / study)
        _told("mine")
    assert capsys.readouterr().err.count("`mine`") == 2
