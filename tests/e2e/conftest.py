"""A study for each test of whole runs, with nothing left running."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from study_folder import StudyFolder


@pytest.fixture
def study(tmp_path: Path) -> Iterator[StudyFolder]:
    folder = StudyFolder.new(tmp_path / "study")
    yield folder
    for process in folder.processes():
        process.kill()
