"""What Snakemake costs in a large study, at a site with a batch system (of which no command is called) and here."""

import json
import resource
import subprocess
from contextlib import suppress
from types import SimpleNamespace

import psutil
import pytest
from exported import Exporting
from processes import until
from snakemake.scheduling.job_scheduler import JobRateLimiter
from snakemake.settings.types import MaxJobsPerTimespan
from study_folder import StudyFolder

from seamark.planning.study import Study
from seamark.workflow.large_studies import lift_default_rate_limit
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
    lift_default_rate_limit(scheduler)
    assert (scheduler.job_rate_limiter is not None) == stays
