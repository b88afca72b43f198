"""File I/O: Seamark against fio, in turns on the same file with the same load.

    python benchmarks/fileio_fio.py --rounds 5 --seconds 3

fio comes from the distribution: apt-get update && apt-get install fio. It runs plain preadv calls in threads
(ioengine=psync, thread=1), direct, random without repeats, as Seamark does.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from seamark.config.read import read_services
from seamark.drivers import fileio
from seamark.drivers.fileio_files import Files
from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.load.driver import Target
from seamark.load.workers.records import read_segments
from seamark.model.service import Value

Workers = Literal["wire", "threads", "processes"]
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Result of a tool in one run."""

    iops: float
    mean_us: float
    p99_us: float
    cpu_us: float
    """CPU time per operation of the tool, including the kernel's on its behalf."""


def main() -> None:
    """Measure every number of threads in turns and print the medians side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--operation", choices=["read", "write"], default="read")
    parser.add_argument("--access", choices=["random", "sequential"], default="random")
    parser.add_argument("--block-bytes", type=int, default=4096)
    parser.add_argument("--file-bytes", type=int, default=1 << 30)
    parser.add_argument("--workers", choices=["processes", "threads"], help="default: as the recipe says")
    parser.add_argument("--directory", help="folder on the file system to measure")
    asked = parser.parse_args()
    if shutil.which("fio") is None:
        sys.exit("fio is not installed: apt-get update && apt-get install fio")
    recipe = read_services(ROOT / "config" / "services")["fileio"]
    settings: dict[str, Value] = {setting.name: setting.default for setting in recipe.settings}
    settings |= {"operation": asked.operation, "access": asked.access, "block_bytes": asked.block_bytes}
    workers = asked.workers or recipe.workers
    settings |= {"file_bytes": asked.file_bytes, "direct": "direct", "duration_s": asked.seconds, "warmup_s": 0.0}
    with tempfile.TemporaryDirectory(prefix="seamark-fio-", dir=asked.directory) as name:
        folder = Path(name)
        fileio.stage(Target(settings=settings, data=folder), 1)
        seen: dict[tuple[str, int], list[Seen]] = {}
        for number in range(asked.rounds):
            for threads in asked.threads:
                for tool in ("seamark", "fio") if number % 2 else ("fio", "seamark"):
                    run = settings | {"concurrency": threads}
                    one = by_fio(folder, run) if tool == "fio" else by_seamark(folder, run, number, workers)
                    seen.setdefault((tool, threads), []).append(one)
    print_table(asked, workers, seen)


def by_seamark(folder: Path, settings: Mapping[str, Value], seed: int, workers: Workers) -> Seen:
    """Measure through the load engine, as a trial does."""
    job = LoadJob(driver="seamark.drivers.fileio:FileIo", workers=workers, settings=settings, seed=seed, data=folder)
    outcome = run_load(job, None, folder / "parts")
    samples = read_segments(outcome.segments)
    assert not samples["failure"].any()
    times_us = (samples["last_ns"] - samples["sent_ns"]) / 1e3
    span_s = (samples["last_ns"].max() - samples["sent_ns"].min()) / 1e9
    return Seen(
        iops=len(samples) / span_s,
        mean_us=float(times_us.mean()),
        p99_us=float(np.percentile(times_us, 99)),
        cpu_us=sum(report.cpu_s for report in outcome.reports) * 1e6 / len(samples),
    )


def by_fio(folder: Path, settings: Mapping[str, Value]) -> Seen:
    """Measure with fio; its completion latency is the time of the call."""
    (path,) = Files.of(Target(settings=settings, data=folder)).paths
    operation = str(settings["operation"])
    command = ["fio", "--name=peer", f"--filename={path}", "--output-format=json", "--group_reporting"]
    command += [
        f"--rw={'rand' if settings['access'] == 'random' else ''}{operation}",
        f"--bs={settings['block_bytes']}",
    ]
    command += ["--direct=1", "--ioengine=psync", "--thread=1", f"--numjobs={settings['concurrency']}"]
    command += ["--time_based", f"--runtime={settings['duration_s']}", f"--size={settings['file_bytes']}"]
    if settings["access"] == "sequential":
        region = int(str(settings["file_bytes"])) // int(str(settings["concurrency"]))
        command += [f"--offset_increment={region}", f"--size={region}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    job = json.loads(done.stdout)["jobs"][0]
    found = job[operation]
    busy_ratio = (job["usr_cpu"] + job["sys_cpu"]) / 100
    return Seen(
        iops=found["iops"],
        mean_us=found["clat_ns"]["mean"] / 1e3,
        p99_us=found["clat_ns"]["percentile"]["99.000000"] / 1e3,
        cpu_us=busy_ratio * job["job_runtime"] * 1e3 / found["total_ios"],
    )


def print_table(asked: argparse.Namespace, workers: Workers, seen: Mapping[tuple[str, int], list[Seen]]) -> None:
    """Print medians over the rounds, the ratio of the medians, and the range of the rounds' own ratios."""
    print(
        f"{asked.access} {asked.operation}, O_DIRECT, {asked.block_bytes} bytes, file of {asked.file_bytes:,} bytes; "
        f"medians of {asked.rounds} interleaved rounds of {asked.seconds:g} s; Seamark's workers: {workers}"
    )
    print(
        f"{'threads':>7} {'tool':>8} {'IOPS':>9} {'MB/s':>8} {'MiB/s':>8} {'mean us':>8} {'p99 us':>8} {'CPU us':>7}"
    )
    for threads in asked.threads:
        for tool in ("fio", "seamark"):
            runs = seen[tool, threads]
            iops, mean_us, p99_us, cpu_us = (
                statistics.median(getattr(run, name) for run in runs)
                for name in ("iops", "mean_us", "p99_us", "cpu_us")
            )
            mb, mib = (iops * asked.block_bytes / unit for unit in (1e6, 2**20))
            print(
                f"{threads:>7} {tool:>8} {iops:>9,.0f} {mb:>8.1f} {mib:>8.1f} "
                f"{mean_us:>8.1f} {p99_us:>8.1f} {cpu_us:>7.1f}"
            )
        ours, theirs = seen["seamark", threads], seen["fio", threads]
        ratios = [one.iops / other.iops for one, other in zip(ours, theirs, strict=True)]
        overall = statistics.median(run.iops for run in ours) / statistics.median(run.iops for run in theirs)
        low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
        print(f"{'':>7} ratio {overall:.3f}; by round {low:.3f}, {middle:.3f}, {high:.3f} (least, median, most)")


if __name__ == "__main__":
    main()
