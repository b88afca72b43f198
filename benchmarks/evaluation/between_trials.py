"""What an evaluation costs beyond its own time: `python benchmarks/evaluation/between_trials.py [gap | lanes]`.

- `gap`: time between two trials of one model, on the known reader (12 trials): from the last reply of one to the
  first request of the next. The model is loaded once.
- `lanes`: 12 stubs of the reference server that each take 60 s, on 4 lanes: the time of the whole beyond their own,
  with the start of each server, the scores, the figures and the report.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from asked_reference import RECIPE

GAP_S, LANES_RATIO = 0.3, 1.1
LANES, STUB_S, QUESTIONS = 4, 60.0, 50
GAP = """\
scenario: gap
workload:
  component: evaluation
  service: attention
  model: known_reader
  method: [dense, streaming, sink_local]
  task: [needles, mock_benchmark]
  max_requests: [5, 10]
"""
LANE = """\
scenario: lanes
workload:
  component: evaluation
  service: scripted
  model: [a, b, c, d, e, f, g, h, i, j, k, l]
  task: needles
  max_requests: {questions}
  max_new_tokens: 1
  ttft_ms: {ttft_ms}
  concurrency: 1
"""


def main() -> None:
    """Measure both or one of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", nargs="?", choices=("gap", "lanes"))
    kind = parser.parse_args().kind
    for name, measure in {"gap": gap, "lanes": lanes}.items():
        if kind in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                measure()


def gap() -> None:
    """Print the times between trials of one model."""
    Path("gap.yaml").write_text(GAP)
    submit("gap.yaml")
    loads = sorted(records("gap"), key=lambda load: load["epoch_unix_ns"])
    ends = [load["epoch_unix_ns"] / 1e9 + load["duration_s"] for load in loads]
    gaps_s = [load["epoch_unix_ns"] / 1e9 - end for end, load in zip(ends[:-1], loads[1:], strict=True)]
    starts = {load["server_start"] for load in loads}
    median_s = statistics.median(gaps_s)
    print(
        f"{len(loads)} trials on {len(starts)} start of the server: between two of them least {min(gaps_s):.2f},"
        f" median {median_s:.2f}, most {max(gaps_s):.2f} s (target {GAP_S:g} s: {met(median_s <= GAP_S)})"
    )


def lanes() -> None:
    """Print the time of 12 equal stubs on 4 lanes, beside that of list scheduling."""
    from seamark.planning.study import SHIPPED

    Path("config").mkdir()
    subprocess.run(["cp", "-r", SHIPPED / "config/services", "config/services"], check=True)
    Path("config/services/scripted.yaml").write_text(RECIPE.format(name="scripted"))
    Path("lanes.yaml").write_text(LANE.format(ttft_ms=STUB_S * 1e3 / QUESTIONS, questions=QUESTIONS))
    began_s = time.monotonic()
    cores = sorted(os.sched_getaffinity(0))
    per_core = -(-LANES // len(cores))
    submit("lanes.yaml", "--cpus", ",".join(map(str, cores)), "--per-device", str(per_core), "--parallel", str(LANES))
    took_s = time.monotonic() - began_s
    loads = records("lanes")
    own_s = sum(load["duration_s"] for load in loads) / LANES
    print(
        f"{len(loads)} stubs of {STUB_S:g} s on {LANES} lanes: {took_s:.1f} s,"
        f" {took_s - own_s:.1f} s beyond their own time, {took_s / own_s:.3f} of it"
        f" (target {LANES_RATIO:g}: {met(took_s / own_s <= LANES_RATIO)})"
    )


def submit(scenario: str, *options: str) -> None:
    """Run `bench submit` of a scenario to its end."""
    command = [sys.executable, "-m", "seamark.cli.main", "submit", "-c", scenario, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def records(scenario: str) -> list[dict[str, Any]]:
    """Return the load.json of every trial."""
    found = [json.loads(path.read_text()) for path in Path("results", scenario).glob("*/load.json")]
    assert all(load["status"] == "ok" for load in found)
    return found


def met(is_met: bool) -> str:
    """Return whether a target is met, in a word."""
    return "met" if is_met else "missed"


if __name__ == "__main__":
    main()
