"""One client's turn: a server of its own, the client on its core, what the server saw and what it took."""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from answerer import answerer
from clients import Client, environment_of
from load import ClientError, Load, Seen
from machine import CLIENT_CORE, Watch

MOST_S = 240.0
SHARE = 0.1
"""The first and last tenth of the requests are left out of rates: start, drain and what comes after."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What came of one turn: `truth` of the server (RECORD, in order of arrival), what the client says, and when its
    command was given (ns, CLOCK_MONOTONIC)."""

    load: Load
    began_ns: int
    truth: np.ndarray
    watch: Watch
    server_share: float
    seen: Seen | None
    said: dict[str, Any]

    @property
    def middle_ns(self) -> tuple[float, float]:
        """Return when the first tenth and all but the last tenth of the requests had arrived."""
        low, high = np.quantile(self.truth["read_ns"], (SHARE, 1 - SHARE))
        return float(low), float(high)

    @property
    def rate_rps(self) -> float:
        """Return requests/s as the server saw them."""
        low, high = self.middle_ns
        return (1 - 2 * SHARE) * len(self.truth) / (high - low) * 1e9

    @property
    def chunk_rate(self) -> float:
        """Return chunks/s from the first request to the last chunk: streams that begin together come in waves, and
        a part of a wave would be no fair share."""
        return float(self.truth["tokens"].sum() / (self.truth["last_ns"].max() - self.truth["read_ns"].min()) * 1e9)

    @property
    def reads(self) -> float:
        """Return how often the client called read(2) between the first and the last tenth."""
        low, high = self.middle_ns
        return self.watch.reads_at(high) - self.watch.reads_at(low)

    @property
    def chunks_per_read(self) -> float:
        """Return the chunks between the first and the last tenth, each stream's spread evenly, for a read."""
        low, high = self.middle_ns
        began, ended = self.truth["read_ns"].astype(np.float64), self.truth["last_ns"].astype(np.float64)
        shares = np.clip(np.minimum(ended, high) - np.maximum(began, low), 0, None) / (ended - began)
        return float((shares * self.truth["tokens"]).sum() / self.reads)

    @property
    def read_cpu_s(self) -> float:
        """Return the CPU time of the client for a call of read(2) and what follows from it."""
        low, high = self.middle_ns
        return (self.watch.cpu_s_at(high) - self.watch.cpu_s_at(low)) / self.reads

    @property
    def cpu_share(self) -> float:
        """Return the share of its core that the client took between the first and the last tenth."""
        low, high = self.middle_ns
        return (self.watch.cpu_s_at(high) - self.watch.cpu_s_at(low)) / (high - low) * 1e9

    @property
    def start_s(self) -> float:
        """Return the time from the command to the first request at the server."""
        return float(self.truth["read_ns"][0] - self.began_ns) / 1e9


def take_turn(
    client: Client, load: Load, *, ttft_us: int = 0, gap_us: int = 0, watch_s: float = 0.25, wants_seen: bool = False
) -> Turn:
    """Run a load. Raises ClientError when the client fails, says nothing or is too slow."""
    with tempfile.TemporaryDirectory(prefix="seamark-turn-") as name:
        folder = Path(name)
        command = client.command(load, 0, folder)  # installs what is not there, and not on the client's core
        with answerer(folder, ttft_us=ttft_us, gap_us=gap_us) as server:
            command = client.command(load, server.port, folder)
            busy_s, began_ns = server.busy_s(), time.monotonic_ns()
            with running(command, environment_of(client), folder) as process:
                watch = Watch(process.pid, watch_s)
                watch.start()
                try:
                    process.wait(MOST_S)
                except subprocess.TimeoutExpired:
                    raise ClientError(f"not done after {MOST_S:.0f} s") from None
                finally:
                    watch.end()
            busy_s, ended_ns = server.busy_s() - busy_s, time.monotonic_ns()
        if process.returncode != 0:
            raise ClientError(f"ended with {process.returncode}: {last_words(folder)}")
        truth = server.truth
        if truth is None or len(truth) < load.requests // 2:
            raise ClientError(f"only {0 if truth is None else len(truth)} of {load.requests} requests arrived")
        said = folder / "said.json"
        return Turn(
            load=load,
            began_ns=began_ns,
            truth=truth,
            watch=watch,
            server_share=busy_s / max(ended_ns - truth["read_ns"][0], 1) * 1e9,
            seen=client.seen(folder) if wants_seen else None,
            said=json.loads(said.read_text()) if said.exists() else {},
        )


@contextmanager
def running(
    command: list[str | Path], environment: dict[str, str], folder: Path
) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a command on the client's core, in a group of its own, all of which ends with this."""
    pinned = ["taskset", "-c", str(CLIENT_CORE), *map(str, command)]
    with (folder / "client.log").open("wb") as log:
        process = subprocess.Popen(
            pinned,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def last_words(folder: Path) -> str:
    """Return the last line that a client wrote."""
    lines = (folder / "client.log").read_text(errors="replace").strip().splitlines()
    return lines[-1].strip()[:100] if lines else "it said nothing"
