"""Snakemake's executor on Slurm, without Slurm."""

import pytest
from snakemake_interface_common.exceptions import WorkflowError

from seamark.dispatch.slurm.executor import StudyExecutor


def test_without_sbatch_a_run_ends_at_its_first_job(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WorkflowError, match="sbatch"):
        StudyExecutor.run_jobs(object.__new__(StudyExecutor), [])
