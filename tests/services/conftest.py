"""The bench that the tests of servers work at, and reference servers; whatever a test leaves running is ended."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from server_bench import HERE, TINY, Bench

from seamark.model.service import Health, Server, Service
from seamark.model.site import Paths, Site
from seamark.services.supervisor import deployment as servers


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("PYTHONPATH", str(HERE))  # where the hooks of tiny_driver.py are found
    bench = Bench(
        root=tmp_path,
        site=Site(
            name="here",
            summary="",
            lease_s=30.0,
            telemetry_interval_s=0.1,
            paths=Paths(scratch=str(tmp_path / "scratch"), environments=str(tmp_path / "environments")),
        ),
        service=Service(
            name="tiny",
            component="null",
            summary="",
            version="1",
            licence="none",
            driver="tiny_driver",
            workers="wire",
            settings=(),
            server=Server(command=TINY, health=Health(probe="http", timeout_s=30.0), stop_timeout_s=5.0),
        ),
    )
    yield bench
    for folder in bench.folders:
        servers.stop(folder)
