"""Capacity of a client: one-token streams per second, and chunks per second in 64 long streams."""

import functools
import tempfile
from pathlib import Path

from answerer import answerer
from clients import EVERY
from get import CONNECTIONS, by_wrk
from load import ClientError, Load
from machine import SERVER_CORE
from table import Column, in_rounds, show
from turn import take_turn

TYPICAL_RPS = {"seamark": 50_000, "aiohttp": 6_000, "vllm": 2_500, "aiperf": 400, "guidellm": 160}
"""About how many one-token requests a second each bears: so long is a turn as it should be."""
TYPICAL_CHUNKS = {"seamark": 100_000, "aiohttp": 80_000, "vllm": 50_000, "aiperf": 25_000, "guidellm": 20_000}
STREAMS, TOKENS = 64, 256
LESS, OFFERED, MORE = 50_000, 100_000, 200_000
"""Chunks/s that are offered; at the least of them every client that is measured at it reads one event at a time."""
FAST = ("seamark", "aiohttp")
MOST_PER_READ = 500
"""A client with more than that reads files by read(2), and its sockets in another way."""
POST = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"model":"known","prompt":[1000,1001,1002,1003,1004,1005,1006,1007],"max_tokens":TOKENS,' ..
           '"stream":true,"stream_options":{"include_usage":true}}'
"""


def ceiling(tokens: int, seconds: float) -> float:
    """Print the ceiling of the server itself with wrk as its client; return chunks/s."""
    with tempfile.TemporaryDirectory(prefix="seamark-ceiling-") as name:
        script = Path(name) / "post.lua"
        script.write_text(POST.replace("TOKENS", str(tokens)))
        with answerer(Path(name), truth=False) as server:
            by_wrk(f"http://127.0.0.1:{server.port}/v1/completions", 1, script)
            busy_s = server.busy_s()
            rate = by_wrk(f"http://127.0.0.1:{server.port}/v1/completions", seconds, script)
            share = (server.busy_s() - busy_s) / max(1, round(seconds))
    what = "one-token streams/s" if tokens == 1 else f"chunks/s in streams of {tokens}"
    print(
        f"\nthe server's own ceiling, wrk as client: {rate * tokens:,.0f} {what}, core {SERVER_CORE} {share:.0%} busy"
    )
    return rate * tokens


def sse(rounds: int, seconds: float) -> None:
    """Print requests/s of one-token streams."""
    try:
        most = ceiling(1, seconds)
    except ClientError as error:
        print(f"no ceiling: {error}")
        most = float("nan")
    turns = {
        name: functools.partial(take_turn, EVERY[name], Load(requests=round(seconds * rps), concurrency=CONNECTIONS))
        for name, rps in TYPICAL_RPS.items()
    }
    columns = in_rounds(rounds, turns)
    ours = columns["seamark"].median(lambda turn: turn.rate_rps) if columns["seamark"].turns else float("nan")
    show(
        f"One-token SSE replies, {CONNECTIONS} users; medians of {rounds} interleaved rounds of about {seconds:g} s",
        ("requests/s", "to ceiling", "seamark is", "client CPU", "server CPU"),
        columns,
        lambda column: (
            f"{(rate := column.median(lambda turn: turn.rate_rps)):,.0f}",
            f"{rate / most:.3f}",
            f"{ours / rate:,.1f}x",
            f"{column.median(lambda turn: turn.cpu_share):.0%}",
            f"{column.median(lambda turn: turn.server_share):.0%}",
        ),
    )


def chunks(rounds: int, seconds: float) -> None:
    """Print chunks/s: at an offered rate, a write for each chunk; and as fast as the server writes in turns."""
    try:
        ceiling(TOKENS, seconds)
    except ClientError as error:
        print(f"no ceiling: {error}")
    turns = {}
    for name, rate in TYPICAL_CHUNKS.items():
        load = Load(requests=max(4 * STREAMS, round(seconds * rate / TOKENS)), concurrency=STREAMS, tokens=TOKENS)
        for offered in (LESS, OFFERED, MORE, None) if name in FAST else (OFFERED,):
            gap_us = round(STREAMS / offered * 1e6) if offered else 0
            row = f"{EVERY[name].name}, {offered // 1000}k offered" if offered else f"{EVERY[name].name}, unpaced"
            turns[row] = functools.partial(take_turn, EVERY[name], load, gap_us=gap_us)
    show(
        f"{STREAMS} streams of {TOKENS} chunks; medians of {rounds} interleaved rounds of about {seconds:g} s",
        ("chunks/s", "client CPU", "chunks/read", "CPU us/read", "server CPU"),
        in_rounds(rounds, turns),
        chunks_row,
    )


def chunks_row(column: Column) -> list[str]:
    """Return the cells of one client; what a read costs and brings where it reads by read(2), as uvloop does."""
    cells = [
        f"{column.median(lambda turn: turn.chunk_rate):,.0f}",
        f"{column.median(lambda turn: turn.cpu_share):.0%}",
        f"{column.median(lambda turn: turn.chunks_per_read):.2f}",
        f"{column.median(lambda turn: turn.read_cpu_s) * 1e6:.2f}",
        f"{column.median(lambda turn: turn.server_share):.0%}",
    ]
    if column.median(lambda turn: turn.chunks_per_read) > MOST_PER_READ:
        cells[2:4] = ["", ""]
    return cells
