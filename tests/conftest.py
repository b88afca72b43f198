"""What tests of several rooms start, and how they run side by side."""

import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tls_front import TlsFront

COUNTED: dict[str, Counter[str]] = {}
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LONGEST_FIRST = ("e2e", "services", "slow")
"""Marks in the order in which their tests start: the last tests are short, so no worker waits for another."""

if "PYTEST_XDIST_WORKER" in os.environ:  # the node's load lock and sockets lie in the temporary folder
    tempfile.tempdir = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="seamark-")
    Path(tempfile.tempdir).chmod(0o1777)  # tests become other users

if "TMPDIR" in os.environ:  # tests that run beside each other do not wait for each other's loads
    os.environ.setdefault("SEAMARK_RUNTIME_DIR", os.environ["TMPDIR"])

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell's background job; runs under test would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
if (
    signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
):  # as under nohup: the tests go on, what they start can be hung up
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(autouse=True)
def signals_as_they_were() -> Iterator[None]:
    """A test that leaves a signal ignored fails itself, not those after it: what they start would inherit it."""
    before = {number: signal.getsignal(number) for number in END_SIGNALS}
    yield
    ignored = [number for number in END_SIGNALS if signal.getsignal(number) is signal.SIG_IGN]
    for number, handler in before.items():
        signal.signal(number, handler)
    assert ignored == [number for number, handler in before.items() if handler is signal.SIG_IGN]


@pytest.fixture
def counted(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Count one case of a sweep: `counted("hostile servers", "survived")`. The tables are printed at the end.

    A third argument is how many cases: with 0 an outcome is shown though no case had it.
    """

    tables: dict[str, dict[str, int]] = {}
    request.node.user_properties.append(("counted", tables))  # the reports of tests come from every worker

    def count(table: str, outcome: str, many: int = 1) -> None:
        outcomes = tables.setdefault(table, {})
        outcomes[outcome] = outcomes.get(outcome, 0) + many

    return count


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "teardown":
        for tables in (value for name, value in report.user_properties if name == "counted"):
            for table, outcomes in tables.items():
                COUNTED.setdefault(table, Counter()).update(outcomes)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Start the longest files first, where files run side by side."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        kinds: dict[Path, int] = {}
        for item in items:
            marks = [number for number, mark in enumerate(LONGEST_FIRST) if item.get_closest_marker(mark)]
            kinds[item.path] = min([*marks, kinds.get(item.path, len(LONGEST_FIRST))])
        items.sort(key=lambda item: kinds[item.path])


def pytest_unconfigure() -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


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
