"""A job of an earlier run that comes late changes nothing; a run elsewhere that shares the folder is left alone."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from study_folder import StudyFolder

from seamark.dispatch.fencing import EPOCH, acquire_epoch, is_superseded
from seamark.errors import UserError
from seamark.workflow.snakemake_cli import beat, release, rest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.mark.covers("E-NFR04", "E-SVR06")
@pytest.mark.slow
@pytest.mark.parametrize("phase", ["serve", "warmup", "load", "teardown"])
def test_a_late_job_of_an_earlier_run_changes_nothing(tmp_path: Path, phase: str) -> None:
    study = StudyFolder.new(tmp_path / "study")
    assert study.bench("plan", "-c", "config/scenarios/try.yaml").returncode == 0
    plan = study.json("plan.json")
    token = acquire_epoch(study.root)
    acquire_epoch(study.root)
    of = plan["trials"][0]["id"] if phase == "load" else plan["deployments"][0]["id"]
    words = [sys.executable, SCRIPTS / f"{phase}.py", "config/scenarios/try.yaml", "local", "try", of]
    before = sorted(study.results.rglob("*"))
    late = subprocess.run(
        words, cwd=study.root, env={**os.environ, EPOCH: token}, capture_output=True, text=True, check=False
    )
    assert late.returncode != 0
    assert "belongs to a superseded run" in late.stderr
    assert sorted(study.results.rglob("*")) == before


def test_a_process_without_a_token_belongs_to_no_old_run(tmp_path: Path) -> None:
    assert not is_superseded(tmp_path, {EPOCH: "any"})
    token = acquire_epoch(tmp_path)
    assert not is_superseded(tmp_path, {EPOCH: token})
    assert not is_superseded(tmp_path, {})
    acquire_epoch(tmp_path)
    assert is_superseded(tmp_path, {EPOCH: token})


@pytest.mark.covers("E-NFR04")
def test_a_run_on_another_machine_that_sees_the_study_is_not_disturbed_while_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "login2")
    beat(tmp_path, pid=4242)
    release(tmp_path)  # said here, where no such process works in this study
    (told,) = (tmp_path / ".seamark" / "run").iterdir()
    told.write_text(json.dumps(json.loads(told.read_text()) | {"boot": "another"}))
    with pytest.raises(UserError, match="another run is at work here \\(process 4242 on login2\\)"):
        release(tmp_path)
    os.utime(told, (time.time() - 300, time.time() - 300))
    release(tmp_path)
    rest(tmp_path)
    assert not told.exists()
