"""A job of an earlier run that comes late changes nothing; a run elsewhere that shares the folder is left alone."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from study_folder import StudyFolder

from seamark.dispatch.fencing import TURN, past, take
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
    old = take(study.root)
    take(study.root)
    of = plan["trials"][0]["id"] if phase == "load" else plan["deployments"][0]["id"]
    words = [sys.executable, SCRIPTS / f"{phase}.py", "config/scenarios/try.yaml", "local", "try", of]
    before = sorted(study.results.rglob("*"))
    late = subprocess.run(
        words, cwd=study.root, env={**os.environ, TURN: old}, capture_output=True, text=True, check=False
    )
    assert late.returncode != 0
    assert "A later run has taken this study over" in late.stderr
    assert sorted(study.results.rglob("*")) == before


def test_who_was_told_of_no_turn_is_never_past(tmp_path: Path) -> None:
    assert not past(tmp_path, {TURN: "any"})
    turn = take(tmp_path)
    assert not past(tmp_path, {TURN: turn})
    assert not past(tmp_path, {})
    take(tmp_path)
    assert past(tmp_path, {TURN: turn})


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
