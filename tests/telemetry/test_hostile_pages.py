"""A service's page of figures that never ends: given up in time, or cut, and never more than a bound in memory."""

import time
import tracemalloc

import pytest
from hostile_server import PLAIN, UNTIL_CLOSE, HostileServer, endless

from seamark.telemetry import prometheus
from seamark.telemetry.prometheus import Prometheus


@pytest.mark.serial
@pytest.mark.parametrize(
    "name", ["drips a body", "drips headers", "endless interim replies", "accepts and is silent"]
)
def test_a_page_that_never_ends_gives_nothing_and_is_given_up_in_time(name: str):
    with HostileServer(PLAIN[name]) as server:
        began_s = time.monotonic()
        assert list(Prometheus(f"http://127.0.0.1:{server.port}/metrics", print).read()) == []
    assert time.monotonic() - began_s < 10, "a deadline for each read would never end it"


@pytest.mark.sweep
def test_an_endless_page_is_cut_and_what_came_of_it_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prometheus, "TIMEOUT_S", 20.0)
    with HostileServer(endless(UNTIL_CLOSE, b"some_metric 1\n")) as server:
        tracemalloc.start()
        try:
            readings = list(Prometheus(f"http://127.0.0.1:{server.port}/metrics", lambda *_, **__: None).read())
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert len(readings) == prometheus.MOST_SERIES
    assert peak_bytes < 5 * prometheus.MOST_BYTES
