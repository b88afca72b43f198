"""Burners work on what they say, by themselves, and leave nothing behind."""

from pathlib import Path

import pytest

from seamark.drivers.burner import Burner
from seamark.load.driver import Target


@pytest.mark.covers("A3")
@pytest.mark.parametrize("resource", ["cpu", "memory", "disk"])
def test_an_operation_works_on_its_bytes_and_nothing_is_left(resource: str, tmp_path: Path) -> None:
    burner = Burner(Target(settings={"resource": resource, "bytes": 1 << 20}, data=tmp_path / "data"))
    [body] = burner.bodies(1, seed=1)
    sessions = [burner.session() for _ in range(2)]
    files = list(tmp_path.glob("data/*"))
    assert [path.stat().st_size for path in files] == ([0, 0] if resource == "disk" else [])
    for session in sessions * 70:  # past the end of the buffers
        assert session.call(body).bytes_sent == 1 << 20
    assert [path.stat().st_size for path in files] == ([1 << 20] * 2 if resource == "disk" else [])
    for session in sessions:
        session.close()
    assert not list(tmp_path.glob("data/*"))
