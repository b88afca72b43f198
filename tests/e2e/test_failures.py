"""What goes wrong on the service's side, or on the disk, is a result or a clear message; nothing is lost."""

import json
import subprocess
from pathlib import Path

import pytest

from seamark.storage.documents import read_json

pytestmark = pytest.mark.e2e

TRY = ("-c", "config/scenarios/try.yaml")


@pytest.mark.sweep
def test_a_load_in_which_no_request_succeeds_is_a_failed_trial_with_its_category(study):
    study.write(repetitions=1, workload={"error_every": 1})
    done = study.submit(code=1)
    loads = [json.loads(path.read_text()) for path in study.results.glob("*/load.json")]
    assert {load["category"] for load in loads} == {"all_requests_failed"}
    assert loads[0]["failures"].keys() == {"server_error"}
    assert "503 Service Unavailable: ill" in loads[0]["reason"]
    assert "503 Service Unavailable: ill" in done.stdout
    assert study.json("summary.json")["ok"] == 0
    assert (study.root / "reports" / "try" / "index.html").exists()


@pytest.mark.sweep
def test_a_server_that_never_answers_fails_its_trials_with_its_last_words(study):
    study.write(repetitions=1)
    recipe = study.root / "config" / "services" / "null.yaml"
    recipe.write_text(recipe.read_text().replace("--reply-bytes={settings[reply_bytes]}", "--no-such-option"))
    done = study.measure(code=1)
    load = json.loads(next(study.results.glob("*/load.json")).read_text())
    assert load["category"] == "server_never_healthy"
    assert any("no-such-option" in line for line in load["log_tail"])
    recipe.write_text(recipe.read_text().replace("--no-such-option", "--reply-bytes={settings[reply_bytes]}"))
    [*_, last] = done.stdout.splitlines()
    assert last == "bench retry -c config/scenarios/try.yaml"
    assert study.bench(*last.split()[1:]).returncode == 0
    assert study.json("summary.json")["ok"] == 2
    cut_short = study.trials()[0]
    for name in ("load.json", "samples.json", "metrics.json"):
        (cut_short / name).unlink()
    assert study.bench("retry", *TRY).returncode == 0, "nothing has failed, and one trial is left"
    assert study.json("summary.json")["ok"] == 2
    assert (cut_short / "load.json").exists()


@pytest.mark.sweep
@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize("name", ["load.json", "samples.json"])
def test_a_damaged_record_is_made_again_and_no_other_trial_is_touched(finished, name):
    victim, *others = finished.trials()
    before = {other: (other / "load.json").stat().st_mtime_ns for other in others}
    whole = (victim / name).read_text()
    (victim / name).write_text(whole[: len(whole) // 2])
    assert finished.measure().returncode == 0
    assert json.loads((victim / name).read_text())
    assert finished.json("summary.json")["ok"] == 4
    assert {other: (other / "load.json").stat().st_mtime_ns for other in others} == before


@pytest.mark.sweep
def test_a_full_disk_is_said_and_the_run_completes_when_there_is_space(study, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", small], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("making a small file system needs root")
    try:
        site = study.root / "config" / "sites" / "local.yaml"
        site.write_text(site.read_text() + f"\npaths:\n  results: {small}\n")
        study.write(
            workload={"concurrency": 8, "pattern": "constant", "rate_rps": 4000, "duration_s": 4}, repetitions=1
        )
        done = study.measure()
        assert done.returncode != 0
        assert "o space left" in done.stdout + done.stderr
        subprocess.run(["mount", "-o", "remount,size=100m", small], check=True)
        study.bench("retry", *TRY)
        assert study.measure().returncode == 0
        assert read_json(small / "try" / "summary.json")["ok"] == 1
    finally:
        subprocess.run(["umount", small], check=True)


def test_everything_works_from_an_installed_package(study, tmp_path):
    import site
    import sys
    import venv

    root = Path(__file__).resolve().parents[2]
    wheels = tmp_path / "wheels"
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", wheels, root],
        check=True,
    )
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    packages = next((tmp_path / "venv" / "lib").iterdir()) / "site-packages"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", next(wheels.iterdir()), packages], check=True)
    environment = {"PYTHONPATH": site.getsitepackages()[0], "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    bench = [python, "-m", "seamark.cli.main"]
    options = {"check": True, "capture_output": True, "text": True, "env": environment}
    where = subprocess.run([python, "-c", "import seamark; print(seamark.__file__)"], **options).stdout
    assert str(packages) in where
    subprocess.run([*bench, "init", tmp_path / "mine"], **options)
    (tmp_path / "mine/config/scenarios/try.yaml").write_text((study.root / "config/scenarios/try.yaml").read_text())
    subprocess.run([*bench, "submit", *TRY], cwd=tmp_path / "mine", **options)
    assert read_json(tmp_path / "mine/results/try/summary.json")["ok"] == 4
    assert (tmp_path / "mine/reports/try/index.html").exists()


@pytest.mark.sweep
def test_an_attempt_that_a_retry_follows_keeps_its_load_json(study):
    faults = {"service": "known", "component": "inference", "gen_tokens": 1, "concurrency": 1, "error_every": 1}
    study.write(repetitions=1, max_retries=1, workload=faults | {"duration_s": 0.5})
    study.measure()
    [trial] = study.trials()
    kept = json.loads((trial / "attempts/1/load.json").read_text())
    last = json.loads((trial / "load.json").read_text())
    assert [(load["status"], load["attempt"]) for load in (kept, last)] == [("failed", 1), ("failed", 2)]
