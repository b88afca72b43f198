"""fio as the load of a trial: its command line, its logs as samples, what it cannot send, and a real run of it."""

import json
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shipped import SERVICES

from seamark.config.read import read_scenario
from seamark.drivers import fileio
from seamark.drivers.harness.fio import Fio
from seamark.drivers.harness.tool import CALL, NATIVE
from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadJob
from seamark.load.driver import Target, TaskFailure
from seamark.model.harness import HARNESSES, ROOT
from seamark.model.sample import Failure
from seamark.model.service import Value
from seamark.trials.measure import measure

BLOCK = 4096
SETTINGS: dict[str, Value] = {
    **{setting.name: setting.default for setting in SERVICES["fileio"].settings},
    "file_bytes": 64 * BLOCK,
    "direct": "cached",
    "harness": "fio",
    ROOT: None,
    "pattern": "closed",
    "concurrency": 2,
    "duration_s": 1.0,
    "warmup_s": 0.5,
    "timeout_s": 2.0,
}
EPOCH_NS = 5_000_000_000
"""The start of the Task in these logs, by their clock."""


@dataclass
class Recorded:
    """A recorder that keeps what it gets."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    qualities: dict[str, float] = field(default_factory=dict)
    began_ns: int = 0
    ran_out: bool = False

    def now_ns(self) -> int:
        return time.monotonic_ns() - EPOCH_NS

    def sample(self, index: int, **row: Any) -> None:
        self.rows.append({"index": index, **row})

    def quality(self, name: str, value: float) -> None:
        self.qualities[name] = value


def fio(folder: Path, **settings: Value) -> Fio:
    target = Target(settings=SETTINGS | settings, data=folder)
    fileio.stage(target, 1)
    return Fio(target)


def flags(argv: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in argv if "=" in word)


def converted(folder: Path, logs: list[str], jobs: list[dict[str, Any]], **settings: Value) -> Recorded:
    """Convert the logs of threads and the results of fio, which stand after a warning."""
    for number, log in enumerate(logs, 1):
        (folder / f"io_clat.{number}.log").write_text(log)
    (folder / NATIVE).write_text(f"fio: a warning\n{json.dumps({'jobs': jobs})}")
    found = Recorded()
    assert fio(folder, **settings).convert(folder, found) == len(found.rows)  # type: ignore[arg-type]
    return found


OK = {"error": 0, "job_runtime": 100}
LOGS = ["5700, 1500001, 0, 4096, 0\n5702, 250, 0, 4096, 0\n", "5701, 3000000, 0, 4096, 0\n"]


@pytest.mark.covers("E-FR16")
def test_per_io_logs_are_samples_from_the_first_begin_on_to_the_nanosecond(tmp_path: Path):
    found = converted(tmp_path, LOGS, [OK, OK])
    times = [(row["sent_ns"], row["last_ns"]) for row in found.rows]
    assert times == [(0, 3_000_000), (499_999, 2_000_000), (3_999_750, 4_000_000)]
    assert {(row["bytes_received"], row["bytes_sent"], row["failure"]) for row in found.rows} == {(BLOCK, 0, 0)}
    assert found.began_ns == pytest.approx(698_000_000, abs=1_000_000)
    assert found.ran_out is True


@pytest.mark.covers("E-FR16")
def test_the_sync_at_the_end_is_beyond_the_last_io_and_a_figure_of_the_trial(tmp_path: Path):
    jobs = [{"error": 0, "job_runtime": 52}, {"error": 0, "job_runtime": 90}]
    found = converted(tmp_path, LOGS, jobs, operation="write", fsync="end")
    assert max(row["last_ns"] for row in found.rows) == 4_000_000
    assert found.qualities == {"fsync_end_s": pytest.approx(0.09)}
    assert {(row["bytes_received"], row["bytes_sent"]) for row in found.rows} == {(0, BLOCK)}


def test_a_slow_io_has_timed_out_and_an_error_of_fio_fails_the_trial(tmp_path: Path):
    found = converted(tmp_path, ["9000, 2500000000, 0, 4096, 0\n", ""], [OK, OK])
    assert [(row["last_ns"], row["failure"]) for row in found.rows] == [(2_000_000_000, Failure.TIMEOUT)]
    with pytest.raises(TaskFailure) as failed:
        converted(tmp_path, LOGS, [OK, OK | {"error": 28}])
    assert failed.value.category == "program_failed"


def test_a_fio_that_wrote_no_log_has_no_samples(tmp_path: Path):
    assert converted(tmp_path, [], [OK]).rows == []


@pytest.mark.covers("E-FR16")
def test_access_size_and_length_are_flags(tmp_path: Path):
    given = flags(fio(tmp_path, files=2).command(tmp_path, 3))
    assert (given["--rw"], given["--bs"], given["--direct"], given["--numjobs"]) == ("randread", "4096", "0", "2")
    assert (given["--size"], given["--runtime"], given["--randseed"]) == (f"{128 * BLOCK}", "1500ms", "3")
    assert [Path(name).name for name in given["--filename"].split(":")] == ["file-0000", "file-0001"]
    odd = tmp_path / "a:b"
    given = flags(fio(odd, operation="write", access="sequential", fsync="end").command(tmp_path, 3))
    assert (given["--rw"], given["--end_fsync"]) == ("write", "1")
    assert given["--size"] == given["--offset_increment"] == f"{32 * BLOCK}"
    assert given["--filename"] == f"{odd}/files/file-0000".replace(":", r"\:")


@pytest.mark.covers("E-FR16")
def test_blocks_that_o_direct_refuses_are_said_and_never_cached_silently(tmp_path: Path):
    """1,000 bytes are no multiple of a sector: every file system here refuses them."""
    odd = flags(fio(tmp_path, direct="auto", block_bytes=1000).command(tmp_path, 3))
    assert odd["--direct"] == "0"
    assert (
        fileio.quality(Target(settings=SETTINGS | {"direct": "auto", "block_bytes": 1000}, data=tmp_path), 1)[
            "o_direct"
        ]
        == 0
    )
    with pytest.raises(UserError):
        fio(tmp_path, direct="direct", block_bytes=1000).command(tmp_path, 3)


def test_a_machine_without_fio_and_a_stream_of_several_files_are_told_before_a_run(monkeypatch: Any):
    def lacks(**changes: Value) -> list[str]:
        return [name for name, _ in fileio.lacking(SETTINGS | changes)]

    monkeypatch.setenv("PATH", "/nowhere")
    assert lacks() == ["harness"]
    assert lacks(harness=None) == lacks(harness="seamark") == []
    assert lacks(access="sequential", files=2) == ["harness", "access"]


@pytest.mark.parametrize(
    ("setting", "level"),
    [("operation", "stat"), ("fsync", "each"), ("pattern", "poisson"), ("requests", "9"), ("warmup_s", "auto")],
)
def test_what_fio_cannot_send_is_a_mistake_of_its_line(tmp_path: Path, setting: str, level: str):
    path = tmp_path / "scenario.yaml"
    lines = ["scenario: disk", "workload:", "  service: fileio", "  harness: fio", f"  {setting}: {level}"]
    path.write_text("\n".join([*lines, *(["  rate_rps: 5"] if setting == "pattern" else [])]))
    with pytest.raises(UserError) as wrong:
        read_scenario(path, SERVICES)
    assert 5 in {mistake.line for mistake in wrong.value.mistakes}
    path.write_text("\n".join(lines[:4]))
    assert read_scenario(path, SERVICES).workloads[0].levels["harness"] == ("fio",)


@pytest.mark.services
@pytest.mark.covers("E-FR16")
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_a_real_fio_has_the_iops_times_and_bytes_that_it_prints(tmp_path: Path):
    """fio's own sums: bandwidth = IOPS x block, and IOPS x mean latency = threads."""
    target = Target(settings=SETTINGS | {"operation": "write", "fsync": "end"}, data=tmp_path)
    fileio.stage(target, 1)
    settings = {**target.settings, "limit_s": 120.0, "duration_s": 0.2, "warmup_s": 0.0}
    job = LoadJob(driver=HARNESSES["fio"].driver, workers="threads", settings=settings, seed=1, data=tmp_path)
    done = measure(job, tmp_path / "parts")
    assert done.failure is None
    samples, files = done.samples(), tmp_path / "parts" / "files"
    jobs = [job["write"] for job in json.loads((files / NATIVE).read_text())["jobs"]]
    assert len(samples) == sum(job["total_ios"] for job in jobs)
    assert samples["bytes_sent"].sum() == sum(job["io_bytes"] for job in jobs)
    times_ns = samples["last_ns"] - samples["sent_ns"]
    assert times_ns.mean() == pytest.approx(
        np.average([job["clat_ns"]["mean"] for job in jobs], weights=[job["total_ios"] for job in jobs]), rel=1e-6
    )
    assert samples["last_ns"].max() < 2e9, "opening and syncing the files is no part of the load"
    assert done.outcome.quality["o_direct"] == 0
    assert json.loads((files / CALL).read_text())["harness"] == "fio"
    assert sorted(path.name for path in files.glob("*.log")) == ["io_clat.1.log", "io_clat.2.log"]
