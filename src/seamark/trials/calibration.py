"""Calibration of the load generator on this machine, and its ceiling for trials that ran here.

Against the null server only the client's own cost is left. It is measured in CPU time: on a machine of few cores the
server and other programs then do not count. One file per machine in the results: `.calibration/<node>.json`.
"""

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seamark.dispatch import identity
from seamark.load.coordinator.coordinator import LoadError, LoadJob
from seamark.model.results.calibration import (
    Calibration,
    CalibrationRun,
    Ceilings,
    LagPercentiles,
    WireCeiling,
    WorkerCeiling,
)
from seamark.model.results.load_record import LoadRecord
from seamark.model.service import Value
from seamark.model.site import Pinning
from seamark.model.trial import SCHEMA_VERSION
from seamark.platform.pinning import cores_here, split_cores
from seamark.services.ephemeral_server import ephemeral_server
from seamark.storage.documents import read_or_none, write
from seamark.telemetry import provenance
from seamark.trials.measure import measure

NULL = "seamark.testservers.null"
OPENAI = "seamark.drivers.openai:OpenAi"
SECONDS = 2.0
CONNECTIONS = 32
THREADS = 4
LARGE_REPLY_BYTES = 1 << 20
TIMED_RPS = 1000.0
CHUNKS = 256
STREAMS, TURN_MS = 128, 1
"""Streams, and interval of their chunks: as many as a client can still read one by one."""
JOINED = 32
BOUND = 0.9
"""Busy share of a core from which on the client was the bottleneck."""

Kind = Literal["wire", "threads", "processes"]


@dataclass(frozen=True, kw_only=True)
class NullServerLoad:
    """One load against the null server: its good samples, its chunks and the CPU time of its only worker."""

    samples: NDArray[np.void]
    chunks: NDArray[np.void]
    cpu_s: float
    wall_s: float

    @property
    def reads(self) -> int:
        return len(self.chunks)

    @property
    def joined(self) -> int:
        """Chunks that arrived in the same read as the previous one."""
        return int(self.chunks["events"].sum()) - len(self.chunks)

    def summary(self) -> CalibrationRun:
        """Return what the calibration's file has of it."""
        busy = self.cpu_s / self.wall_s
        return CalibrationRun(
            requests_per_s=len(self.samples) / self.wall_s,
            chunks_per_s=(self.reads + self.joined) / self.wall_s or None,
            chunks_per_read=(self.reads + self.joined) / self.reads if self.reads else None,
            client_cpu_ratio=busy,
            bound_by="client" if busy >= BOUND else "server or machine",
        )


def calibration_file(results: Path, node: str) -> Path:
    """Return the calibration file of a machine."""
    return results / ".calibration" / f"{node}.json"


def ceiling_of(results: Path, load: LoadRecord) -> WireCeiling | None:
    """Return the ceiling of the client of a load.json; None if its machine was never calibrated, or if its workers
    ran on other machines."""
    if any(worker.carrier != "local" for worker in load.workers):
        return None
    speaks = any(worker.network for worker in load.workers)  # on an event loop, in any number of processes
    known = read_or_none(calibration_file(results, str(load.node)), Calibration)
    if known is None:
        return None
    ceilings: Mapping[str, WorkerCeiling | None] = vars(known.ceilings)
    one = ceilings.get("wire" if speaks else str(load.client.workers))
    if one is None or one.requests_per_s is None:
        return None
    many = min(load.client.processes or 0, known.cores)
    return WireCeiling(**{name: rate * many for name, rate in vars(one).items() if rate is not None})


