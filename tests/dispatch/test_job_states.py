"""States of a run's Slurm jobs from poll to poll, and Snakemake's executor on them: with fake commands of Slurm."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seamark.dispatch.dispatcher import DISPATCHERS
from seamark.dispatch.job import JobResources, JobSpec
from seamark.dispatch.slurm.commands import sbatch_options
from seamark.dispatch.slurm.job_states import poll, recorded_jobs
from seamark.dispatch.slurm.lost_jobs import refusals
from seamark.model.site import Partition, Site

SNAKEFILE = """\
from pathlib import Path
from seamark.dispatch.dispatcher import dispatcher_of
from seamark.model.site import Partition, Site

if workflow.is_main_process:
    site = Site(name="s", summary="s", partitions={"p": Partition(nodes=1, cpus=1, mem_gb=1)}, queue_deadline_s=100)
    dispatcher_of(site).prepare_executor(Path.cwd(), site)

rule all:
    output: "done"
    resources: slurm_partition="p", mem_mb=1, runtime=1
    shell: "touch {output}"
"""
SNAKEMAKE = (
    *(sys.executable, "-m", "snakemake", "--executor", "slurm", "--jobs", "1", "--latency-wait", "1"),
    *("--slurm-init-seconds-before-status-checks", "1", "--slurm-no-account"),
)


class Cluster:
    """A Slurm whose squeue prints the file `listing`; scancel writes down its arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.study = folder / "study"
        self.study.mkdir()
        (folder / "bin").mkdir()
        self.program("squeue", f"cat {folder}/listing")
        self.program("scancel", f'echo "$@" > {folder}/cancelled')
        for name in ("scontrol", "sacct", "sacctmgr", "sshare", "sinfo"):
            self.program(name, "exit 1")
        self.lists()

    def program(self, name: str, does: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)

    def lists(self, *jobs: tuple[str, str], age_s: float = 0.0) -> None:
        """Let squeue list jobs: their numbers and states, submitted so long ago."""
        lines = [f"{number}|{state}|{int(time.time() - age_s)}|n1|None|a|b\n" for number, state in jobs]
        (self.folder / "listing").write_text("".join(lines))

    def poll(self, run: str = "run-1") -> dict[str, str]:
        """Return the states of the jobs of a run after one more poll."""
        return {number: job.state for number, job in poll(self.study, run, 100).items()}

    def snakemake(self) -> "subprocess.CompletedProcess[str]":
        """Run Snakemake on a workflow of one job, with Slurm's executor."""
        (self.study / "Snakefile").write_text(SNAKEFILE)
        return subprocess.run(SNAKEMAKE, cwd=self.study, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return made


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize(
    ("state", "has_ended"),
    [
        *((state, False) for state in ("RUNNING", "PENDING", "COMPLETING")),
        *((state, True) for state in ("COMPLETED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY")),
        *((state, True) for state in ("PREEMPTED", "REVOKED", "CANCELLED")),
    ],
)
def test_every_state_in_which_a_job_runs_no_more_is_an_end(cluster: Cluster, state: str, has_ended: bool) -> None:
    cluster.lists(("7", state))
    assert cluster.poll() == {"7": state}
    assert recorded_jobs(cluster.study)["7"].has_ended == has_ended


@pytest.mark.covers("E-NFR04")
def test_a_controller_that_does_not_answer_changes_nothing(cluster: Cluster) -> None:
    cluster.lists(("7", "RUNNING"))
    cluster.poll()
    cluster.program("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert cluster.poll() == {}
    assert recorded_jobs(cluster.study)["7"].state == "RUNNING"


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize(("sacct", "state"), [("exit 1", "FORGOTTEN"), ("echo COMPLETED", "COMPLETED")])
def test_a_job_that_slurm_forgot_has_ended_as_accounting_says_or_badly(
    cluster: Cluster, sacct: str, state: str
) -> None:
    cluster.program("sacct", sacct)
    cluster.lists(("7", "RUNNING"), ("8", "COMPLETED"))
    cluster.poll()
    cluster.lists()
    assert cluster.poll() == {"7": state, "8": "COMPLETED"}
    assert recorded_jobs(cluster.study)["7"].state == state


@pytest.mark.covers("E-NFR04")
def test_a_job_that_waits_longer_than_the_site_lets_it_is_cancelled(cluster: Cluster) -> None:
    cluster.lists(("7", "PENDING"), age_s=90)
    assert cluster.poll() == {"7": "PENDING"}
    cluster.lists(("7", "PENDING"), ("8", "RUNNING"), age_s=110)
    assert cluster.poll() == {"7": "OVERDUE", "8": "RUNNING"}
    assert (cluster.folder / "cancelled").read_text() == "7\n"


def test_jobs_of_an_earlier_run_are_none_of_the_next(cluster: Cluster) -> None:
    cluster.lists(("7", "RUNNING"))
    cluster.poll()
    cluster.lists(("9", "RUNNING"))
    assert cluster.poll("run-2") == {"9": "RUNNING"}
    assert list(recorded_jobs(cluster.study)) == ["9"]


@pytest.mark.slow
@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize(("state", "age_s"), [("PREEMPTED", 0), ("PENDING", 1000)])
def test_snakemake_ends_when_its_job_was_preempted_or_waits_for_ever(
    cluster: Cluster, state: str, age_s: float
) -> None:
    cluster.program("sbatch", "echo 7")
    cluster.lists(("7", state), age_s=age_s)
    done = cluster.snakemake()
    ended = "OVERDUE" if state == "PENDING" else state
    assert done.returncode != 0
    assert f"Slurm job 7 has ended: {ended}" in done.stderr, done.stderr
    (loss,) = DISPATCHERS["slurm"].losses(cluster.study, ["a"])
    assert loss.startswith(f"Slurm job 7 of a on n1: {ended}.")


@pytest.mark.slow
@pytest.mark.covers("E-NFR04", "E-VAL")
def test_a_job_is_submitted_when_there_is_a_controller_again_and_once(cluster: Cluster) -> None:
    away, calls = cluster.folder / "away", cluster.folder / "calls"
    away.touch()
    message = "Batch job submission failed: Unable to contact slurm controller (connect failure)"
    here = "touch done; echo 7; exit"  # the job has run at once
    cluster.program(
        "sbatch", f"echo x >> {calls}; [ -e {away} ] || {{ {here}; }}; rm {away}; echo {message!r} >&2; exit 1"
    )
    cluster.lists(("7", "COMPLETED"))
    done = cluster.snakemake()
    assert done.returncode == 0, done.stderr
    assert calls.read_text().split() == ["x", "x"]
    assert refusals(cluster.study) == []


@pytest.mark.slow
@pytest.mark.covers("E-NFR04", "E-VAL")
def test_why_slurm_refuses_a_job_is_recorded(cluster: Cluster) -> None:
    cluster.program("sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1")
    assert cluster.snakemake().returncode != 0
    assert refusals(cluster.study) == ["sbatch: error: Invalid account"]
    (loss,) = DISPATCHERS["slurm"].losses(cluster.study, [])
    assert loss.startswith("Slurm refuses a job: Invalid account. ")
    DISPATCHERS["slurm"].forget_losses(cluster.study)
    assert DISPATCHERS["slurm"].losses(cluster.study, []) == []


@pytest.mark.parametrize(
    ("gpu_request", "asked"), [("gres", {"gres": "gpu:a:2", "tasks": 0}), ("gpus", {"gres": "", "tasks": 3})]
)
def test_resources_of_a_job_are_the_executors_without_what_it_would_misread(
    gpu_request: str, asked: dict[str, object]
) -> None:
    partitions = {"p": Partition(nodes=3, cpus=8, mem_gb=8, gpus=2, gres="gpu:a")}
    site = Site(name="s", summary="s", partitions=partitions, gpu_request=gpu_request, job_options=("--nice=7",))
    resources = JobResources(partition="p", nodes=3, gpus_per_node=2, cpus_per_task=4)
    named = DISPATCHERS["slurm"].executor_resources(resources, site)
    assert {name: named[name] for name in asked} == asked
    assert named["slurm_extra"].split()[1:] == ([] if gpu_request == "gres" else ["--gpus-per-node=2"])
    assert (named["nodes"], named["cpus_per_task"], named["slurm_partition"]) == (3, 4, "p")
    assert "qos" not in named  # an empty one would be asked for


@pytest.mark.covers("E-SVR02", "E-FR04")
@pytest.mark.parametrize("gpus", [0, 2])
def test_tasks_and_the_name_of_the_gpus_of_a_scenario_are_those_of_its_jobs(gpus: int) -> None:
    site = Site(name="s", summary="s", partitions={"p": Partition(nodes=3, cpus=8, mem_gb=8, gpus=2, gres="gpu:a")})
    resources = JobResources(partition="p", nodes=2, tasks=6, gres="gpu:b", gpus_per_node=gpus, cpus_per_task=1)
    asked = sbatch_options(resources, site)
    assert (asked["ntasks"], asked.get("gres")) == (6, "gpu:b:2" if gpus else None)
    named = DISPATCHERS["slurm"].executor_resources(resources, site)
    # the plugin would take `tasks` per GPU
    wanted = (0, "gpu:b:2", "--ntasks-per-node=3") if gpus else (6, "", "")
    assert (named["tasks"], named["gres"], named["slurm_extra"]) == wanted


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
    job = JobSpec(command=words, name="try", logs=study / "logs", folder=study, resources=JobResources())
    assert DISPATCHERS["slurm"].submit(job, Site(name="s", summary="s")) == "7"
    assert sorted(path.name for path in study.iterdir()) == ["done", "logs"]
    assert not (tmp_path / "P").exists()
    logs = str(study / "logs").replace("%", "%%")
    assert f"--output={logs}/%x_%j.out" in (tmp_path / "options").read_text().splitlines()
