"""A worker that the kernel has ended for lack of memory: its trial says so."""

import subprocess
from pathlib import Path

import pytest

from seamark.load.coordinator import local_launcher
from seamark.load.coordinator.handle import LoadError
from seamark.load.coordinator.local_launcher import LocalProcess
from seamark.trials.measure import failure_of


@pytest.mark.covers("B12")
@pytest.mark.parametrize(
    ("after", "command", "category"),
    [
        (4, "kill -9 $$", "out_of_memory"),
        (3, "kill -9 $$", "client_died"),
        (4, "kill -15 $$", "client_died"),
        (4, "exit 1", "client_died"),
    ],
)
def test_a_worker_that_was_killed_while_memory_ran_out_is_a_failure_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int, command: str, category: str
) -> None:
    assert local_launcher.oom_kills() >= 0
    counters = tmp_path / "vmstat"
    monkeypatch.setattr(local_launcher, "VMSTAT", counters)
    counters.write_text("nr_free_pages 12\noom_kill 3\n")
    process = subprocess.Popen(["sh", "-c", command])
    worker = LocalProcess(process, tmp_path / "log")
    process.wait()
    counters.write_text(f"nr_free_pages 12\noom_kill {after}\n")
    reason = worker.end_reason()
    assert reason is not None
    assert failure_of(LoadError(f"worker 0 {reason}")).category == category
