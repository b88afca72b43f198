"""Room for results: what a run will write, what disk and quota have left, what may be removed."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from seamark.cli.main import cli
from seamark.errors import SiteError
from seamark.housekeeping.retention import removable, remove
from seamark.housekeeping.storage_estimate import estimate, quota_left, require_room, rows
from seamark.model.site import Retention
from seamark.planning.study import Study
from seamark.storage.paths import TrialFolder
from seamark.trials.trial_files import commit_mark, complete

NOW = datetime(2026, 1, 31, tzinfo=UTC)
DAY_S = 86400.0
LFS = """Disk quotas for prj 200000 (pid 200000):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
 /mnt/tier2/project
                {used}  0  {limit}       -  219      0  100000       -
"""


@pytest.fixture
def study(tmp_path: Path) -> Callable[..., Study]:
    """Make a study: `study(quota_command=..., rate_rps=...)`, with an open loop of ten seconds at a rate."""
    CliRunner().invoke(cli, ["init", str(tmp_path / "study")], standalone_mode=False)
    root = tmp_path / "study"

    def make(quota_command: str | None = None, **workload: Any) -> Study:
        site = {"name": "here", "summary": "", "quota_command": quota_command}
        (root / "config" / "sites" / "here.yaml").write_text(yaml.safe_dump(site))
        load = {"component": "null", "service": "null", "pattern": "constant", "duration_s": 10, "warmup_s": 0}
        scenario = {"scenario": "try", "site": "here", "repetitions": 2, "workload": load | workload}
        (root / "config" / "scenarios" / "try.yaml").write_text(yaml.safe_dump(scenario))
        return Study.at(root, scenario="config/scenarios/try.yaml")

    return make


@pytest.mark.covers("E-MLX06")
def test_what_a_run_will_write_grows_with_its_requests_and_what_is_measured_is_not_counted(study: Callable) -> None:
    (slow, _), (fast, most) = estimate(study(rate_rps=100)), estimate(study(rate_rps=1000))
    assert fast == 10 * slow
    assert fast <= 2 * 10_000 * 6 <= most  # two trials; 6 bytes a row were measured
    measured = study(rate_rps=1000)
    folder = measured.folder("try").trial(measured.plan.trials[0].id)
    folder.root.mkdir(parents=True)
    folder.load.write_text('{"status": "ok"}')
    assert estimate(measured)[0] == fast / 2


@pytest.mark.parametrize(
    ("workload", "requests"),
    [
        ({"pattern": "closed", "concurrency": 4}, (4.0, 200_000.0)),
        ({"pattern": "constant", "rate_rps": 50}, (400.0, 600.0)),
        ({"pattern": "ramp", "rate_rps": 50, "ramp_to_rps": 150}, (800.0, 1200.0)),
        ({"pattern": "steps", "step_rates": "10:2,100:8"}, (656.0, 984.0)),
        ({"pattern": "bursts", "rate_rps": 10, "burst_rps": 110, "burst_s": 1, "burst_every_s": 5}, (240.0, 360.0)),
        ({"pattern": "diurnal", "rate_rps": 50, "amplitude": 0.5, "period_s": 5}, (400.0, 600.0)),
        ({"pattern": "trace", "trace": "arrivals.jsonl", "time_scale": 0.5}, (16.0, 24.0)),
        ({"pattern": "trace", "trace": "$NOT_SET_HERE/arrivals.jsonl"}, (0.0, 200_000.0)),
        ({"pattern": "constant", "rate_rps": 50, "turns": 3}, (400.0, 1800.0)),
        ({"pattern": "constant", "rate_rps": 50, "requests": 450}, (400.0, 450.0)),
        ({"pattern": "constant", "rate_rps": 50, "stop_when_saturated": True}, (0.0, 600.0)),
        (
            {"rate_rps": None, "search": {"setting": "rate_rps", "from": 10, "to": 100, "budget_s": 100}},
            (0.0, 2_000_000.0),
        ),
    ],
    ids=lambda each: str(each.get("pattern", "search")) if isinstance(each, dict) else "",
)
def test_every_pattern_tells_how_many_requests_a_trial_may_send(
    study: Callable, tmp_path: Path, workload: dict, requests: tuple, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("arrivals.jsonl").write_text("".join(f'{{"at_s": {at_s}}}\n' for at_s in range(100)))
    written = {name: value for name, value in workload.items() if value is not None}
    slos = {"slos": ["latency_p99_s <= 0.1"]} if "search" in written else {}
    trial = study(**written, **slos).plan.trials[0]
    assert rows(trial) == pytest.approx(requests)


@pytest.mark.covers("E-MLX06")
def test_a_run_that_does_not_fit_the_quota_is_refused_before_it_begins_and_says_what_helps(study: Callable) -> None:
    with pytest.raises(SiteError, match=r"need .* kB or more, but your quota has 1 kB left.*bench prune"):
        require_room(study("echo 1000", rate_rps=1000))
    assert require_room(study("echo 1000000000000", rate_rps=1000)) == []
    assert require_room(study(rate_rps=1000)) == []


@pytest.mark.covers("E-MLX06")
def test_bench_submit_ends_with_3_when_there_is_no_room(study: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(study("echo 1000", rate_rps=1000).root)
    shown = CliRunner().invoke(cli, ["submit", "-c", "config/scenarios/try.yaml"], standalone_mode=False)
    assert isinstance(shown.exception, SiteError)
    assert shown.exception.exit_code == 3


def test_a_quota_that_cannot_be_asked_is_a_note_and_no_reason_to_stop(study: Callable) -> None:
    for silent in ("no-such-command", "echo nothing of use"):
        [note] = require_room(study(silent, rate_rps=1000))
        assert "the quota is not known" in note


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("12345\n", 12345),
        (LFS.format(used=400, limit=1000), 600 * 1024),
        (LFS.format(used="1400*", limit=1000), 0),
        (LFS.format(used=400, limit=0), None),
    ],
)
def test_a_quota_is_read_as_bytes_or_as_the_table_of_lfs(text: str, left: int | None) -> None:
    assert quota_left(text) == left


def aged(path: Path, days: float, text: str = "x" * 100) -> Path:
    """Write a file that was last changed so many days ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (NOW.timestamp() - days * DAY_S,) * 2)
    return path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results of one scenario with a measured trial of forty days ago."""
    results = tmp_path / "results"
    trial = results / "try" / "a--b--r1"
    aged(results / "try" / "plan.json", 40, "{}")
    aged(trial / "samples.json", 40, json.dumps({"status": "ok", "samples_bytes": 100, "config_hash": "c"}))
    for name in ("samples.parquet", "load.json", "metrics.json", "log.jsonl", "attempts/1/samples.parquet"):
        aged(trial / name, 40)
    aged(results / "try" / "logs" / "load" / "a--b--r1.log", 40)
    aged(results / "try" / "logs" / "submit-1.log", 2)
    aged(results / "try" / "deployments" / "a" / "server.log", 40)
    return results


@pytest.mark.covers("E-MLX06")
def test_old_logs_and_attempts_may_go_and_nothing_that_a_figure_stands_on(results: Path) -> None:
    found = removable(results, Retention(), NOW)
    assert {(each.kind, str(each.path.relative_to(results / "try"))) for each in found} == {
        ("logs", "logs/load/a--b--r1.log"),
        ("logs", "deployments/a/server.log"),
        ("attempts", "a--b--r1/attempts"),
    }
    assert remove(found, NOW) == 300
    trial = results / "try" / "a--b--r1"
    assert {path.name for path in trial.iterdir()} == {
        "samples.json",
        "samples.parquet",
        "load.json",
        "metrics.json",
        "log.jsonl",
    }
    assert removable(results, Retention(logs_days=None), NOW) == []


@pytest.mark.covers("E-MLX06")
def test_old_logs_of_a_kept_run_go_by_the_name_of_its_scenario(results: Path) -> None:
    kept = results / "history" / "try" / "before"
    kept.parent.mkdir(parents=True)
    (results / "try").rename(kept)
    found = removable(results, Retention(), NOW, ["try"])
    assert {each.path for each in found if each.kind == "logs"} == {
        kept / "logs" / "load" / "a--b--r1.log",
        kept / "deployments" / "a" / "server.log",
    }
    assert removable(results, Retention(), NOW, ["other"]) == []


@pytest.mark.covers("E-MLX06")
def test_samples_go_only_when_that_is_asked_for_and_the_trial_stays_measured(results: Path) -> None:
    asked = Retention(logs_days=None, attempts_days=None, samples_days=30)
    trial = TrialFolder(root=results / "try" / "a--b--r1")
    unmeasured = aged(results / "try" / "a--b--r2" / "samples.parquet", 40)
    found = removable(results, asked, NOW)
    assert [each.path for each in found] == [trial.samples]
    remove(found, NOW)
    assert not trial.samples.exists()
    assert unmeasured.exists()
    assert complete(trial, commit_mark(trial), "c")
    assert not complete(trial, commit_mark(trial), "another")


@pytest.mark.covers("E-MLX06")
def test_prune_shows_and_removes_only_when_told_to(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(results.parent)
    (results.parent / "config" / "sites").mkdir(parents=True)
    (results.parent / "config" / "sites" / "local.yaml").write_text("{name: local, summary: here}")
    old = results / "try" / "logs" / "load" / "a--b--r1.log"
    shown = CliRunner().invoke(cli, ["prune", "try"], standalone_mode=False)
    assert "Nothing was removed" in shown.output
    assert old.exists()
    CliRunner().invoke(cli, ["prune", "try", "--apply"], standalone_mode=False)
    assert not old.exists()
    wrong = CliRunner().invoke(cli, ["prune", "tri"], standalone_mode=False)
    assert "Did you mean 'try'?" in str(wrong.exception)
