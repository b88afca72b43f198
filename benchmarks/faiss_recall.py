"""Recall of FAISS against golden values, and Seamark's load against a bare search loop.

    python benchmarks/faiss_recall.py --rounds 3 --seconds 2

The bare loop calls `index.search` one query after another in the same environment and counts nothing: its higher
rate, compared with a load of one user, is the cost of the load.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seamark.config.read import read_services
from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.load.driver import Target
from seamark.load.workers.hooks import run_preparation
from seamark.load.workers.records import read_segments
from seamark.services.runtimes.environments import prepare_environment

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
WARMUP_S = 0.5

GOLDEN: tuple[tuple[str, str | None, Mapping[int, float]], ...] = (
    ("flat", None, {0: 1.0}),
    ("ivf", "nprobe", {1: 0.076, 8: 0.339, 32: 0.704, 128: 1.0}),
    ("hnsw", "ef_search", {10: 0.399, 80: 0.866, 320: 0.987}),
)
"""Index, its setting between speed and recall, and recall@10 at its levels, for 20,000 vectors of 64."""

BARE_LOOP = """
import json, sys, time, faiss, numpy as np
path, queries, knob, level, seconds = json.loads(sys.argv[1])
faiss.omp_set_num_threads(1)
index, queries = faiss.read_index(path), np.load(queries)
if knob == "nprobe": index.nprobe = level
if knob == "ef_search": index.hnsw.efSearch = level
rows = [queries[at:at + 1] for at in range(len(queries))]
for row in rows: index.search(row, 10)
count, began = 0, time.perf_counter()
while (took := time.perf_counter() - began) < seconds:
    for row in rows: index.search(row, 10)
    count += len(rows)
print(count / took)
"""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Result of Seamark's load."""

    queries_per_s: float
    p50_us: float
    p99_us: float
    recall: float


def main() -> None:
    """Build each index once, search it at every level in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    asked = parser.parse_args()
    service = read_services(ROOT / "config" / "services")["faiss"]
    defaults = {setting.name: setting.default for setting in service.settings}
    python = prepare_environment("faiss", ROOT / "envs", CACHE / "envs") / "bin" / "python"
    print(
        f"{'index':<6}{'level':>16}{'golden':>8}{'recall':>8}{'queries/s':>11}{'p50 us':>8}{'p99 us':>8}"
        f"{'bare loop':>11}{'ratio':>7}{'4 users':>9}{'  build'}"
    )
    for index, knob, levels in GOLDEN:
        with tempfile.TemporaryDirectory(prefix="seamark-faiss-") as folder:
            data = Path(folder) / "data"
            settings = defaults | {"index": index}
            facts = run_preparation("stage", service.driver, Target(settings=settings, data=data), 0, python)
            for level, golden in levels.items():
                chosen = settings | ({knob: level} if knob else {})
                loads: list[Seen] = []
                bare: list[float] = []
                for turn in range(asked.rounds):
                    for ours in (True, False) if turn % 2 == 0 else (False, True):
                        if ours:
                            loads.append(searched(service.driver, chosen, data, python, 1, asked.seconds))
                        else:
                            bare.append(bare_loop(data, knob, level, python, asked.seconds))
                four = searched(service.driver, chosen, data, python, 4, asked.seconds)
                rate = statistics.median(seen.queries_per_s for seen in loads)
                loop = statistics.median(bare)
                name = f"{knob} {level}" if knob else ""
                print(
                    f"{index:<6}{name:>16}{golden:>8.3f}{loads[0].recall:>8.3f}{rate:>11.0f}"
                    f"{statistics.median(seen.p50_us for seen in loads):>8.1f}"
                    f"{statistics.median(seen.p99_us for seen in loads):>8.1f}{loop:>11.0f}{rate / loop:>7.2f}"
                    f"{four.queries_per_s:>9.0f}  {facts['build_s'] + facts['ingest_s']:.2f} s,"
                    f" {facts['index_bytes'] / 1e6:.1f} MB"
                )


def searched(driver: str, settings: Mapping[str, Any], data: Path, python: Path, users: int, seconds: float) -> Seen:
    """Search in a closed loop of that many users."""
    load: dict[str, Any] = {"pattern": "closed", "concurrency": users, "duration_s": seconds, "warmup_s": WARMUP_S}
    job = LoadJob(driver=driver, workers="threads", settings={**settings, **load}, seed=0, data=data)
    with tempfile.TemporaryDirectory(prefix="seamark-load-") as parts:
        outcome = run_load(job, python, Path(parts))
        samples = read_segments(outcome.segments)
    assert not samples["failure"].any()
    inside = samples[samples["last_ns"] >= WARMUP_S * 1e9]
    took_us = (inside["last_ns"] - inside["sent_ns"]) / 1e3
    return Seen(
        queries_per_s=float(inside["units"].sum() / seconds),
        p50_us=float(np.percentile(took_us, 50)),
        p99_us=float(np.percentile(took_us, 99)),
        recall=outcome.quality["recall_at_10"],
    )


def bare_loop(data: Path, knob: str | None, level: int, python: Path, seconds: float) -> float:
    """Return the queries per second of a bare loop."""
    told = json.dumps([str(data / "index.faiss"), str(data / "queries.npy"), knob, level, seconds])
    done = subprocess.run(
        [str(python), "-c", BARE_LOOP, told], capture_output=True, text=True, check=False, timeout=60 + seconds
    )
    if done.returncode != 0:
        sys.exit(done.stderr)
    return float(done.stdout)


if __name__ == "__main__":
    main()
