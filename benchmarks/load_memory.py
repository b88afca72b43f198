"""Memory of a load worker against the number of its requests, which must not grow. Prints a table.

Run from the root: `.venv/bin/python benchmarks/load_memory.py [--requests 2000000]`. Two drivers: `NullCall` answers
within the process and shows the engine alone; `Null` sends requests to the null server over real sockets.
"""

import argparse
import tempfile
import time
from pathlib import Path

from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.load.workers.segments import gather_samples
from seamark.services.ephemeral_server import ephemeral_server


def measure(driver: str, workers: str, requests: int, port: int) -> str:
    """Run one load and return its line of the table."""
    settings = {"requests": requests, "duration_s": 600.0, "warmup_s": 0.0, "concurrency": 4, "timeout_s": 30.0}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = LoadJob(
            driver=f"seamark.drivers.null:{driver}",
            workers=workers,  # type: ignore[arg-type]
            settings=settings,
            seed=1,
            data=folder,
            ports={"main": port},
        )
        outcome = run_load(job, None, folder / "parts")
        report = outcome.reports[0]
        size_bytes = sum(path.stat().st_size for path in outcome.segments)
        began_s = time.monotonic()
        gathered = gather_samples(outcome.segments, folder / "samples.parquet", {})
        gather_s = time.monotonic() - began_s
        parquet_bytes = (folder / "samples.parquet").stat().st_size
    assert gathered.rows == requests
    return (
        f"{driver:<9} {requests:>9,} {requests / report.wall_s:>11,.0f} {report.max_rss_bytes / 1e6:>12.1f}"
        f" {size_bytes / 1e6:>11.1f} {parquet_bytes / 1e6:>11.1f} {gather_s:>8.2f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2_000_000, help="of the largest load")
    largest = parser.parse_args().requests
    print("driver     requests  requests/s  peak RSS MB  segment MB  parquet MB  gather s")
    with ephemeral_server("seamark.testservers.null") as port:
        for driver, workers in (("NullCall", "threads"), ("Null", "wire")):
            for requests in (largest // 100, largest // 10, largest):
                print(measure(driver, workers, requests, port), flush=True)


if __name__ == "__main__":
    main()
