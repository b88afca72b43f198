"""`bench history` and `bench keep`: output, exit codes, and each wrong use in one line."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_runs import Night, nights

from seamark.cli.main import cli
from seamark.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
NULL = ("-c", "config/scenarios/null.yaml")


@pytest.fixture
def study(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "config", tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    nights(tmp_path / "results", [100, 100, 100], scenario="null_server")
    Night(number=3, throughputs={1: (80, 81, 79)}, commit="beef1234").write(tmp_path / "results" / "null_server")
    return tmp_path


def run(*words):
    return CliRunner().invoke(cli, list(words), standalone_mode=False)


@pytest.mark.covers("E-VAL")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("history", "null_sever"), "Did you mean 'null_server'?"),
        (("history", "--metric", "thruput"), "--metric thruput: no trial has it"),
        (("history", "--treatment", "concurrency=7"), "no such treatment"),
        (("history", "--since", "yesterday"), "neither a time"),
        (("history", "--since", "2030-01-01"), "no run with figures is left"),
        (("history", "--baseline", "night-8"), "no earlier run has that name"),
        (("history", "--baseline", "present"), "is the latest run"),
        (("history", "--threshold", "much"), "give a share such as 5%"),
        (("history", "--threshold", "=5%"), "give a share such as 5%"),
        (("history", "--threshold", "thruput=5%"), "no trial has it"),
        (("history", "--threshold", "-5%"), "give a share such as 5%"),
        (("history", "--from", "nowhere"), "--from nowhere: no such folder"),
        (("history", "--site", "nowhere"), "site 'nowhere'"),
        (("keep", *NULL, "--name", "night-1"), "is there already"),
        (("keep", *NULL, "--name", "../out"), "cannot name a run"),
        (("keep", *NULL, "--name", ""), "cannot name a run"),
        (("keep", *NULL, "--commit", "a b"), "is no commit"),
        (("keep", "-c", "config/scenarios/load_patterns.yaml"), "no trial of load_patterns is measured"),
    ],
)
def test_a_wrong_use_is_one_line_and_changes_nothing(study, words, said):
    before = sorted(
        path for path in study.rglob("*") if path.name != ".history.duckdb" and ".seamark" not in path.parts
    )
    outcome = run(*words)
    assert isinstance(outcome.exception, UserError), outcome.output
    assert outcome.exception.exit_code == 2
    [line] = outcome.exception.lines
    assert said in line
    assert "\n" not in line
    after = sorted(
        path for path in study.rglob("*") if path.name != ".history.duckdb" and ".seamark" not in path.parts
    )
    assert after == before


def test_without_any_measured_trial_history_says_what_measures_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    outcome = run("history")
    assert "no trial is measured yet" in str(outcome.exception)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 0),
        (("--fail-on", "worse"), 1),
        (("--fail-on", "change"), 1),
        (("--fail-on", "worse", "--threshold", "25%"), 0),
        (("--fail-on", "worse", "--threshold", "25%", "--threshold", "throughput=5%"), 1),
        (("--fail-on", "worse", "--threshold", "throughput=30%"), 0),
        (("--fail-on", "worse", "--baseline", "night-0"), 1),
    ],
)
def test_the_exit_code_is_that_of_the_gate(study, words, code):
    outcome = run("history", "null_server", *words)
    assert outcome.return_value == code, outcome.output
    assert ("worse: null_server" in outcome.stderr) == bool(code)


def test_a_gate_that_could_judge_nothing_says_so(study, tmp_path, monkeypatch):
    Night(number=0, throughputs={1: (100,)}, machine="runner-1").write(
        tmp_path / "results" / "history" / "made" / "a"
    )
    Night(number=1, throughputs={1: (50,)}, machine="runner-2").write(tmp_path / "results" / "made")
    monkeypatch.chdir(tmp_path)
    outcome = run("history", "made", "--metric", "throughput", "--fail-on", "worse")
    assert (outcome.return_value, outcome.stderr.startswith("Nothing was judged: no earlier run")) == (0, True)
    assert "Nothing was judged" not in run("history", "made", "--metric", "throughput").stderr


def test_all_forms_show_the_runs(study):
    document = json.loads(run("history", "--format", "json", "--metric", "throughput").stdout)
    assert [each["run"] for each in document["series"][0]["series"]["runs"]] == [
        *("night-0", "night-1", "night-2"),
        "present",
    ]
    assert "present  beef1234" in run("history", "--runs").stdout
    assert "| null |" in run("history", "--format", "markdown").stdout


def test_a_run_is_kept_whole_under_its_name_with_its_commit(study):
    files = {
        path.name: path.stat().st_ino for path in (study / "results" / "null_server").rglob("*") if path.is_file()
    }
    (study / "reports" / "null_server").mkdir(parents=True)
    (study / "reports" / "null_server" / "index.html").write_text("page")
    assert run("keep", *NULL, "--name", "v2", "--commit", "cafe5678").exception is None
    kept = study / "results" / "history" / "null_server" / "v2"
    assert files.items() <= {path.name: path.stat().st_ino for path in kept.rglob("*") if path.is_file()}.items()
    assert not (study / "results" / "null_server").exists()
    assert (kept / "report" / "index.html").read_text() == "page"
    assert json.loads((kept / "run.json").read_text())["commit"] == "cafe5678"
    assert "v2       cafe5678" in run("history", "--runs").stdout


def test_a_run_without_a_name_is_called_by_its_time_and_commit(study):
    made = json.loads(run("keep", *NULL, "--commit", "cafe56789", "--json").stdout)
    assert made["run"] == "2026-01-04-030000-cafe5678"
