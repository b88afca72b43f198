"""Groups of many jobs: a dry run of a deployment at a site with a batch system, of which no command is called."""

import json
import resource
import subprocess

import pytest
from exported import Exporting

from seamark.planning.study import Study
from seamark.workflow.snakemake_cli import command

pytestmark = pytest.mark.slow


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
