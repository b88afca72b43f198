"""Real Apptainer and Slurm: had on first use where that is possible, else tests are skipped with the reason."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from boxes import Boxed, boxed, why_no_apptainer
from slurm import slurm, why_no_slurm
from slurm_study import SlurmStudy
from tiny_registry import Registry, serving


@pytest.fixture(scope="session")
def apptainer() -> None:
    """Have an Apptainer that runs."""
    if reason := why_no_apptainer():
        pytest.skip(reason)


@pytest.fixture
def boxes(apptainer: None, tmp_path: Path) -> Boxed:
    """A study whose site runs containers."""
    return boxed(tmp_path / "study")


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as registry:
        yield registry


@pytest.fixture(scope="session")
def accounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A Slurm of two nodes, with accounting: the environment it is asked in. Its GPUs are none."""
    if reason := why_no_slurm(accounting=True):
        pytest.skip(reason)
    with slurm(tmp_path_factory.mktemp("slurm"), nodes=2, cpus=4, gpus=4, accounting=True) as told:
        yield told


@pytest.fixture
def on_slurm(accounted: dict[str, str], tmp_path: Path) -> Iterator[SlurmStudy]:
    """A study whose site is that Slurm; its jobs and processes end with the test."""
    study = SlurmStudy.at(tmp_path / "study", accounted)
    yield study
    study.end()
