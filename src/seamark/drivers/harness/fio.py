"""fio as the load of a trial: command line and per-I/O logs of fio 3.33, on the files of fileio_files.py."""

import json
import os
import time
from pathlib import Path

import numpy as np

from seamark.drivers import fileio
from seamark.drivers.fileio_files import Files
from seamark.drivers.harness.tool import NATIVE, Tool, started_s
from seamark.load.driver import Hooks, Target, TaskFailure, TaskRecorder, whole
from seamark.model.sample import Failure

LOG = "io"
"""Stem of its logs, one file a thread: end in ms of the clock, latency in ns, direction, bytes, offset."""


class Fio(Tool):
    """Threads with plain preadv and pwritev calls, as those of `FileIo`. Its clock is CLOCK_MONOTONIC."""

    name = "fio"
    unit = "operation"
    keeps = (NATIVE, f"{LOG}_clat.*.log")

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self.kinds = (str(target.settings["operation"]),)
        self._block_bytes = whole(target.settings, "block_bytes")

    def command(self, work: Path, seed: int) -> list[str]:
        """Return the command line. Sequential threads stream through disjoint regions of the one file."""
        files, threads, settings = Files.of(self._target), self.load.concurrency, self.settings
        names = ":".join(str(path).replace(":", r"\:") for path in files.paths)
        direct = fileio.uses_direct(self._target, files, self._block_bytes)
        if settings["access"] == "random":
            access = "rand"
            region = [f"--size={files.total_bytes}", "--file_service_type=random"]
        else:
            access, size = "", files.file_bytes // self._block_bytes // threads * self._block_bytes
            region = [f"--size={size}", f"--offset_increment={size}"]
        return [
            *("fio", "--name=load", f"--filename={names}", f"--rw={access}{settings['operation']}"),
            *(f"--bs={self._block_bytes}", f"--direct={int(direct)}", *region),
            *("--ioengine=psync", "--thread=1", f"--numjobs={threads}", f"--randseed={seed}"),
            *("--time_based", f"--runtime={round(self.load.length_s * 1e3)}ms"),
            *(f"--end_fsync={int(settings['fsync'] == 'end')}", "--allow_file_create=0", "--fallocate=none"),
            *(f"--write_lat_log={LOG}", "--disable_lat=1", "--disable_slat=1"),
            *("--log_alternate_epoch=1", f"--log_alternate_epoch_clock_id={time.CLOCK_MONOTONIC}"),
            *("--output-format=json", f"--output={NATIVE}"),
        ]

    def convert(self, work: Path, recorder: TaskRecorder) -> int:
        """Record every I/O of its logs: those alone tell when the load began, after the files were opened, and when
        it ended, before the sync of `fsync: end`. Raises TaskFailure for an I/O error."""
        logs = [_read(work / f"{LOG}_clat.{number}.log") for number in range(1, self.load.concurrency + 1)]
        ends_ns = np.concatenate([log[:, 0] for log in logs]) * 1_000_000
        if not len(ends_ns):
            return 0
        text = (work / NATIVE).read_text(encoding="utf-8")
        jobs = json.loads(text[text.index("{") :])["jobs"]  # warnings stand before
        if error := next((job["error"] for job in jobs if job["error"]), None):
            raise TaskFailure("program_failed", f"fio ended with an error: {os.strerror(error)}")
        times_ns = np.concatenate([log[:, 1] for log in logs])
        begins_ns = ends_ns - times_ns
        first_ns = int(begins_ns.min())
        recorder.began_ns = max(0, first_ns - round(started_s(time.monotonic, recorder.now_ns) * 1e9))
        recorder.ran_out = True
        timeout_ns = round(self.load.timeout_s * 1e9)
        sent, received = (self._block_bytes, 0) if self.kinds[0] == "write" else (0, self._block_bytes)
        order = np.argsort(begins_ns, kind="stable")
        pairs = zip((begins_ns[order] - first_ns).tolist(), times_ns[order].tolist(), strict=True)
        for index, (begin_ns, time_ns) in enumerate(pairs):
            recorder.sample(
                index,
                sent_ns=begin_ns,
                last_ns=begin_ns + min(time_ns, timeout_ns),
                failure=Failure.TIMEOUT if time_ns > timeout_ns else Failure.NONE,
                bytes_sent=sent,
                bytes_received=received,
            )
        if self.settings["fsync"] == "end":
            spans_s = [(log[-1, 0] - log[0, 0]) / 1e3 for log in logs if len(log)]
            ends = (job["job_runtime"] / 1e3 - span_s for job, span_s in zip(jobs, spans_s, strict=True))
            recorder.quality("fsync_end_s", max(0.0, *ends))
        return len(ends_ns)


def _read(path: Path) -> np.ndarray:
    """Return ends in ms and latencies in ns of a thread, none where fio ended before it wrote them."""
    if not path.exists() or not path.stat().st_size:
        return np.empty((0, 2), np.int64)
    return np.loadtxt(path, dtype=np.int64, delimiter=",", usecols=(0, 1), ndmin=2)


HOOKS = Hooks(quality=fileio.quality)
