"""What Snakemake's executor is told of its Slurm jobs: a squeue of ours, before one that says what a test wants."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from seamark.dispatch.slurm import commands
from seamark.dispatch.slurm.job_states import noted, stand_before_slurm
from seamark.dispatch.slurm.submission import refusals

ASKED = ("squeue", "--format=%i|%T", "--states=all", "--noheader", "--name", "run-1")
"""How the executor asks."""


class Cluster:
    """A Slurm whose squeue prints what it was told to; scancel writes down what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.study = folder / "study"
        (folder / "bin").mkdir()
        self.program("squeue", f'cat {folder}/listing; echo "$@" > {folder}/asked')
        self.program("scancel", f'echo "$@" > {folder}/cancelled')
        self.lists()

    def program(self, name: str, does: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)

    def lists(self, *jobs: tuple[str, str], age_s: float = 0.0) -> None:
        """Let squeue list jobs: their numbers and states, submitted so long ago."""
        lines = [f"{number}|{state}|{int(time.time() - age_s)}|n1|None|a|b\n" for number, state in jobs]
        (self.folder / "listing").write_text("".join(lines))

    def said(self, *words: str) -> str:
        """Return what the executor hears."""
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    stand_before_slurm(made.study, deadline_s=100)
    return made


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("RUNNING", "RUNNING"),
        ("PENDING", "PENDING"),
        ("COMPLETING", "COMPLETING"),
        ("COMPLETED", "COMPLETED"),
        ("TIMEOUT", "TIMEOUT"),
        ("NODE_FAIL", "FAILED"),
        ("BOOT_FAIL", "FAILED"),
        ("OUT_OF_MEMORY", "FAILED"),
        ("PREEMPTED", "CANCELLED"),
        ("REVOKED", "CANCELLED"),
    ],
)
def test_an_end_that_the_executor_does_not_know_is_told_in_words_that_it_knows(
    cluster: Cluster, state: str, told: str
) -> None:
    cluster.lists(("7", state))
    assert cluster.said(*ASKED) == f"7|{told}\n"
    assert noted(cluster.study)["7"].state == state


@pytest.mark.covers("E-NFR04")
def test_a_controller_that_does_not_answer_changes_nothing(cluster: Cluster) -> None:
    cluster.lists(("7", "RUNNING"))
    cluster.said(*ASKED)
    cluster.program("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert cluster.said(*ASKED) == ""
    assert noted(cluster.study)["7"].state == "RUNNING"


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize("says", ["echo 'MaxArraySize = 9'; echo 'MinJobAge = 2 sec'", "exit 1"])
def test_the_executor_never_asks_accounting_instead(cluster: Cluster, says: str) -> None:
    cluster.program("scontrol", says)
    lines = cluster.said("scontrol", "show", "config").splitlines()
    assert [line.split()[2] for line in lines if "MinJobAge" in line] == ["300"]
    assert ("MaxArraySize = 9" in lines) == ("9" in says)


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize(
    ("sacct", "told", "state"), [("exit 1", "FAILED", "FORGOTTEN"), ("echo COMPLETED", "COMPLETED", "COMPLETED")]
)
def test_a_job_that_slurm_forgot_has_ended_as_accounting_says_or_badly(
    cluster: Cluster, sacct: str, told: str, state: str
) -> None:
    cluster.program("sacct", sacct)
    cluster.lists(("7", "RUNNING"), ("8", "COMPLETED"))
    cluster.said(*ASKED)
    cluster.lists()
    assert sorted(cluster.said(*ASKED).split()) == [f"7|{told}", "8|COMPLETED"]
    assert noted(cluster.study)["7"].state == state


@pytest.mark.covers("E-NFR04")
def test_a_job_that_waits_longer_than_the_site_lets_it_is_cancelled(cluster: Cluster) -> None:
    cluster.lists(("7", "PENDING"), age_s=90)
    assert cluster.said(*ASKED) == "7|PENDING\n"
    cluster.lists(("7", "PENDING"), ("8", "RUNNING"), age_s=110)
    assert cluster.said(*ASKED) == "7|CANCELLED\n8|RUNNING\n"
    assert (cluster.folder / "cancelled").read_text() == "7\n"
    assert noted(cluster.study)["7"].state == "OVERDUE"


@pytest.mark.slow
@pytest.mark.covers("E-NFR04", "E-VAL")
def test_a_job_is_submitted_when_there_is_a_controller_again_and_once(cluster: Cluster) -> None:
    away, calls = cluster.folder / "away", cluster.folder / "calls"
    away.touch()
    said = "Batch job submission failed: Unable to contact slurm controller (connect failure)"
    cluster.program(
        "sbatch", f"echo x >> {calls}; [ -e {away} ] || {{ echo 7; exit; }}; rm {away}; echo {said!r} >&2; exit 1"
    )
    assert cluster.said("sbatch", "--parsable", "--wrap=true") == "7\n"
    assert calls.read_text().split() == ["x", "x"]
    assert refusals(cluster.study) == []


@pytest.mark.covers("E-NFR04", "E-VAL")
def test_why_slurm_refuses_a_job_is_noted(cluster: Cluster) -> None:
    cluster.program("sbatch", "cat > /dev/null; echo 'sbatch: error: Invalid account' >&2; exit 1")
    for _ in range(2):
        done = subprocess.run(["sbatch", "/dev/stdin"], input=b"#!/bin/sh", capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (1, b"sbatch: error: Invalid account\n")
    assert refusals(cluster.study) == ["sbatch: error: Invalid account"]


def test_jobs_of_an_earlier_run_are_none_of_the_next(cluster: Cluster) -> None:
    cluster.lists(("7", "RUNNING"))
    cluster.said(*ASKED)
    cluster.lists(("9", "RUNNING"))
    assert cluster.said(*ASKED[:-1], "run-2") == "9|RUNNING\n"
    assert list(noted(cluster.study)) == ["9"]


def test_every_other_question_goes_to_slurms_own_squeue(cluster: Cluster) -> None:
    cluster.lists(("7", "PREEMPTED"))
    assert "7|PREEMPTED" in cluster.said("squeue", "--me", "-h")
    assert (cluster.folder / "asked").read_text() == "--me -h\n"
    assert not (cluster.study / ".seamark" / "jobs.json").exists()


def test_standing_before_slurm_twice_is_standing_there_once(cluster: Cluster) -> None:
    before = os.environ["PATH"]
    stand_before_slurm(cluster.study, deadline_s=None)
    assert os.environ["PATH"] == before
    assert before.count("study/.seamark/bin") == 1


@pytest.mark.parametrize("name", ["it's", "x'; touch P; echo '", "$(touch P)", "a%b"])
def test_a_job_gets_its_words_and_its_logs_whatever_the_names_of_folders_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    study = tmp_path / name
    study.mkdir()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "sbatch"
    program.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@" > options; for last in "$@"; do :; done; sh -c "${last#--wrap=}"; echo 7\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    words = ("touch", str(study / "done"))
    assert (
        commands.sbatch(commands.Batch(words=words, name="try", logs=study / "logs", folder=study, options={})) == "7"
    )
    assert sorted(path.name for path in study.iterdir()) == ["done", "logs"]
    assert not (tmp_path / "P").exists()
    logs = str(study / "logs").replace("%", "%%")
    assert f"--output={logs}/%x_%j.out" in (tmp_path / "options").read_text().splitlines()
