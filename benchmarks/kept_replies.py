"""Cost of `keep_replies`: requests/s and CPU time with replies kept and not, in pairs, beside a null server.

`python benchmarks/kept_replies.py [--pairs 7] [--seconds 3] [--bytes 1000]`. The server has the first core, the load
the last.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.services.ephemeral_server import ephemeral_server

USERS = 64


def turn(port: int, seconds: float, *, keep: bool) -> tuple[float, float]:
    """Return requests/s and CPU time per request in us of one load."""
    with tempfile.TemporaryDirectory() as name:
        settings = {"duration_s": seconds, "warmup_s": 0.0, "concurrency": USERS, "keep_replies": keep}
        job = LoadJob(
            driver="seamark.drivers.null:Null",
            workers="wire",
            settings=settings,
            seed=1,
            data=Path(name),
            ports={"main": port},
            cores=(max(os.sched_getaffinity(0)),),
        )
        outcome = run_load(job, None, Path(name) / "parts")
        [report] = outcome.reports
        assert report.ok
        assert len(outcome.replies) == keep
        return outcome.completed / seconds, (report.cpu_s or 0.0) / outcome.completed * 1e6


def main() -> None:
    """Take turns and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--bytes", type=int, default=1000, help="of a reply's body")
    asked = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:1])
    kept, plain = [], []
    with ephemeral_server("seamark.testservers.null", "--reply-bytes", asked.bytes) as port:
        os.sched_setaffinity(0, cores)
        for number in range(asked.pairs):
            for keep in (True, False) if number % 2 else (False, True):
                (kept if keep else plain).append(turn(port, asked.seconds, keep=keep))
    print(f"{asked.pairs} pairs of {asked.seconds:g} s, {USERS} users, replies of {asked.bytes} bytes")
    print(f"{'':<20}{'not kept':>12}{'kept':>12}{'ratio':>9}   least to most")
    for place, what in enumerate(("requests/s", "CPU, us/request")):
        without, with_them = [each[place] for each in plain], [each[place] for each in kept]
        ratios = [one / two for one, two in zip(with_them, without, strict=True)]
        print(
            f"{what:<20}{statistics.median(without):>12,.1f}{statistics.median(with_them):>12,.1f}"
            f"{statistics.median(ratios):>9.3f}   {min(ratios):.3f} to {max(ratios):.3f}"
        )


if __name__ == "__main__":
    main()
