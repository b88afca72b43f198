"""What a worker knows of its load besides the samples: the counts that its report is made from."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The counts of one worker. `scheduled` - `sent` requests were due but never sent; `written_off` threads hung
    in a call; `spin_s` is CPU time that went into waiting exactly, not into work."""

    scheduled: int
    sent: int
    completed: int
    survivors: int
    backlog_max: int
    loop_lag_ns: Mapping[str, int] | None = None
    spin_s: float = 0.0
    written_off: int = 0
    fault: BaseException | None = None
