"""Ceiling of the reference server, and its lateness below it, measured before results rely on it.

Run from the root: `.venv/bin/python benchmarks/reference_server.py [--rounds 3] [--seconds 3]`. The client is a bare
epoll loop in this process, on a core of its own if there are two. Prints medians over the rounds, the ratio of its
core that the server used, and its own lateness; `client adds` is the client's TTFT minus the server's.
"""

import argparse
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

import seamark
from seamark.testservers.truth import Truth, read_truth

ISOLATED_MAIN = Path(seamark.__file__).parent / "platform" / "isolated_main.py"
END = b"\r\n0\r\n\r\n"


CORES = sorted(os.sched_getaffinity(0))


@dataclass
class Served:
    """A server under test; its record of times and its output once it has ended."""

    process: "subprocess.Popen[str]"
    port: int
    said: str = ""
    truth: Truth | None = None

    def busy_s(self) -> float:
        """Return how long the server has been on a core: the scheduler's own count, not one of clock ticks."""
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[0]) / 1e9


@contextmanager
def known(*arguments: object) -> Iterator[Served]:
    """Run a reference server, on the last core."""
    with tempfile.TemporaryDirectory() as folder:
        truth = Path(folder) / "truth.jsonl"
        command = [
            sys.executable,
            str(ISOLATED_MAIN),
            "seamark.testservers.reference",
            "--port=0",
            f"--truth={truth}",
        ]
        process = subprocess.Popen([*command, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
        os.sched_setaffinity(process.pid, CORES[-1:])
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[-1])
        served = Served(process=process, port=port)
        try:
            yield served
        finally:
            process.send_signal(signal.SIGTERM)
            served.said = process.stdout.read().strip()
            process.wait()
            served.truth = read_truth(truth)


def request(tokens: int) -> bytes:
    """Return a request for a stream of that many tokens."""
    body = b'{"model":"known","prompt":"a b c","stream":true,"max_tokens":%d}' % tokens
    return b"POST /v1/completions HTTP/1.1\r\nHost: known\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def connect(port: int, count: int) -> dict[int, socket.socket]:
    """Return connections by their descriptor."""
    found = {}
    for _ in range(count):
        each = socket.create_connection(("127.0.0.1", port))
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        each.setblocking(False)
        found[each.fileno()] = each
    return found


def closed_loop(
    served: Served, users: int, tokens: int, seconds: float, between_s: float = 0.0
) -> tuple[float, float]:
    """Let every user send again once its reply is whole; return replies/s and the server's ratio of a core.

    Users begin `between_s` apart.
    """
    data, connections, poll = request(tokens), connect(served.port, users), select.epoll()
    for descriptor in connections:
        poll.register(descriptor, select.EPOLLIN)
    for each in connections.values():
        each.send(data)
        time.sleep(between_s)
    done, began, busy_s, warm = 0, 0.0, 0.0, time.monotonic() + 0.5
    while not began or time.monotonic() < began + seconds:
        if not began and time.monotonic() >= warm:
            began, done, busy_s = time.monotonic(), 0, served.busy_s()
        for descriptor, _ in poll.poll(1.0):
            each = connections[descriptor]
            if each.recv(1 << 18).endswith(END):
                done += 1
                each.send(data)
    wall_s, busy_s = time.monotonic() - began, served.busy_s() - busy_s
    for each in connections.values():
        each.close()
    return done / wall_s, busy_s / wall_s


def open_loop(served: Served, rate: float, seconds: float, users: int = 512) -> np.ndarray:
    """Send one-token requests at Poisson times from a spinning client; return TTFTs as it sees them, ns, in order."""
    data, connections, poll, draw = request(1), connect(served.port, users), select.epoll(), Random(1)
    for descriptor in connections:
        poll.register(descriptor, select.EPOLLIN)
    idle, sent_ns, found = deque(connections), {}, []
    due_ns = time.monotonic_ns()
    end_ns = due_ns + int(seconds * 1e9)
    while due_ns < end_ns or sent_ns:
        now_ns = time.monotonic_ns()
        if due_ns <= now_ns and due_ns < end_ns and idle:
            descriptor = idle.popleft()
            sent_ns[descriptor] = len(found), time.monotonic_ns()
            found.append(0)
            connections[descriptor].send(data)
            due_ns += int(draw.expovariate(rate) * 1e9)
            continue
        for descriptor, _ in poll.poll(0):
            received = connections[descriptor].recv(1 << 16)
            at_ns = time.monotonic_ns()
            if received.endswith(END):
                index, from_ns = sent_ns.pop(descriptor)
                found[index] = at_ns - from_ns
                idle.append(descriptor)
    for each in connections.values():
        each.close()
    return np.array(found)


def ceilings(rounds: int, seconds: float) -> None:
    """Print the highest rates of replies and of chunks."""
    for users, tokens, what in ((64, 1, "requests/s, one-token streams"), (64, 256, "chunks/s, a write each")):
        rates, shares = [], []
        for _ in range(rounds):
            with known() as served:
                rate, share = closed_loop(served, users, tokens, seconds)
            rates.append(rate * tokens)
            shares.append(share)
        rate, share = statistics.median(rates), statistics.median(shares)
        bound = "" if share > 0.9 else f"; the client is the limit: {rate / share:,.0f} for a whole core"
        print(f"{what:<32}{rate:>10,.0f}, server's core {share:.0%}, {users} users{bound}")


def paced(rate: int, seconds: float, users: int = 64, tokens: int = 64) -> None:
    """Print the lateness of streams with that total rate of chunks."""
    gap_s = users / rate
    with known("--ttft-ms", gap_s * 1000, "--gap-ms", gap_s * 1000) as served:
        got, share = closed_loop(served, users, tokens, seconds, between_s=gap_s / users)
    print(f"{rate:,} chunks/s in {users} streams: {got * tokens:,.0f}/s, server's core {share:.0%}")
    print(f"    {served.said.partition('; ')[2]}")


def timed(rate: int, seconds: float) -> None:
    """Print the lateness at that rate of requests, and the additional time of a bare client."""
    with known("--ttft-ms", 20, "--early-head", "off", "--role-chunk", "off") as served:
        seen_ns = open_loop(served, rate, seconds)
        share = served.busy_s() / seconds
    truth = served.truth
    assert truth is not None
    late_us = np.percentile(truth.first_ns - truth.due_ns, (50, 99, 100)) / 1e3
    added_us = np.percentile(seen_ns - (truth.first_ns - truth.read_ns), (50, 99, 100)) / 1e3
    print(f"{rate:,} requests/s, TTFT 20 ms, {len(seen_ns)} requests, server's core {share:.0%}")
    for what, figures in (("server late", late_us), ("client adds", added_us)):
        print(
            f"    {what}: "
            + ", ".join(f"{n} {v:,.0f} us" for n, v in zip(("p50", "p99", "max"), figures, strict=True))
        )


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    os.sched_setaffinity(0, CORES[:1])
    print(f"{len(CORES)} cores; Python {sys.version.split()[0]}; load average {os.getloadavg()[0]:.1f}")
    ceilings(given.rounds, given.seconds)
    for rate in (5_000, 20_000, 40_000):
        paced(rate, given.seconds)
    for rate in (100, 1_000, 5_000):
        timed(rate, given.seconds)


if __name__ == "__main__":
    main()
