"""What tests of several rooms start."""

import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tls_front import TlsFront

COUNTED: dict[str, Counter[str]] = {}

if "TMPDIR" in os.environ:  # tests that run beside each other do not wait for each other's loads
    os.environ.setdefault("SEAMARK_RUNTIME_DIR", os.environ["TMPDIR"])

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background job; runs under test would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def counted() -> Callable[..., None]:
    """Count one case of a sweep: `counted("hostile servers", "survived")`. The tables are printed at the end.

    A third argument is how many cases: with 0 an outcome is shown though no case had it.
    """

    def count(table: str, outcome: str, many: int = 1) -> None:
        COUNTED.setdefault(table, Counter())[outcome] += many

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
