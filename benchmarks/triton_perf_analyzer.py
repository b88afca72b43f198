"""Triton: Seamark against NVIDIA's perf_analyzer 2.51, on one server with the same requests, in turns.

    python benchmarks/triton_perf_analyzer.py --rounds 3 --seconds 5

Both send binary tensors of the same shapes in a closed loop. perf_analyzer repeats one request, Seamark sends a
thousand different ones. perf_analyzer comes from the tritonclient 2.51.0 wheel, extracted into SEAMARK_CACHE.
"""

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seamark.config.read import read_services
from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.load.workers.records import read_segments
from seamark.model.service import Service
from seamark.model.site import Paths, Site
from seamark.model.trial import Deployment
from seamark.services.supervisor.deployment import renew, serve, stop
from seamark.storage.codec import encode
from seamark.storage.paths import DeploymentFolder

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
WARMUP_S = 1.0
ITEMS: Mapping[str, Mapping[str, tuple[int, ...]]] = {"mlp": {"x": (64,)}, "addsub": {"X": (), "Y": ()}}
"""Per model and input: the shape of an item behind its dynamic size."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A measured cell: one kind of load."""

    protocol: str
    concurrency: int
    batch: int


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Result of a client for a cell."""

    items_per_s: float
    p50_ms: float
    p99_ms: float


def main() -> None:
    """Measure every cell in turns and print the medians side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--model", choices=sorted(ITEMS), default="mlp")
    parser.add_argument("--dimensions", type=int, default=16)
    parser.add_argument("--instances", type=int, default=1)
    parser.add_argument("--protocols", nargs="+", default=["http", "grpc"], choices=["http", "grpc"])
    parser.add_argument("--concurrencies", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    asked = parser.parse_args()
    service = read_services(ROOT / "config" / "services")["triton"]
    settings = {setting.name: setting.default for setting in service.settings}
    settings |= {"model": asked.model, "dimensions": asked.dimensions, "instances": asked.instances}
    cells = [
        Cell(protocol=protocol, concurrency=concurrency, batch=batch)
        for protocol in asked.protocols
        for batch in asked.batches
        for concurrency in asked.concurrencies
    ]
    with serving(service, settings) as (endpoint, needed):
        analyzer = PerfAnalyzer(Path(endpoint["environment"]))

        def seamark(cell: Cell) -> Seen:
            return by_seamark(service, settings, endpoint, cell, asked.seconds, needed)

        def perf_analyzer(cell: Cell) -> Seen:
            return analyzer.measure(settings, endpoint, cell, asked.seconds, needed)

        seen: dict[tuple[str, Cell], list[Seen]] = {}
        for turn in range(asked.rounds):
            for cell in cells:
                clients = [("seamark", seamark), ("perf_analyzer", perf_analyzer)]
                for name, client in clients if turn % 2 == 0 else reversed(clients):
                    seen.setdefault((name, cell), []).append(client(cell))
                    print(f"round {turn + 1}: {name} {cell}", file=sys.stderr)
    print_table(cells, seen, f"{asked.model}, dimensions {asked.dimensions}, {asked.rounds} x {asked.seconds:g} s")


@contextmanager
def serving(service: Service, settings: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Callable[[], None]]]:
    """Start Triton under a supervisor; yield its endpoint, and the function that renews its lease."""
    with tempfile.TemporaryDirectory(prefix="seamark-triton-") as name:
        folder = DeploymentFolder(root=Path(name) / "deployments" / "triton")
        site = Site(
            name="benchmark",
            summary="",
            paths=Paths(scratch=f"{name}/scratch", environments=str(CACHE / "envs")),
        )
        deployment = Deployment(
            id="triton", service="triton", settings=settings, nodes=1, gpus=0, cpus_per_task=1, mem_gb=1
        )
        endpoint = encode(serve(deployment, service, site, folder, scenario="benchmark", seed=0, locks=ROOT / "envs"))
        if endpoint["status"] != "ok":
            sys.exit("\n".join([str(endpoint["reason"]), *endpoint["log_tail"]]))
        try:
            yield endpoint, lambda: renew(folder)
        finally:
            stop(folder)


