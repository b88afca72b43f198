"""What the checks look at, and what they say. No judgement here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["note", "suspect", "invalid"]


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why a result is not simply valid. Codes are stable; a note is worth knowing and changes no verdict."""

    code: str
    severity: Severity
    text: str
    remedy: str

    def to_json(self) -> dict[str, str]:
        return {"code": self.code, "severity": self.severity, "text": self.text, "remedy": self.remedy}


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the checks look at. None: not known, so not judged.

    Times in seconds, ratios 0 to 1. `client_is_server`: the service runs inside the client, as file I/O does.
    """

    status: str = "ok"
    category: str | None = None
    failure: str | None = None
    open_loop: bool = False
    is_ramp: bool = False
    client_is_server: bool = False
    requests: int = 0
    ok: int = 0
    unfinished: int = 0
    disordered: int = 0
    error_rate: float | None = None
    workers_lost: int = 0
    workers: int = 0
    lag_p99_s: float | None = None
    loop_lag_p99_s: float | None = None
    service_tail_s: float | None = None
    service_mean_s: float | None = None
    window_s: float | None = None
    worker_cpu_ratio: float | None = None
    machine_cpu_ratio: float | None = None
    requested_rps: float | None = None
    offered_rps: float | None = None
    sent_rps: float | None = None
    achieved_rps: float | None = None
    replies_per_s: float | None = None
    saturated: bool = False
    requested_concurrency: float | None = None
    concurrency_mean: float | None = None
    think_time_s: float = 0.0
    steady: bool = True
    steady_reason: str | None = None
    ceiling_rps: float | None = None
    gpu_clock_ratio: float | None = None
    gpu_util_ratio: float | None = None
    page_cache_ratio: float | None = None
    wants_cache: bool = False
    withheld: Mapping[str, int] = field(default_factory=dict)
    slos_missed: Sequence[str] = ()
    quality_missed: Sequence[str] = ()
    wrong_answers: Sequence[str] = ()
    server_restarted: str | None = None
