"""One study that has measured, and an empty one that asks the same; a copy of each for every test."""

import shutil
from pathlib import Path

import pytest
from exported import Exporting
from pairs import Pair
from rsync_here import path_with_rsync


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Exporting:
    """Measure two deployments with two trials each."""
    study = Exporting.at(tmp_path_factory.mktemp("measured") / "study", repetitions=1)
    study.bench("submit", site="local", code=0)
    return study


@pytest.fixture
def pair(measured: Exporting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pair:
    try:
        monkeypatch.setenv("PATH", path_with_rsync(tmp_path / "bin"))
    except OSError as error:
        pytest.skip(f"no rsync: {error}")
    for name in ("here", "there"):
        shutil.copytree(measured.root, tmp_path / name, symlinks=True)
    for name in ("results", "reports", ".snakemake", ".seamark"):
        shutil.rmtree(tmp_path / "here" / name, ignore_errors=True)
    return Pair(here=Exporting(root=tmp_path / "here"), there=Exporting(root=tmp_path / "there"))
