"""Snakemake itself, without `bench`: its own options work on our Snakefile."""

import shutil
import subprocess

import pytest

pytestmark = pytest.mark.e2e


def test_snakemake_alone_makes_the_report_and_its_own_report(study):
    study.snakemake(code=0)
    assert (study.root / "reports" / "try" / "index.html").exists()
    study.snakemake("--report", "r.html", code=0)
    assert (study.root / "r.html").stat().st_size > 100_000


@pytest.mark.covers("E-MR01", "E-MR02", "E-MLX01")
def test_the_meluxina_profile_plans_with_account_partition_and_qos(study):
    study.write(site="meluxina", partition="cpu", account="p200000", qos="default", resources={"cpus_per_task": 4})
    done = study.snakemake("--profile", "meluxina", "-n", "--verbose", code=0)
    assert "Scenario try (config/scenarios/try.yaml), site meluxina" in done.stderr
    assert "slurm_account=p200000" in done.stdout + done.stderr
    assert "slurm_partition=cpu" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("target", "guess"),
    [
        ("reports/tri/index.html", "try"),
        pytest.param("reports/try/index.htm", "reports/try/index.html", marks=pytest.mark.sweep),
    ],
)
def test_a_wrong_target_is_one_line_with_the_nearest(study, target, guess):
    done = study.snakemake(target, "-n", code=1)
    said = done.stdout + done.stderr
    assert f"Did you mean '{guess}'?" in said.partition("WorkflowError:\n")[2].splitlines()[0]
    assert "Traceback" not in said


def test_a_profile_of_slurm_ends_at_once_where_there_is_no_sbatch(study):
    if shutil.which("sbatch"):
        pytest.skip("Slurm is here")
    done = study.snakemake("--profile", "profiles/slurm", code=1)
    assert "`sbatch`" in (done.stdout + done.stderr).partition("WorkflowError:\n")[2].splitlines()[0]


@pytest.mark.sweep
def test_the_dag_is_a_picture(study):
    done = study.snakemake("--dag", code=0)
    assert done.stdout.startswith("digraph")
    if shutil.which("dot"):
        drawn = subprocess.run(["dot", "-Tsvg"], input=done.stdout, capture_output=True, text=True, check=True)
        assert "<svg" in drawn.stdout
