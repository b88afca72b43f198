"""Cost of a client: memory per million requests, and time from its command to its first request."""

import functools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from answerer import answerer
from clients import EVERY, PEERS, Client, Seamark
from load import ClientError, Load, Seen
from machine import CLIENT_CORE, SERVER_CORE
from ours import Asked, job
from table import Column, in_rounds, show
from turn import take_turn

from seamark.load.coordinator.coordinator import run_load

REQUESTS = {"seamark": 1_000_000, "vllm": 20_000, "aiperf": 6_000, "guidellm": 3_000}
WITH_CHUNKS, CHUNKS = 60_000, 32
GAP_US = 640
"""64 streams then have 100,000 chunks/s, each in a read of its own where the client keeps up."""
FEWER = 5


def memory() -> None:
    """Print the growth of peak memory per million requests: two loads for each client, one a fifth of the other.
    Results built at the end count too."""
    ours = Seamark(read=False)
    asked: dict[str, tuple[Client, Load, int]] = {
        f"{EVERY[name].name}, {count:,} of 1": (ours if name == "seamark" else EVERY[name], Load(requests=count), 0)
        for name, count in REQUESTS.items()
    }
    asked[f"{ours.name}, {WITH_CHUNKS:,} of {CHUNKS}"] = (ours, Load(requests=WITH_CHUNKS, tokens=CHUNKS), GAP_US)
    columns = {name: Column() for name in asked}
    for name, (client, load, gap_us) in asked.items():
        try:
            for each in (replace(load, requests=load.requests // FEWER), load):
                columns[name].turns.append(take_turn(client, each, gap_us=gap_us, watch_s=0.1))
        except ClientError as error:
            columns[name] = Column(failed=str(error))
    show(
        f"Memory: growth of the most at once for 1 M requests, from 1/{FEWER} of them on; on disk for 1 M requests",
        ("growth MB/M", "most MB", "disk MB/M"),
        columns,
        memory_row,
    )


def memory_row(column: Column) -> list[str]:
    """Return the cells of one client."""
    few, many = column.turns
    grown = many.watch.most_rss_bytes() - few.watch.most_rss_bytes()
    disk = many.said.get("sample_bytes", 0) + many.said.get("chunk_bytes", 0)
    return [
        f"{grown / (many.load.requests - few.load.requests):,.1f}",
        f"{many.watch.most_rss_bytes() / 1e6:,.0f}",
        f"{disk / many.load.requests:,.1f}" if disk else "",
    ]


class BenchLoad:
    """The command as typed by a user."""

    name = "bench load"

    def command(self, load: Load, port: int, folder: Path) -> list[str | Path]:
        address = f"http://127.0.0.1:{port}/v1/completions"
        words = ["--concurrency", load.concurrency, "--requests", load.requests, "--model", "known"]
        tokens = ["--prompt-tokens", load.prompt_tokens, "--output-tokens", load.tokens]
        return [Path(sys.executable).with_name("bench"), "load", address, *map(str, [*words, *tokens])]

    def environment(self) -> Mapping[str, str]:
        return {}

    def seen(self, folder: Path) -> Seen:
        raise ClientError("not read here")


def start(rounds: int) -> None:
    """Print the time from a command to its first request at the server; files lie in the page cache."""
    load = Load(requests=64, concurrency=8)
    clients: tuple[Client, ...] = (BenchLoad(), Seamark(), *PEERS, EVERY["aiohttp"])
    turns = {client.name: functools.partial(take_turn, client, load) for client in clients}
    show(
        f"From the command to the first request, s; {rounds} rounds, page cache warm",
        ("median", "least", "most"),
        in_rounds(rounds, turns),
        lambda column: seconds_row([turn.start_s for turn in column.turns]),
    )
    print(f"{'seamark, a worker of a run':<34}" + "".join(f"{cell:>14}" for cell in seconds_row(warm(rounds))))


def seconds_row(found: list[float]) -> list[str]:
    """Return median, minimum and maximum."""
    return [f"{value:.3f}" for value in (statistics.median(found), min(found), max(found))]


def warm(rounds: int) -> list[float]:
    """Return the times from `run_load` to the first request, where a fork server has imported already: as in every
    trial of a run but the first."""
    found = []
    os.sched_setaffinity(0, {CLIENT_CORE})
    try:
        for number in range(rounds + 1):
            with tempfile.TemporaryDirectory(prefix="seamark-warm-") as name:
                folder = Path(name)
                with answerer(folder) as server:
                    settings = json.loads(settings_of(Load(requests=64, concurrency=8), server.port, folder))
                    began_ns = time.monotonic_ns()
                    run_load(job(Asked(**settings), folder), None, folder / "parts", owner=os.getpid())
                assert server.truth is not None
                if number:
                    found.append(float(server.truth["read_ns"][0] - began_ns) / 1e9)
    finally:
        os.sched_setaffinity(0, {SERVER_CORE})
    return found


def settings_of(load: Load, port: int, folder: Path) -> str:
    """Return Seamark's description of a load."""
    Seamark().command(load, port, folder)
    return (folder / "load.json").read_text()
