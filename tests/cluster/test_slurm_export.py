"""Exported job scripts on a real Slurm fill the results folder as Snakemake does and go on from there."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from exported import Exporting
from processes import until
from slurm import slurm, why_no_slurm

pytestmark = [pytest.mark.cluster, pytest.mark.services]
PATIENCE_S = 100.0
LOG = "log.jsonl"


@dataclass(frozen=True)
class Submitted:
    """A study with exported scripts, and the Slurm that runs them."""

    study: Exporting
    told: dict[str, str]

    def slurm(self, *words: str) -> str:
        """Run one of Slurm's commands; return what it says."""
        done = subprocess.run(words, env=self.told, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    def submit(self, *words: str) -> list[str]:
        """Run submit.sh; return the numbers of the jobs."""
        done = subprocess.run(
            [self.study.root / "slurm/try/submit.sh", *words],
            env=self.told | {"SEAMARK_PYTHON": sys.executable},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [line.split()[0] for line in done.stdout.splitlines()]

    def wait(self, jobs: list[str]) -> None:
        """Wait until none of the jobs is in the queue."""
        until(lambda: not self.slurm("squeue", "-h", "-j", ",".join(jobs), "-t", "PD,R,CG"), self.said, PATIENCE_S)

    def said(self) -> str:
        """Return what the jobs have written."""
        logs = [*self.study.root.glob("logs/*/*"), *self.study.results.glob("logs/*/*")]
        return "\n".join(f"{path.name}: {path.read_text()[-1000:]}" for path in logs)

    def records(self, name: str) -> dict[str, Any]:
        """Return a JSON file of every trial that has it, by the trial."""
        found = self.study.results.glob(f"*--*/{name}")
        return {path.parent.name: json.loads(path.read_text()) for path in found}

    def measurements(self) -> dict[str, int]:
        """Return how often a load of each trial came to its end."""
        return {
            path.parent.name: sum("load ended" in line for line in path.read_text().splitlines())
            for path in self.study.results.glob(f"*--*/{LOG}")
        }

    def processes(self) -> list[psutil.Process]:
        """Return what lives and belongs to the study's jobs."""
        found = []
        for each in psutil.process_iter():
            try:
                if each.pid != os.getpid() and str(self.study.root) in f"{each.cmdline()} {each.cwd()}":
                    found.append(each)
            except psutil.Error:
                continue
        return found


@pytest.mark.sweep
@pytest.mark.covers("E-FR03", "E-MLX02")
def test_more_deployments_than_a_user_may_have_jobs_are_submitted_as_there_is_room(
    accounted: dict[str, str], tmp_path: Path
) -> None:
    qos, most, levels = "short", 3, [2, 4, 8, 16]
    site = {"partitions": {}, "qos": {qos: 1800}, "qos_max_submit": {qos: most}}
    workload = {"reply_bytes": levels, "concurrency": 1}
    study = Exporting.at(tmp_path / "study", site=site, qos=qos, workload=workload, repetitions=1)
    study.export()
    jobs = Submitted(study=study, told=accounted | {"SEAMARK_LOOK_S": "0.3"})
    with (study.root / "submitted").open("w") as said:
        submit = subprocess.Popen(
            study.root / "slurm/try/submit.sh",
            env=jobs.told | {"SEAMARK_PYTHON": sys.executable},
            stdout=said,
            stderr=said,
        )
    seen = 0
    while submit.poll() is None:
        seen = max(seen, len(jobs.slurm("squeue", "-h", "--array", "-t", "PD,R", "-q", qos).splitlines()))
        time.sleep(0.2)
    told = (study.root / "submitted").read_text()
    assert submit.returncode == 0, told
    jobs.wait([line.split()[0] for line in told.splitlines()])
    assert seen == most
    assert jobs.measurements() == dict.fromkeys(jobs.records("metrics.json"), 1)
    assert len(jobs.records("metrics.json")) == len(levels), jobs.said()
    assert (study.root / "reports/try/index.html").exists()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if reason := why_no_slurm():
        pytest.skip(reason)
    with slurm(tmp_path_factory.mktemp("slurm"), nodes=2, cpus=2, more="KillWait=20\n") as told:
        yield told


@pytest.fixture
def exported(cluster: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Submitted]]:
    made: list[Submitted] = []

    def make(**scenario: Any) -> Submitted:
        study = Exporting.at(tmp_path / "study", site={"partitions": {}}, **scenario)
        study.export()
        made.append(Submitted(study=study, told=cluster))
        return made[0]

    yield make
    for process in made[0].processes():
        process.kill()


@pytest.mark.sweep
@pytest.mark.covers("E-FR03", "E-CLI01", "E-MR08")
def test_exported_scripts_measure_every_trial_once_and_nothing_is_left_for_snakemake(
    exported: Callable[..., Submitted],
) -> None:
    jobs = exported()
    numbers = jobs.submit()
    jobs.wait(numbers)
    loads = jobs.records("load.json")
    assert [(load["status"], load["republished"]) for load in loads.values()] == [("ok", False)] * 8, jobs.said()
    assert {meta["slurm"]["slurm_job_partition"] for meta in jobs.records("meta.json").values()} == {"all"}
    deployments = sorted(jobs.study.results.glob("deployments/*/deployment.json"))
    assert [json.loads(each.read_text())["trials"] for each in deployments] == [{"n": 4, "ok": 4}] * 2
    assert not list(jobs.study.results.glob("deployments/*/endpoint.json"))
    assert len(jobs.records("metrics.json")) == 8
    assert (jobs.study.root / "reports/try/index.html").exists()
    assert len(list(jobs.study.root.glob(f"logs/try/try_{numbers[0]}_?.out"))) == 2

    before = {path: path.stat().st_mtime_ns for path in jobs.study.results.glob("*--*/*")}
    jobs.wait(jobs.submit())
    assert {path: path.stat().st_mtime_ns for path in jobs.study.results.glob("*--*/*")} == before

    refused = jobs.study.bench("submit", site="local")
    assert (refused.returncode, "8 trials were measured on site 'here'" in refused.stderr) == (2, True)
    done = jobs.study.bench("submit", code=0)
    assert "all 8 trials are there" in done.stdout
    assert jobs.measurements() == dict.fromkeys(loads, 1)
    assert {
        path: path.stat().st_mtime_ns for path in jobs.study.results.glob("*--*/load.json")
    }.items() <= before.items()


@pytest.mark.sweep
@pytest.mark.covers("E-FR03", "E-CLI05")
@pytest.mark.parametrize(
    "how",
    [
        pytest.param([], id="scancel"),
        pytest.param(["--batch", "--signal=TERM"], id="time-is-up"),
    ],
)
def test_a_job_that_is_cut_short_leaves_finished_trials_and_no_process_and_the_next_goes_on(
    exported: Callable[..., Submitted], how: list[str]
) -> None:
    jobs = exported(workload={"reply_bytes": 2, "duration_s": 1.5})
    [number, report] = jobs.submit()
    until(lambda: jobs.records("samples.json"), jobs.said, PATIENCE_S)
    until(lambda: list(jobs.study.results.glob("*--*/.parts/*")), jobs.said, PATIENCE_S)
    jobs.slurm("scancel", *how, number)
    jobs.wait([number, report])
    finished = jobs.records("samples.json")
    assert 1 <= len(finished) < 4
    assert {name: load["status"] for name, load in jobs.records("load.json").items()} == dict.fromkeys(finished, "ok")
    [deployment] = jobs.study.results.glob("deployments/*")
    assert (deployment / "deployment.json").exists(), jobs.said()
    assert not (deployment / "endpoint.json").exists()
    until(lambda: not jobs.processes(), jobs.processes, PATIENCE_S)
    assert set(jobs.records("metrics.json")) == set(finished)

    jobs.wait([*jobs.submit(), *jobs.submit()])
    assert "another job is at work on it" in jobs.said()
    assert jobs.measurements() == dict.fromkeys(jobs.records("load.json"), 1)
    assert {load["status"] for load in jobs.records("load.json").values()} == {"ok"}
    assert len(jobs.records("metrics.json")) == 4


@pytest.mark.sweep
@pytest.mark.covers("E-FR07", "E-CLI05")
def test_a_failed_trial_fails_no_job_and_is_measured_again_when_that_is_asked_for(
    exported: Callable[..., Submitted],
) -> None:
    workload = {"reply_bytes": 2, "error_every": [0, 1], "concurrency": 1}
    jobs = exported(workload=workload, repetitions=1)
    numbers = jobs.submit()
    jobs.wait(numbers)
    loads = jobs.records("load.json")
    assert sorted(str(load["category"]) for load in loads.values()) == ["None", "all_requests_failed"], jobs.said()
    for number in numbers:
        said = jobs.slurm("scontrol", "show", "job", number)
        assert said.count("JobState=COMPLETED") == said.count("JobState=") > 0
        assert said.count("ExitCode=0:0") == said.count("ExitCode=")
    jobs.wait(jobs.submit())
    assert set(jobs.measurements().values()) == {1}
    jobs.wait(jobs.submit("--retry"))
    again = {name: 1 + (load["status"] != "ok") for name, load in loads.items()}
    assert jobs.measurements() == again
    assert len(list(jobs.study.results.glob("*--*/attempts/1/load.json"))) == 1
