"""Time and memory of metrics by number of requests, and of a summary by number of trials.

Run from the root: `python benchmarks/metrics_scale.py [--requests N ...] [--trials N ...] [--folder DIR]`. Generates
its own samples; each row is measured in a process of its own, with its own peak memory.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seamark.analysis.summary import summarise, write_metrics, write_summary
from seamark.model.sample import SAMPLE
from seamark.model.trial import Plan, Trial
from seamark.storage.documents import write_json
from seamark.storage.paths import ScenarioFolder, TrialFolder

CHUNK = 1 << 17
RATE_RPS = 50_000.0


def a_trial(number: int, duration_s: float) -> Trial:
    settings = {"pattern": "constant", "rate_rps": RATE_RPS, "duration_s": duration_s, "warmup_s": 0.0}
    return Trial(
        id=f"d-1--w-{number // 3}--r{number % 3 + 1}",
        trial_id=f"00000000-0000-5000-8000-{number:012d}",
        deployment="d-1",
        workload=f"w-{number // 3}",
        component="null",
        service="null",
        settings=settings,
        changed={},
        repetition=number % 3 + 1,
        block=number % 3 + 1,
        position=1,
        seed=1,
        config_hash="cafe",
        group="w",
    )


def batches(requests: int) -> Iterator[pa.RecordBatch]:
    """Open-loop samples with log-normal replies, as a load writes them."""
    rng = np.random.default_rng(1)
    for start in range(0, requests, CHUNK):
        index = np.arange(start, min(start + CHUNK, requests))
        due = (index / RATE_RPS * 1e9).astype(np.int64)
        last = due + (rng.lognormal(-7, 0.5, len(index)) * 1e9).astype(np.int64)
        columns = {name: np.zeros(len(index), dtype=SAMPLE[name]) for name in SAMPLE.names or ()}
        columns |= {"index": index, "due_ns": due, "sent_ns": due, "first_ns": last, "last_ns": last}
        columns["units"] = np.ones(len(index), dtype=np.int32)
        yield pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})


def make_trial(folder: TrialFolder, requests: int) -> Trial:
    folder.root.mkdir(parents=True)
    first = next(batches(1))
    schema = first.schema.with_metadata({"seamark": '{"config_hash": "cafe"}'})
    with pq.ParquetWriter(folder.samples, schema, compression="zstd") as writer:
        for batch in batches(requests):
            writer.write_batch(batch)
    write_json(folder.load, {"status": "ok", "unit": "reply", "started_at": "2026-01-01T00:00:00+00:00"})
    return a_trial(0, requests / RATE_RPS)


def metrics_of(folder: Path, requests: int) -> None:
    own = TrialFolder(root=folder / f"trial-{requests}")
    trial = make_trial(own, requests)
    begun = time.perf_counter()
    metrics = write_metrics(trial, own)
    report(f"{requests:>12,} requests", begun, f"p99 {metrics.latency_ms.p99:.3f} ms")


def summary_of(folder: Path, trials: int) -> None:
    scenario = ScenarioFolder(root=folder / f"scenario-{trials}")
    planned = [a_trial(number, 0.2) for number in range(trials)]
    template = scenario.trial("template")
    write_metrics(make_trial(template, 10_000), template)
    for trial in planned:
        own = scenario.trial(trial.id)
        own.root.mkdir(parents=True)
        own.metrics.symlink_to(template.metrics)
        own.histogram.symlink_to(template.histogram)
    plan = Plan(
        scenario="s", source="s.yaml", seed=1, repetitions=3, max_retries=0, factors={}, deployments=(),
        trials=tuple(planned),
    )  # fmt: skip
    before = peak_mb()
    begun = time.perf_counter()
    summarise(plan, scenario)
    report(f"{trials:>12,} trials, summed up", begun, f"{before:.0f} MB before")
    begun = time.perf_counter()
    write_summary(plan, scenario)
    report(
        f"{trials:>12,} trials, written", begun, f"{(scenario.root / 'summary.csv').stat().st_size / 1e6:.1f} MB csv"
    )


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def report(what: str, begun: float, more: str) -> None:
    print(f"{what:<34} {time.perf_counter() - begun:8.2f} s {peak_mb():8.0f} MB peak   {more}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, nargs="*", default=[10_000, 1_000_000, 10_000_000])
    parser.add_argument("--trials", type=int, nargs="*", default=[100, 1_000, 10_000])
    parser.add_argument("--folder", type=Path, default=None)
    asked = parser.parse_args()
    for option, numbers in (("--requests", asked.requests), ("--trials", asked.trials)):
        for number in numbers:
            with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
                if len(asked.requests) + len(asked.trials) == 1:
                    (metrics_of if option == "--requests" else summary_of)(Path(folder), number)
                else:
                    other = "--trials" if option == "--requests" else "--requests"
                    subprocess.run([sys.executable, __file__, option, str(number), other], check=True)


if __name__ == "__main__":
    main()
