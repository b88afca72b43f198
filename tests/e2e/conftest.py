"""A study for each test of whole runs, new or measured, with nothing left running."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from study_folder import StudyFolder


@pytest.fixture
def study(tmp_path: Path) -> Iterator[StudyFolder]:
    folder = StudyFolder.new(tmp_path / "study")
    yield folder
    end(folder)


@pytest.fixture(scope="session")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> StudyFolder:
    """The study after a submit, once for all tests: to be copied, not changed."""
    folder = StudyFolder.new(tmp_path_factory.mktemp("submitted") / "study")
    done = folder.submit(code=0)
    assert "reports/try/index.html" in done.stdout
    return folder


@pytest.fixture
def finished(submitted: StudyFolder, tmp_path: Path) -> Iterator[StudyFolder]:
    """A copy of a finished study, for tests of what follows the first run."""
    folder = submitted.copy(tmp_path / "study")
    yield folder
    end(folder)


def end(folder: StudyFolder) -> None:
    for process in folder.processes():
        process.kill()
