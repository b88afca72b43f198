""".calibration/NODE.json: how much the load generator can do on a machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seamark.model.results.deployment_record import PinningRecord
from seamark.model.results.trial_meta import Machine
from seamark.model.results.values import Moment, Number, Word


@dataclass(frozen=True, kw_only=True)
class WorkerCeiling:
    """The most that one worker reaches, None where it was not measured."""

    requests_per_s: Number = None


@dataclass(frozen=True, kw_only=True)
class WireCeiling(WorkerCeiling):
    """The most of one wire worker, or of all workers of a load together, against a server without work of its own.

    A request costs the client a fixed time, and more for each byte and each chunk of its reply; the rates are one
    over these times. A chunk in a read of its own costs 1 / `chunks_per_s`, one in the same read as the chunk before
    it 1 / `joined_chunks_per_s`. None: not measured, and taken as free.
    """

    bytes_per_s: Number = None
    chunks_per_s: Number = None
    joined_chunks_per_s: Number = None

    def for_replies(self, reply_bytes: float, reply_reads: float = 0.0, reply_joined: float = 0.0) -> float:
        """Return the highest requests/s for replies of that mean size in bytes, with that many chunks in reads of
        their own and that many joined ones. The rate of requests must be known."""
        rates = (self.requests_per_s, self.bytes_per_s, self.chunks_per_s, self.joined_chunks_per_s)
        counts = (1.0, reply_bytes, reply_reads, reply_joined)
        return 1 / sum(count / rate for count, rate in zip(counts, rates, strict=True) if rate)


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """Ceilings by kind of worker."""

    wire: WireCeiling | None = None
    threads: WorkerCeiling | None = None
    processes: WorkerCeiling | None = None


@dataclass(frozen=True, kw_only=True)
class CalibrationRun:
    """What one load against the null server reached, and what it was bound by."""

    requests_per_s: Number = None
    chunks_per_s: Number = None
    chunks_per_read: Number = None
    client_cpu_ratio: Number = None
    bound_by: Word = None


@dataclass(frozen=True, kw_only=True)
class LagPercentiles:
    """Lateness of requests against their schedule in microseconds, at 1,000 requests/s."""

    p50: Number = None
    p99: Number = None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Ceilings of the load generator on the machine `node` with that number of `cores`."""

    schema_version: int = 1
    at: Moment = None
    node: Word = None
    cores: int
    machine: Machine | None = None
    pinning: PinningRecord | None = None
    ceilings: Ceilings = Ceilings()
    runs: Mapping[str, CalibrationRun] = field(default_factory=dict)
    schedule_lag_us: LagPercentiles = LagPercentiles()
