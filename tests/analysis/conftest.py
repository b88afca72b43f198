"""The folder of one trial, as those of results are."""

from pathlib import Path

import pytest

from seamark.storage.paths import TrialFolder


@pytest.fixture
def folder(tmp_path: Path) -> TrialFolder:
    return TrialFolder(root=tmp_path)
