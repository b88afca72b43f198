"""The compiled server of streams: built here, run on a core of its own, with its own record of times."""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from machine import CACHE, SERVER_CORE

SOURCE = Path(__file__).with_name("answerer.c")
RECORD = np.dtype(
    [("read_ns", "<i8"), ("first_ns", "<i8"), ("last_ns", "<i8"), ("tokens", "<i4"), ("connection", "<i4")]
)


@dataclass(kw_only=True)
class Answerer:
    """A running server; `truth` exists once it has ended: an array of RECORD, in order of arrival."""

    process: "subprocess.Popen[str]"
    port: int
    truth: np.ndarray | None = None

    def busy_s(self) -> float:
        """Return its CPU time so far."""
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[0]) / 1e9


def build() -> Path:
    """Compile the server, once for each version of its source."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    program = CACHE / f"answerer-{digest}"
    if not program.exists():
        compiler = shutil.which("cc")
        if compiler is None:
            raise SystemExit("no C compiler: apt-get install gcc libc6-dev")
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-O2", "-o", program, SOURCE], check=True)
    return program


@contextmanager
def answerer(folder: Path, *, ttft_us: int = 0, gap_us: int = 0, truth: bool = True) -> Iterator[Answerer]:
    """Run the server on its core."""
    file = folder / "truth.bin"
    command = ["taskset", "-c", str(SERVER_CORE), build(), "--ttft-us", str(ttft_us), "--gap-us", str(gap_us)]
    if truth:
        command += ["--truth", file]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            server = Answerer(process=process, port=int(process.stdout.readline().split()[-1]))
            yield server
        finally:
            process.terminate()
            process.wait()
    if truth:
        records = np.fromfile(file, dtype=RECORD)
        server.truth = records[np.argsort(records["read_ns"], kind="stable")]
