"""What Seamark itself costs: a scenario's wall time less server start and load, and the gaps between its trials.

Runs a scenario of the null service in a study of its own and prints a table.
    python benchmarks/orchestration.py --trials 12 --seconds 10
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
import yaml


def main() -> None:
    """Run the scenario and print what it cost."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--trials", type=int, default=12)
    arguments.add_argument("--seconds", type=float, default=10.0)
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="seamark-orchestration-") as name:
        root = Path(name) / "study"
        subprocess.run([sys.executable, "-m", "seamark.cli.main", "init", root], check=True, capture_output=True)
        write_scenario(root, asked.trials, asked.seconds)
        began_s = time.time()
        subprocess.run(
            [sys.executable, "-m", "seamark.cli.main", "submit", "-c", "config/scenarios/overhead.yaml"],
            cwd=root,
            check=True,
            capture_output=True,
        )
        print_table(root / "results" / "overhead", began_s, time.time(), asked.seconds)


def write_scenario(root: Path, trials: int, seconds: float) -> None:
    """Write a scenario of so many trials of one deployment."""
    workload = {"component": "null", "service": "null", "pattern": "constant", "rate_rps": 50}
    workload |= {"concurrency": [1, 2], "duration_s": seconds, "warmup_s": 0}
    document = {"scenario": "overhead", "repetitions": -(-trials // 2), "workload": workload}
    (root / "config" / "scenarios" / "overhead.yaml").write_text(yaml.safe_dump(document))


def print_table(results: Path, began_s: float, ended_s: float, seconds: float) -> None:
    """Print wall time, its parts and the gaps, from the files that the run left."""
    spans = []
    for record in results.glob("*/load.json"):
        epoch_s = json.loads(record.read_text())["epoch_unix_ns"] / 1e9
        times = pq.read_table(record.parent / "samples.parquet", columns=["sent_ns", "last_ns"])
        first, last = times["sent_ns"].to_numpy().min() / 1e9, times["last_ns"].to_numpy().max() / 1e9
        spans.append((epoch_s + first, epoch_s + last))
    spans.sort()
    gaps_s = [after[0] - before[1] for before, after in itertools.pairwise(spans)]
    wall_s, load_s = ended_s - began_s, len(spans) * seconds
    record = json.loads(next(results.glob("deployments/*/deployment.json")).read_text())
    start_s = sum(value or 0 for value in record["time_to_service_s"].values())
    cost_s = wall_s - load_s - start_s
    print(f"{'trials':<44}{len(spans):>10}")
    print(f"{'wall time':<44}{wall_s:>10.2f} s")
    print(f"{'  load':<44}{load_s:>10.2f} s")
    print(f"{'  server start':<44}{start_s:>10.2f} s")
    print(f"{'  orchestration, metrics, summary, report':<44}{cost_s:>10.2f} s")
    print(f"{'    before the first trial':<44}{spans[0][0] - began_s - start_s:>10.2f} s")
    print(f"{'    between the trials':<44}{sum(gaps_s):>10.2f} s")
    print(f"{'    after the last trial':<44}{ended_s - spans[-1][1]:>10.2f} s")
    print(f"{'orchestration of wall time':<44}{cost_s / wall_s:>10.1%}")
    print(f"{'gap between trials, median':<44}{statistics.median(gaps_s):>10.3f} s")
    print(f"{'gap between trials, largest':<44}{max(gaps_s):>10.3f} s")


if __name__ == "__main__":
    main()
