"""What a worker knows of its load besides the samples: the counts that its report is made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The counts of one worker. `scheduled` - `sent` requests were due but never sent; `written_off` threads hung
    in a call; `ran_out`: a limit of requests ended the sessions, not the end of the load; `spin_s` is CPU time that
    went into waiting exactly, not into work; `held_open_s`: streams were open for so long after their last content,
    together; `stalls_ns` see stalls.py, `network` see connection_limits.py."""

    scheduled: int
    sent: int
    completed: int
    survivors: int
    backlog_max: int
    loop_lag_ns: Mapping[str, int] | None = None
    stalls_ns: Sequence[tuple[int, int]] = ()
    spin_s: float = 0.0
    held_open_s: float = 0.0
    network: Mapping[str, Any] | None = None
    written_off: int = 0
    ran_out: bool = False
    fault: BaseException | None = None
