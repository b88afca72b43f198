"""What is changed inside Snakemake, and what it costs in a large study with the changes."""

import json
import os
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest
import snakemake
from exported import Exporting
from processes import until
from snakemake.scheduling.job_scheduler import JobRateLimiter
from snakemake.settings.types import MaxJobsPerTimespan
from study_folder import StudyFolder

from seamark.planning.study import Study
from seamark.workflow.dag import Dag
from seamark.workflow.inside_snakemake import TRIED, adapt, lift_default_rate_limit
from seamark.workflow.snakemake_cli import command

pytestmark = pytest.mark.slow


@pytest.mark.sweep
@pytest.mark.covers("E-FR03")
def test_a_dry_run_of_one_job_takes_a_time_in_proportion_to_its_trials(tmp_path):
    took_s = {}
    for trials in (40, 400):
        workload = {"reply_bytes": 2, "concurrency": list(range(1, trials // 2 + 1))}
        study = Exporting.at(tmp_path / str(trials), workload=workload)
        assert len(json.loads(study.bench("plan", "--json").stdout)["plan"]["trials"]) == trials
        study.bench("plan")
        words = command(Study.at(study.root, scenario="config/scenarios/try.yaml", site="here"), extra=["-n"])
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(words, cwd=study.root, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        assert f"load {trials}" in " ".join(done.stdout.split())
        took_s[trials] = after.ru_utime - before.ru_utime
    assert took_s[400] < 5 * took_s[40], "groups that are checked job by job take 10 times as long"


@pytest.mark.sweep
@pytest.mark.e2e
@pytest.mark.covers("E-NFR01")
def test_finished_jobs_leave_nothing_behind_in_the_process_of_the_run(tmp_path):
    folder = StudyFolder.new(tmp_path / "study")
    folder.write(repetitions=8, workload={"duration_s": 0.1})
    threads = []

    def look() -> bool:
        with suppress(psutil.Error):
            for child in psutil.Process(run.pid).children():
                if "snakemake" in child.cmdline():
                    threads.append(child.num_threads())
        return run.poll() is not None

    with folder.start() as run:
        until(look, 120)
    assert run.returncode == 0
    assert folder.json("summary.json")["ok"] == 16
    assert max(threads) < 16, "of 48 jobs each left a timer, and a scheduling round in every second"


@pytest.mark.parametrize(("given", "stays"), [("100/1s", False), ("10/1s", True), ("100/1m", True)])
def test_only_the_default_limit_of_jobs_per_second_is_lifted(given: str, stays: bool) -> None:
    scheduler = SimpleNamespace(job_rate_limiter=JobRateLimiter(MaxJobsPerTimespan.parse_choice(given)))
    lift_default_rate_limit("9.30.0", scheduler)
    assert scheduler.job_rate_limiter is not None, "this version was not tried"
    lift_default_rate_limit(snakemake.__version__, scheduler)
    assert (scheduler.job_rate_limiter is not None) == stays


def test_a_snakemake_that_was_not_tried_runs_as_it_is_and_a_line_says_so() -> None:
    theirs = type("DAG", (), dict.fromkeys(("init", "_ready", "update_ready", "_check_groups")))
    before = dict(vars(theirs))
    assert "Snakemake 9.30.0" in (adapt("9.30.0", theirs, cast(Dag, None), ValueError) or "")
    assert dict(vars(theirs)) == before
    assert adapt(snakemake.__version__, theirs, cast(Dag, None), ValueError) is None
    assert all(vars(theirs)[name] is not None for name in before if before[name] is None and name[:2] != "__")


@pytest.mark.sweep
@pytest.mark.e2e
@pytest.mark.covers("E-NFR01")
def test_a_study_runs_on_the_newest_snakemake_of_this_major_version(tmp_path: Path) -> None:
    """In a version that is not among those tried the changes are off; with this green it can be added to them."""
    newest = str(tmp_path / "newest")
    asked = ["snakemake<10", "--upgrade", "--target", newest, "--quiet"]
    subprocess.run([sys.executable, "-m", "uv", "pip", "install", *asked], check=True, timeout=300)
    study = StudyFolder.new(tmp_path / "study", environment=os.environ | {"PYTHONPATH": newest})
    study.write(repetitions=2, workload={"concurrency": 1, "duration_s": 0.2})
    study.measure(code=0)
    assert study.json("summary.json")["ok"] == 2
    version = study.snakemake("--version").stdout.strip()
    assert f"snakemake-{version}.dist-info" in {path.name for path in Path(newest).iterdir()}
    assert ("Note: Snakemake" in study.snakemake("-n").stderr) == (not version.startswith(TRIED))
