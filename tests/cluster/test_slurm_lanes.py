"""Lanes inside a Slurm job of a whole node: one for each GPU that Slurm gives to the job."""

import json
import subprocess
import sys
from shlex import join

import pytest
from slurm_accounting import ACCOUNT
from slurm_study import SlurmStudy
from study_folder import HANG_S, NO_PAGES, StudyFolder

pytestmark = pytest.mark.cluster


@pytest.mark.sweep
@pytest.mark.covers("B1", "B8")
def test_lanes_share_out_the_gpus_of_a_job_of_a_whole_node(on_slurm: SlurmStudy) -> None:
    workload = {"concurrency": 1, "delay_ms": [1, 2, 3, 4, 5, 6]}
    StudyFolder.write(on_slurm, repetitions=1, resources={"gpus": 1}, workload=workload)
    bench = [sys.executable, "-m", "seamark.cli.main", "submit", "-c", "config/scenarios/try.yaml"]
    asked = ["--partition=gpu", f"--account={ACCOUNT}", "--qos=short", "--exclusive", "--gres=gpu:4", "--time=10"]
    done = subprocess.run(
        [
            "sbatch",
            "--wait",
            *asked,
            "--output=job.out",
            "--wrap",
            join([*bench, "--gpus=auto", "--parallel=4", *NO_PAGES]),
        ],
        cwd=on_slurm.root,
        env=on_slurm.environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    said = (on_slurm.root / "job.out").read_text() if (on_slurm.root / "job.out").exists() else done.stderr
    assert done.returncode == 0, said
    assert "6 of 6 trials to measure on local, 6 deployments, up to 4 at a time." in said
    loads = [json.loads((path / "load.json").read_text()) for path in on_slurm.trials()]
    assert [load["status"] for load in loads] == ["ok"] * 6
    assert {load["device"]["kind"] for load in loads} == {"gpu"}
    assert {load["device"]["id"] for load in loads} == {"0", "1", "2", "3"}
    for path in on_slurm.trials():
        assert json.loads((path / "meta.json").read_text())["slurm_job_id"] is not None
