"""Reference servers for the tests of this folder."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from known_client import Known


@pytest.fixture
def known(tmp_path: Path) -> Iterator[Callable[..., Known]]:
    """Start servers: `known("--ttft-ms", 20)`."""
    started: list[Known] = []

    def start(*arguments: object) -> Known:
        started.append(Known.start(tmp_path, *arguments))
        return started[-1]

    yield start
    for server in started:
        server.process.kill()
        server.process.wait()
        assert server.process.stdout is not None
        server.process.stdout.close()
