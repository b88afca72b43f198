"""Models of the tests of the attention server, written once by a process in its environment."""

from pathlib import Path
from typing import Any

import pytest
from prompts_of_servers import PROMPTS, inside


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Folders of a random model and of four broken ones; answers of 24 tokens by generate() to PROMPTS, as text and
    number of tokens."""
    folder: Path = tmp_path_factory.mktemp("models")
    written: dict[str, Any] = inside("write_models", folder=str(folder), prompts=PROMPTS, tokens=24)
    return written
