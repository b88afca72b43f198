"""Real Apptainer for tests: installed on first use where that is possible, else they are skipped with the reason."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "servers")]

from boxes import Boxed, boxed, why_no_apptainer  # noqa: E402
from tiny_registry import Registry, serving  # noqa: E402


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
