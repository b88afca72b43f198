"""Accuracy of a client: its TTFT and TPOT against the server's, and its arrivals against their schedule."""

import functools
from collections.abc import Callable

import numpy as np
from clients import EVERY
from load import ClientError, Load, Seen
from table import in_rounds, show
from turn import SHARE, Turn, take_turn

TTFT_US, GAP_US, TOKENS = 50_000, 10_000, 32
LOADS = (
    Load(requests=320, tokens=TOKENS, concurrency=16),
    Load(requests=1280, tokens=TOKENS, concurrency=64),
    Load(requests=1500, tokens=TOKENS, rate=50.0),
)
OURS_ONLY = Load(requests=5000, rate=1000.0)
RATES = {100: 300, 1000: 2000}
OURS_RATE = (10_000, 50_000)
CLIENTS = ("seamark", "vllm", "aiperf", "guidellm")


def errors_ms(turn: Turn) -> tuple[np.ndarray, np.ndarray]:
    """Return what the client's TTFT and TPOT are off by. The k-th that it sent is the k-th that the server read; the
    first tenth is left out, where peers open their connections."""
    seen = seen_of(turn)
    many = min(len(seen.ttft_s), len(turn.truth))
    truth = turn.truth[:many]
    ttft_ms = seen.ttft_s[:many] * 1e3 - (truth["first_ns"] - truth["read_ns"]) / 1e6
    rest = np.maximum(1, truth["tokens"] - 1)
    tpot_ms = seen.tpot_s[:many] * 1e3 - (truth["last_ns"] - truth["first_ns"]) / rest / 1e6
    first = round(SHARE * many)
    return ttft_ms[first:], tpot_ms[first:]


def seen_of(turn: Turn) -> Seen:
    """Return what the client says of its requests."""
    if turn.seen is None:
        raise ClientError("it says nothing of single requests")
    return turn.seen


def truth() -> None:
    """Print errors of TTFT and TPOT at each load."""
    for load in (*LOADS, OURS_ONLY):
        names = CLIENTS if load is not OURS_ONLY else ("seamark",)
        server = {"ttft_us": TTFT_US, "gap_us": GAP_US}
        turns = {
            EVERY[name].name: functools.partial(take_turn, EVERY[name], load, watch_s=2.0, wants_seen=True, **server)
            for name in names
        }
        show(
            f"Error against the truth, ms; {load}, {load.tokens} tokens, {load.requests} requests; "
            f"TTFT {TTFT_US / 1e3:g} ms, gaps {GAP_US / 1e3:g} ms",
            ("TTFT p50", "TTFT p99", "TTFT most", "TPOT p50", "TPOT p99", "|TPOT| p99"),
            in_rounds(1, turns),
            lambda column: errors_row(column.turns[0]),
        )


def errors_row(turn: Turn) -> list[str]:
    """Return the cells of one client."""
    ttft_ms, tpot_ms = errors_ms(turn)
    cells = [f"{value:.3f}" for value in np.nanpercentile(ttft_ms, (50, 99, 100))]
    if turn.load.tokens == 1:
        return cells
    cells += [f"{value:.3f}" for value in np.nanpercentile(tpot_ms, (50, 99))]
    return [*cells, f"{np.nanpercentile(np.abs(tpot_ms), 99):.3f}"]


def lag() -> None:
    """Print how late requests of a constant schedule arrive at the server, and what the client says of it."""
    for rate, requests in (*RATES.items(), OURS_RATE):
        load = Load(requests=requests, rate=float(rate), constant=True)
        names = CLIENTS if rate in RATES else ("seamark",)
        turns: dict[str, Callable[[], Turn]] = {
            EVERY[name].name: functools.partial(take_turn, EVERY[name], load, watch_s=2.0, wants_seen=True)
            for name in names
        }
        show(
            f"Arrivals at the server against a schedule of equal gaps, {load}, {requests} requests: late by, us",
            ("p50", "p99", "most", "rate", "own p50", "own p99"),
            in_rounds(1, turns),
            lambda column: lag_row(column.turns[0]),
        )


def lag_row(turn: Turn) -> list[str]:
    """Return the cells of one client: lateness is from the earliest hundredth of the arrivals on."""
    assert turn.load.rate is not None
    arrived_ns = turn.truth["read_ns"][: turn.load.requests].astype(np.float64)
    arrived_ns = arrived_ns[round(SHARE * len(arrived_ns)) :]
    late_us = (arrived_ns - arrived_ns[0] - np.arange(len(arrived_ns)) / turn.load.rate * 1e9) / 1e3
    late_us -= np.percentile(late_us, 1)
    rate = (len(arrived_ns) - 1) / (arrived_ns[-1] - arrived_ns[0]) * 1e9
    cells = [f"{value:,.0f}" for value in np.percentile(late_us, (50, 99, 100))] + [f"{rate:,.1f}"]
    lag_s = seen_of(turn).lag_s
    if lag_s is None:
        return [*cells, "not said", "not said"]
    return cells + [f"{value * 1e6:,.0f}" for value in np.percentile(lag_s, (50, 99))]