def by_seamark(
    service: Service,
    settings: dict[str, Any],
    endpoint: dict[str, Any],
    cell: Cell,
    seconds: float,
    needed: Callable[[], None],
) -> Seen:
    """Measure a cell with Seamark's load, after a warm-up that runs into it."""
    load: dict[str, Any] = {
        "pattern": "closed",
        "concurrency": cell.concurrency,
        "duration_s": seconds,
        "warmup_s": WARMUP_S,
    }
    job = LoadJob(
        driver=service.driver,
        workers=service.workers,
        settings={**settings, **load, "timeout_s": 30.0, "protocol": cell.protocol, "batch": cell.batch},
        seed=1,
        data=Path(endpoint["data"]),
        host=endpoint["host"],
        ports=endpoint["ports"],
    )
    with tempfile.TemporaryDirectory(prefix="seamark-load-") as parts:
        outcome = run_load(job, Path(endpoint["environment"]) / "bin" / "python", Path(parts), lambda: needed())
        assert outcome.died == 0, outcome.reports
        assert outcome.quality == {"right_ratio": 1.0}, outcome.quality_error
        samples = read_segments(outcome.segments)
    assert not samples["failure"].any()
    begin_ns, end_ns = WARMUP_S * 1e9, (WARMUP_S + seconds) * 1e9
    inside = samples[(samples["last_ns"] >= begin_ns) & (samples["last_ns"] < end_ns)]
    took_ms = (inside["last_ns"] - inside["sent_ns"]) / 1e6
    return Seen(
        items_per_s=float(inside["units"].sum() / seconds),
        p50_ms=float(np.percentile(took_ms, 50)),
        p99_ms=float(np.percentile(took_ms, 99)),
    )


class PerfAnalyzer:
    """perf_analyzer, extracted from its wheel with the two libraries that it needs."""

    def __init__(self, environment: Path) -> None:
        self.folder = CACHE / "perf_analyzer-2.51.0"
        self.program = self.folder / "perf_analyzer"
        if not self.program.exists():
            self._fetch(environment)

    def measure(
        self,
        settings: dict[str, Any],
        endpoint: dict[str, Any],
        cell: Cell,
        seconds: float,
        needed: Callable[[], None],
    ) -> Seen:
        """Measure a cell in three windows, whether or not they agree: rounds and medians are ours."""
        shapes = []
        for name, rest in ITEMS[settings["model"]].items():
            shapes += ["--shape", f"{name}:{','.join(map(str, (settings['dimensions'], *rest)))}"]
        with tempfile.TemporaryDirectory(prefix="perf-analyzer-") as folder:
            report = Path(folder) / "report.csv"
            command = [
                *(str(self.program), "-m", settings["model"], "-i", cell.protocol),
                *("-u", f"{endpoint['host']}:{endpoint['ports'][cell.protocol]}"),
                *("-b", str(cell.batch), "--concurrency-range", str(cell.concurrency), *shapes),
                *("--measurement-interval", str(int(seconds * 1000 / 3)), "--stability-percentage", "999"),
                *("--max-trials", "3", "--percentile", "99", "-f", str(report)),
            ]
            with (Path(folder) / "log").open("w+") as log:
                variables = {**os.environ, "LD_LIBRARY_PATH": str(self.folder)}
                process = subprocess.Popen(command, stdout=log, stderr=log, env=variables)
                while process.poll() is None:
                    needed()
                    time.sleep(0.1)
                if process.returncode != 0 or not report.exists():
                    log.seek(0)
                    sys.exit(f"perf_analyzer ended with {process.returncode}:\n{log.read()}")
            (row,) = csv.DictReader(report.read_text().splitlines())
        return Seen(
            items_per_s=float(row["Inferences/Second"]),
            p50_ms=float(row["p50 latency"]) / 1000,
            p99_ms=float(row["p99 latency"]) / 1000,
        )

    def _fetch(self, environment: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            wanted = ["tritonclient==2.51.0", "--no-deps", "--only-binary=:all:", "-q", "-d", folder]
            subprocess.run([sys.executable, "-m", "pip", "download", *wanted], check=True)
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                program = archive.read("tritonclient-2.51.0.data/data/bin/perf_analyzer")
        for library, pattern in (("libb64.so.0d", "libb64-*.so.0d"), ("libcudart.so.12", "libcudart-*.so.12*")):
            (found,) = environment.glob(f"lib/python3*/site-packages/nvidia_pytriton.libs/{pattern}")
            link = self.folder / library
            link.unlink(missing_ok=True)
            link.symlink_to(found)
        self.program.write_bytes(program)
        self.program.chmod(0o755)


def print_table(cells: list[Cell], seen: dict[tuple[str, Cell], list[Seen]], title: str) -> None:
    """Print medians over the rounds; a ratio is Seamark's figure over perf_analyzer's."""
    print(f"{title}; S = Seamark, P = perf_analyzer 2.51; medians\n")
    heads = [f"{name} {who}" for name in ("items/s", "p50 ms", "p99 ms") for who in ("S", "P", "S/P")]
    print(f"{'protocol':<9}{'batch':>6}{'users':>6}" + "".join(f"{head:>13}" for head in heads))
    for cell in cells:
        line = f"{cell.protocol:<9}{cell.batch:>6}{cell.concurrency:>6}"
        for name, digits in (("items_per_s", 0), ("p50_ms", 3), ("p99_ms", 3)):
            ours, theirs = (
                statistics.median(getattr(one, name) for one in seen[who, cell])
                for who in ("seamark", "perf_analyzer")
            )
            line += f"{ours:>13.{digits}f}{theirs:>13.{digits}f}{ours / theirs:>13.2f}"
        print(line)


if __name__ == "__main__":
    main()
