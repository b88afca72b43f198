"""What answers were worth is asked when no request is in flight any more."""

from collections.abc import Callable
from pathlib import Path

import pytest
from processes import load_worker

pytestmark = pytest.mark.services
DRIVER = {"driver": "late_driver:Late", "workers": "threads", "shards": 3, "concurrency": 3, "requests": 3}


@pytest.fixture(autouse=True)
def found_by_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def test_quality_is_asked_after_the_last_reply_of_every_worker(load: Callable) -> None:
    measured = load(**DRIVER, duration_s=0.2)
    assert measured.outcome.quality == {"ended": 3.0}
    assert measured.failures() == {0: 3}


def test_quality_is_asked_also_when_another_worker_died(load: Callable, tmp_path: Path) -> None:
    def kill_the_last() -> None:
        if (tmp_path / "ended-0").exists() and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            load_worker("2").kill()

    measured = load(**DRIVER, duration_s=0.2, on_tick=kill_the_last)
    assert measured.outcome.died == 1
    assert measured.outcome.quality == {"ended": 2.0}
