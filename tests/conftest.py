"""What tests of several rooms start."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tls_front import TlsFront


@pytest.fixture
def tls_front(tmp_path: Path) -> Iterator[Callable[[int], TlsFront]]:
    """Put TLS in front of a port of loopback: `tls_front(port)` returns the server that does and its certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("makes its certificate with openssl")
    with ExitStack() as held:
        yield lambda behind: held.enter_context(TlsFront(behind, tmp_path))