def calibrate(results: Path, seconds: float = SECONDS, pinning: Pinning | str = "auto") -> Calibration:
    """Measure for about seven times `seconds`, write the machine's file and return its content.

    `ceilings` has, for one worker of each kind, requests_per_s, and for wire workers the rest of WireCeiling,
    computed from CPU time as if the worker had a core to itself. `runs` has the measured rates and their limits.
    `schedule_lag_us` has p50 and p99 of the schedule lag at 1,000 requests/s.
    Load and null server are pinned by the `pinning` of the site. Raises UserError if it names CPUs that do not exist.
    """
    split = split_cores(pinning, workers="wire", shards=1, cores=cores_here())
    null = partial(ephemeral_server, NULL, cores=split.server)
    wire = partial(brief_load, "wire", cores=split.client)
    with null() as port:
        small = wire({"concurrency": CONNECTIONS}, seconds, port)
        timed = wire({"pattern": "constant", "rate_rps": TIMED_RPS, "concurrency": 8}, seconds, port)
    with null("--reply-bytes", LARGE_REPLY_BYTES) as port:
        large = wire({"concurrency": 4}, seconds, port)
    with null("--stream-chunks", CHUNKS, "--stream-turn-ms", TURN_MS) as port:
        chunked = wire(_streams(STREAMS), seconds, port, OPENAI)
    with null("--stream-chunks", CHUNKS, "--stream-joined", JOINED) as port:
        joined = wire(_streams(CONNECTIONS), seconds, port, OPENAI)
    threads = brief_load("threads", {"concurrency": THREADS}, seconds, 0)
    processes = brief_load("processes", {"concurrency": 1}, seconds, 0)
    lag_us = (timed.samples["sent_ns"] - timed.samples["due_ns"]) / 1e3
    node = identity.node()
    spaced = f"a chunk of each of {STREAMS} streams every {TURN_MS} ms"
    calibration = Calibration(
        schema_version=SCHEMA_VERSION,
        at=provenance.now(),
        node=node,
        cores=len(os.sched_getaffinity(0)),
        machine=provenance.machine(),
        pinning=split,
        ceilings=Ceilings(
            wire=wire_ceilings(small, large, chunked, joined),
            threads=WorkerCeiling(requests_per_s=reply_rate(threads)),
            processes=WorkerCeiling(requests_per_s=reply_rate(processes)),
        ),
        runs={
            "small_replies": small.summary(),
            "large_replies": large.summary(),
            "chunks": replace(chunked.summary(), bound_by=spaced),
            "joined_chunks": joined.summary(),
        },
        schedule_lag_us=LagPercentiles(p50=float(np.percentile(lag_us, 50)), p99=float(np.percentile(lag_us, 99))),
    )
    write(calibration_file(results, node), calibration)
    return calibration


def _streams(count: int) -> Mapping[str, Value]:
    return {"prompt_len": 16, "gen_tokens": CHUNKS, "concurrency": count}


def brief_load(
    kind: Kind,
    settings: Mapping[str, Value],
    seconds: float,
    port: int,
    driver: str | None = None,
    cores: tuple[int, ...] = (),
    host: str = LoadJob.host,
) -> NullServerLoad:
    """Run one load of the null driver of that kind, or of `driver`, optionally on `cores`. Raises LoadError."""
    whole: dict[str, Value] = {"warmup_s": 0.0, "duration_s": seconds, "timeout_s": 10.0, **settings}
    with tempfile.TemporaryDirectory(prefix="seamark-calibrate-") as name:
        job = LoadJob(
            driver=driver or ("seamark.drivers.null:Null" if kind == "wire" else "seamark.drivers.null:NullCall"),
            workers=kind,
            settings=whole,
            seed=1,
            data=Path(name),
            host=host,
            ports={"main": port},
            cores=cores,
        )
        measured = measure(job, Path(name) / "parts")
        samples = measured.samples()
        [report] = measured.outcome.reports
        return NullServerLoad(
            samples=samples[samples["failure"] == 0],
            chunks=measured.chunks(),
            cpu_s=(report.cpu_s or 0.0) - (report.spin_s or 0.0),
            wall_s=report.wall_s or 0.0,
        )


def reply_rate(run: NullServerLoad) -> float:
    """Return good replies per second. Raises LoadError for a load without any."""
    samples = run.samples
    if not len(samples):
        raise LoadError("no request had a good reply")
    return float(len(samples) / ((samples["last_ns"].max() - samples["sent_ns"].min()) / 1e9))


def wire_ceilings(
    small: NullServerLoad, large: NullServerLoad, chunked: NullServerLoad, joined: NullServerLoad
) -> WireCeiling:
    """Solve for the CPU time of a request, a byte, a chunk and a joined chunk; return one over each."""
    request_s = small.cpu_s / len(small.samples)
    byte_s = (large.cpu_s / len(large.samples) - request_s) / LARGE_REPLY_BYTES
    left_s = [
        run.cpu_s - len(run.samples) * request_s - max(0.0, byte_s) * float(run.samples["bytes_received"].sum())
        for run in (chunked, joined)
    ]
    counts = [[run.reads, run.joined] for run in (chunked, joined)]
    read_s, joined_s = np.linalg.solve(counts, left_s).tolist()
    costs_s = {"requests": request_s, "bytes": byte_s, "chunks": read_s, "joined_chunks": joined_s}
    return WireCeiling(**{f"{name}_per_s": 1 / cost_s if cost_s > 0 else None for name, cost_s in costs_s.items()})
