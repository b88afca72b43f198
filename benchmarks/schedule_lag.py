"""Schedule lag of the open loop at several rates, with and without cores of their own for load and server.

    python benchmarks/schedule_lag.py [--seconds 5] [--rounds 3] [--rates 100 1000 10000] [--fifo]

The null server answers; each request is due by a constant schedule. Lag is `sent - due` of every request: the median
over the rounds of each round's p50, p99 and max, the lowest p99 of a round, and the ratio of the worker's core used
by its work and by spinning. `not run` is the time in which the worker was ready and the kernel ran other processes on
its core. With --fifo both run in real time (SCHED_FIFO, needs root), which shows the engine alone on a busy machine.
The kernel throttles real time for 50 ms of each second, which affects 10,000 requests/s: use --seconds 0.8 for those.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.load.workers.records import read_segments
from seamark.model.sample import MISSING_NS
from seamark.services.ephemeral_server import ephemeral_server

PRIORITY = 50
CONNECTIONS = 64


@dataclass(frozen=True, kw_only=True)
class Round:
    """A load's own report, in us and as ratios of a core."""

    p50: float
    p99: float
    most: float
    busy: float
    spun: float
    waited: float


def main() -> None:
    """Measure every rate in turns, with and without cores of their own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[100.0, 1000.0, 10_000.0])
    parser.add_argument("--pattern", default="constant", choices=["constant", "poisson"])
    parser.add_argument("--fifo", action="store_true")
    asked = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    places = (
        {"own cores": (cores[:1], cores[1:2]), "anywhere": ([], [])} if len(cores) > 1 else {"one core": ([], [])}
    )
    cases = [(place, rate) for rate in asked.rates for place in places]
    seen: dict[tuple[str, float], list[Round]] = {case: [] for case in cases}
    for _ in range(asked.rounds):
        for place, rate in cases:
            server, client = places[place]
            seen[place, rate].append(one(rate, asked.seconds, asked.pattern, server, client, asked.fifo))
    print(f"{len(cores)} cores, load average {os.getloadavg()[0]:.1f}{', SCHED_FIFO' if asked.fifo else ''}")
    head = ("p50 us", "p99 us", "max us", "least p99", "busy", "spun", "not run")
    print(f"{'rate':>7} {'where':<10}" + "".join(f"{name:>11}" for name in head))
    for (place, rate), rounds in seen.items():
        middle = {name: statistics.median(getattr(each, name) for each in rounds) for name in vars(rounds[0])}
        least = min(each.p99 for each in rounds)
        times = f"{middle['p50']:>11.1f}{middle['p99']:>11.1f}{middle['most']:>11.0f}{least:>11.1f}"
        shares = "".join(f"{middle[name]:>11.1%}" for name in ("busy", "spun", "waited"))
        print(f"{rate:>7,.0f} {place:<10}{times}{shares}")


def one(rate: float, seconds: float, pattern: str, server: Sequence[int], client: Sequence[int], fifo: bool) -> Round:
    """Run one load and return its report."""
    settings = {"pattern": pattern, "rate_rps": rate, "concurrency": CONNECTIONS, "duration_s": seconds}
    waited_ns = [0]
    with (
        tempfile.TemporaryDirectory(prefix="seamark-lag-") as folder,
        ephemeral_server("seamark.testservers.null", cores=server) as port,
    ):
        if fifo:
            first(children())

        def look() -> None:
            for pid in children():
                if Path(f"/proc/{pid}/comm").read_text().strip() != "null":
                    waited_ns[0] = max(waited_ns[0], int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]))
            if fifo:
                first(children())

        job = LoadJob(
            driver="seamark.drivers.null:Null",
            workers="wire",
            settings={**settings, "warmup_s": 0.0, "timeout_s": 10.0},
            seed=1,
            data=Path(folder),
            ports={"main": port},
            cores=tuple(client),
        )
        outcome = run_load(job, None, Path(folder) / "parts", look)
        samples = read_segments(outcome.segments)
    samples = samples[samples["sent_ns"] != MISSING_NS]
    late_us = (samples["sent_ns"] - samples["due_ns"]) / 1e3
    (report,) = outcome.reports
    p50, p99, most = np.percentile(late_us, (50, 99, 100))
    return Round(
        p50=p50,
        p99=p99,
        most=most,
        busy=(report.cpu_s - report.spin_s) / report.wall_s,
        spun=report.spin_s / report.wall_s,
        waited=waited_ns[0] / 1e9 / report.wall_s,
    )


def children() -> list[int]:
    """Return this process's children: the server, and the worker once it exists."""
    return [int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]


def first(pids: Sequence[int]) -> None:
    """Schedule these before all other processes."""
    for pid in pids:
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(PRIORITY))


if __name__ == "__main__":
    main()
