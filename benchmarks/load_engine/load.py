"""The load of every client, and its report."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Load:
    """Streamed completions: a closed loop of `concurrency` users, or `rate` requests/s, Poisson or at equal gaps."""

    requests: int
    tokens: int = 1
    prompt_tokens: int = 8
    concurrency: int = 64
    rate: float | None = None
    constant: bool = False

    def __str__(self) -> str:
        if self.rate is None:
            return f"{self.concurrency} users"
        return f"{'constant' if self.constant else 'Poisson'}, {self.rate:,.0f}/s"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A client's report of each request, in the order of its own start times: seconds, n of each.

    `ttft_s` is from its start time to its first token, `tpot_s` the mean time per further token, `lag_s` its own
    schedule lag (None: not reported).
    """

    ttft_s: np.ndarray
    tpot_s: np.ndarray
    lag_s: np.ndarray | None = None


class ClientError(Exception):
    """A client did not run; the message says why."""
