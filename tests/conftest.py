"""What tests of several rooms start."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tls_front import TlsFront

COUNTED: dict[str, Counter[str]] = {}


@pytest.fixture
def counted() -> Callable[[str, str], None]:
    """Count one case of a sweep: `counted("hostile servers", "survived")`. The tables are printed at the end."""

    def count(table: str, outcome: str) -> None:
        COUNTED.setdefault(table, Counter())[outcome] += 1

    return count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for table, outcomes in COUNTED.items():
        figures = ", ".join(f"{outcome} {count}" for outcome, count in sorted(outcomes.items()))
        terminalreporter.write_line(f"{table}: tried {outcomes.total()}, {figures}")


@pytest.fixture
def tls_front(tmp_path: Path) -> Iterator[Callable[[int], TlsFront]]:
    """Put TLS in front of a port of loopback: `tls_front(port)` returns the server that does and its certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("makes its certificate with openssl")
    with ExitStack() as held:
        yield lambda behind: held.enter_context(TlsFront(behind, tmp_path))
