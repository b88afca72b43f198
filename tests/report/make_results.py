"""Makes a scenario's folder of results from a seeded model, in the format of the real thing; measures nothing."""

import csv
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seamark.model.sample import SAMPLE
from seamark.store import ScenarioFolder, TrialFolder, write_json

WARMUP_S, DURATION_S = 1.0, 6.0


@dataclass(frozen=True, kw_only=True)
class Made:
    """A workload of the model: its service time falls apart by factor, its throughput is capped by `cap_rps`."""

    service: str
    component: str
    workload: str
    unit: str
    service_ms: float
    cap_rps: float
    factors: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    bytes_each: int | None = None
    recall: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)


WORKLOADS = (
    Made(
        service="fileio",
        component="storage",
        workload="files",
        unit="ops_per_s",
        service_ms=0.12,
        cap_rps=14_000,
        factors={"operation": ("read", "write"), "order": ("sequential", "random"), "concurrency": (1, 4)},
        bytes_each=65536,
    ),
    Made(
        service="postgres",
        component="storage",
        workload="lookup",
        unit="transactions_per_s",
        service_ms=0.3,
        cap_rps=5_000,
        factors={"concurrency": (1, 4, 16)},
        phases={"setup_s": 1.9, "start_s": 0.35, "populate_s": 2.4},
    ),
    Made(
        service="postgres",
        component="storage",
        workload="tpcb",
        unit="transactions_per_s",
        service_ms=14.0,
        cap_rps=400,
        factors={"concurrency": (1, 4, 16)},
        phases={"setup_s": 1.8, "start_s": 0.33, "populate_s": 4.1},
    ),
    Made(
        service="s3",
        component="storage",
        workload="objects",
        unit="ops_per_s",
        service_ms=0.9,
        cap_rps=3_000,
        factors={"operation": ("put", "get"), "object_bytes": (1024, 1048576), "concurrency": (1, 4)},
        bytes_each=65536,
        phases={"setup_s": 0.02, "start_s": 0.09},
    ),
    Made(
        service="faiss",
        component="vectordb",
        workload="search",
        unit="queries_per_s",
        service_ms=0.8,
        cap_rps=2_500,
        factors={"index": ("flat", "hnsw"), "concurrency": (1, 4)},
        recall=0.97,
        phases={"populate_s": 3.2},
    ),
    Made(
        service="triton",
        component="inference",
        workload="infer",
        unit="items_per_s",
        service_ms=2.1,
        cap_rps=1_800,
        factors={"batch": (1, 8), "concurrency": (1, 4)},
        phases={"stage_s": 0.1, "start_s": 2.7},
    ),
)


def make_results(
    root: Path,
    *,
    scenario: str = "made",
    workloads: tuple[Made, ...] = WORKLOADS,
    repetitions: int = 2,
    fail: frozenset[int] = frozenset({5}),
    suspect: frozenset[int] = frozenset({9}),
    seed: int = 7,
) -> Path:
    """Write results below `root` and return the scenario's folder.

    Trials whose place in the plan is in `fail` have failed, those in `suspect` are SUSPECT. Treatments of few
    samples have their p99 withheld.
    """
    rng = np.random.default_rng(seed)
    folder = ScenarioFolder(root=root / scenario)
    trials = []
    for block in range(1, repetitions + 1):
        inside = [(made, levels) for made in workloads for levels in product(*made.factors.values())]
        for position, place in enumerate(rng.permutation(len(inside)), 1):
            made, levels = inside[place]
            trials.append(planned(made, dict(zip(made.factors, levels, strict=True)), block, position))
    deployments = {t["deployment"]: t["service"] for t in trials}
    source = root / f"{scenario}.yaml"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(f"name: {scenario}\n# made by a model\nrepetitions: {repetitions}\n")
    plan = {
        "schema_version": 1,
        "scenario": scenario,
        "source": str(source),
        "seed": seed,
        "repetitions": repetitions,
        "max_retries": 0,
        "factors": {made.workload: {n: list(v) for n, v in made.factors.items()} for made in workloads},
        "deployments": [{"id": name, "service": service, "settings": {}} for name, service in deployments.items()],
        "trials": trials,
        "notes": "Made by a model: no number here was measured.",
    }
    write_json(folder.plan, plan)
    by_workload = {made.workload: made for made in workloads}
    metrics = []
    for place, trial in enumerate(trials):
        own = folder.trial(trial["id"])
        made = by_workload[trial["factors"]["workload"]]
        verdict = "failed" if place in fail else "SUSPECT" if place in suspect else "VALID"
        metrics.append(measured(own, trial, made, verdict, place, rng, scenario))
    for name in deployments:
        record(folder, name, by_workload, trials, metrics)
    write_json(folder.summary, summarised(scenario, trials, metrics, by_workload, repetitions))
    return folder.root


def planned(made: Made, levels: Mapping[str, Any], block: int, position: int) -> dict[str, Any]:
    """Return one trial of a plan."""
    words = "-".join(f"{name}-{value}" for name, value in levels.items()) or "all"
    words = "".join(c if c.isalnum() else "-" for c in words)
    deployment = f"{made.service}-{made.workload if made.phases else 'local'}-3fa1"
    return {
        "id": f"{deployment}--{made.workload}-{words}-9c0d--r{block}",
        "trial_id": f"00000000-0000-5000-8000-{position:06d}{block:06d}",
        "deployment": deployment,
        "workload": made.workload,
        "component": made.component,
        "service": made.service,
        "settings": {
            "pattern": "closed",
            "duration_s": DURATION_S,
            "warmup_s": WARMUP_S,
            "timeout_s": 30.0,
            **levels,
        },
        "changed": {"duration_s": DURATION_S, **levels},
        "repetition": block,
        "block": block,
        "position": position,
        "seed": position,
        "config_hash": "made",
        "slos": [],
        "factors": {"workload": made.workload, **levels},
    }


def measured(
    own: TrialFolder,
    trial: dict[str, Any],
    made: Made,
    verdict: str,
    place: int,
    rng: np.random.Generator,
    scenario: str,
) -> dict[str, Any]:
    """Write the files of one trial and return its metrics."""
    started = f"2026-03-01T10:{place // 6:02d}:{place % 6 * 10:02d}.000+00:00"
    failed = verdict == "failed"
    reason = "the server's process ended with code 137 while the load ran"
    load = {
        "schema_version": 1,
        "scenario": scenario,
        "trial": trial["id"],
        "status": "failed" if failed else "ok",
        "category": "server_died" if failed else None,
        "reason": reason if failed else None,
        "log_tail": ["LOG:  checkpoint starting: time", "FATAL:  <out of memory> & gone", "Killed"] if failed else [],
        "started_at": started,
        "finished_at": started.replace(".000", ".900"),
        "warmup_s": WARMUP_S,
        "duration_s": DURATION_S,
    }
    write_json(own.load, load)
    write_json(own.meta, META | {"block": trial["block"], "position": trial["position"], "seed": trial["seed"]})
    about = {
        "schema_version": 1,
        "trial": trial["id"],
        "treatment": trial["id"].rsplit("--r", 1)[0],
        "service": trial["service"],
        "component": trial["component"],
        "repetition": trial["repetition"],
        "config": {"gpus": 0, "nodes": 1, **trial["settings"]},
        "changed": trial["changed"],
    }
    if failed:
        nothing = {"status": "failed", "category": "server_died", "reason": reason, "verdict": "INVALID"}
        document = (
            about | nothing | {"throughput": None, "latency_ms": None, "errors": None, "window": None, "reasons": []}
        )
        write_json(own.metrics, document)
        return document
    took_ns, last_ns = _samples(own, trial, made, rng)
    _series(own, took_ns, last_ns)
    _telemetry(own, made, rng)
    window = (2.0, WARMUP_S + DURATION_S)
    inside = (last_ns >= window[0] * 1e9) & (last_ns < window[1] * 1e9)
    ms = took_ns[inside] / 1e6
    reasons = []
    if len(ms) < 1000:
        text = f"p99 needs 1,000 samples, the window has {len(ms)}"
        reasons.append({"code": "percentile_withheld", "severity": "note", "text": text, "remedy": "Measure longer."})
    if verdict == "SUSPECT":
        text = "the client's processes used 91 % of the CPU"
        remedy = "Give the client more cores, or fewer users."
        reasons.append({"code": "client_cpu", "severity": "suspect", "text": text, "remedy": remedy})
    rate = float(len(ms) / (window[1] - window[0]))
    document = about | {
        "status": "ok",
        "category": None,
        "reason": None,
        "throughput": {"value": rate, "unit": made.unit, "whole_run_value": rate},
        "bandwidth": {"mb_per_s": rate * made.bytes_each / 1e6} if made.bytes_each else None,
        "latency_ms": percentiles(ms),
        "errors": {"rate": 0.0, "timeouts": 0, "by_category": {}},
        "quality": {"recall_at_10": made.recall + float(rng.normal(0, 0.001))} if made.recall else {},
        "window": {"start_s": window[0], "end_s": window[1], "rule": "MSER-5", "steady": True, "reason": None},
        "verdict": verdict,
        "reasons": reasons,
    }
    write_json(own.metrics, document)
    return document


def percentiles(ms: np.ndarray) -> dict[str, float | None]:
    """Return the percentiles that enough samples support; the others are None."""
    shares = {"p50": (0.5, 1), "p90": (0.9, 100), "p95": (0.95, 200), "p99": (0.99, 1000), "p999": (0.999, 10_000)}
    return {n: float(np.quantile(ms, q)) if len(ms) >= least else None for n, (q, least) in shares.items()}


def _samples(own: TrialFolder, trial: dict[str, Any], made: Made, rng: np.random.Generator) -> tuple[Any, Any]:
    concurrency = int(trial["factors"].get("concurrency", 1))
    slow = 1.0 + 0.6 * sum(hash_level(v) for n, v in trial["factors"].items() if n not in ("concurrency", "workload"))
    rate = min(concurrency / (made.service_ms * slow / 1e3), made.cap_rps / slow) * float(rng.normal(1, 0.02))
    n = int(rate * (WARMUP_S + DURATION_S))
    at_s = np.sort(rng.uniform(0, WARMUP_S + DURATION_S, n))
    mean_ns = 1e9 * concurrency / rate
    took_ns = (mean_ns * (0.6 + rng.lognormal(-1.4, 0.8, n)) * np.where(at_s < 0.8, 1.6, 1.0)).astype(np.int64)
    due_ns = (at_s * 1e9).astype(np.int64)
    columns = {name: np.zeros(n, dtype=SAMPLE[name]) for name in SAMPLE.names or ()}
    columns |= {"index": np.arange(n), "due_ns": due_ns, "sent_ns": due_ns + 2000, "last_ns": due_ns + took_ns}
    columns["failure"] = (rng.random(n) < 0.0004).astype(np.int8)
    metadata = {b"seamark": json.dumps({"config_hash": "made", "trial": trial["id"], "unit": made.unit}).encode()}
    table = pa.table({**columns, "first_ns": pa.nulls(n, pa.int64())}).replace_schema_metadata(metadata)
    pq.write_table(table, own.samples, row_group_size=50_000)
    good = columns["failure"] == 0
    return took_ns[good], columns["last_ns"][good]


def hash_level(value: Any) -> float:
    """Return a number in 0..1 that is always the same for the same level."""
    return sum(str(value).encode()) % 97 / 97


def _series(own: TrialFolder, took_ns: np.ndarray, last_ns: np.ndarray) -> None:
    seconds = (last_ns // 1_000_000_000).astype(int)
    with own.series.open("w", newline="") as out:
        rows = csv.writer(out)
        names = (
            "second",
            "requests",
            "units",
            "failures",
            "throughput",
            "latency_p50_s",
            "latency_p99_s",
            "in_flight",
        )
        rows.writerow(names)
        for second in range(int(WARMUP_S + DURATION_S)):
            took_s = took_ns[seconds == second] / 1e9
            known = [float(np.quantile(took_s, q)) for q in (0.5, 0.99)] if len(took_s) else ["", ""]
            rows.writerow([second, len(took_s), len(took_s), 0, float(len(took_s)), *known, 4])


def _telemetry(own: TrialFolder, made: Made, rng: np.random.Generator) -> None:
    rows = []
    for at_s in np.arange(0, WARMUP_S + DURATION_S, 0.5):
        for source in ("host", "server", "client") if made.phases else ("host", "client"):
            level = {"host": 0.8, "server": 0.5, "client": 0.25}[source]
            rows.append((float(at_s), source, "cpu_ratio", float(np.clip(rng.normal(level, 0.03), 0, 1)), "ratio"))
            if source != "host":
                rows.append((float(at_s), source, "rss_bytes", level * 4e8 + at_s * 1e6, "bytes"))
    names = ("at_s", "source", "name", "value", "unit")
    pq.write_table(pa.table({n: [row[i] for row in rows] for i, n in enumerate(names)}), own.telemetry)


def record(folder: ScenarioFolder, name: str, workloads: Mapping[str, Made], trials: list, metrics: list) -> None:
    """Write the record of one deployment."""
    own = [(t, m) for t, m in zip(trials, metrics, strict=True) if t["deployment"] == name]
    made = workloads[own[0][0]["workload"]]
    document = {
        "schema_version": 1,
        "deployment": name,
        "ended": {"why": "teardown", "returncode": 0},
        "started_at": "2026-03-01T10:00:00.000+00:00",
        "ended_at": "2026-03-01T10:20:00.000+00:00",
        "time_to_service_s": dict(made.phases),
        "uptime_s": 312.5,
        "gpu_hours": 0.0,
        "trials": {"n": len(own), "ok": sum(1 for _, m in own if m["status"] == "ok")},
    }
    write_json(folder.deployment(name).record, document)


def summarised(
    scenario: str, trials: list, metrics: list, workloads: Mapping[str, Made], planned: int
) -> dict[str, Any]:
    """Return the summary of a scenario's trials."""
    groups: dict[str, list] = {}
    for trial, metric in zip(trials, metrics, strict=True):
        groups.setdefault(metric["treatment"], []).append((trial, metric))
    treatments = []
    for name, pairs in groups.items():
        trial = pairs[0][0]
        ok = [metric for _, metric in pairs if metric["status"] == "ok"]
        values = [metric["throughput"]["value"] for metric in ok]
        worst = max((m["verdict"] for m in ok), key=["VALID", "SUSPECT", "INVALID"].index, default="INVALID")
        bandwidth = [m["bandwidth"]["mb_per_s"] for m in ok if m["bandwidth"]]
        recall = [m["quality"]["recall_at_10"] for m in ok if m["quality"]]
        treatments.append(
            {
                "treatment": name,
                "workload": trial["workload"],
                "service": trial["service"],
                "component": trial["component"],
                "deployment": trial["deployment"],
                "config": trial["settings"],
                "changed": trial["changed"],
                "factors": {n: v for n, v in trial["factors"].items() if n != "workload"},
                "repetitions": len(ok),
                "planned": planned,
                "throughput": {
                    "median": median(values) if ok else None,
                    "min": min(values, default=None),
                    "max": max(values, default=None),
                    "unit": workloads[trial["workload"]].unit,
                },
                "bandwidth_mb_per_s": {"median": median(bandwidth)} if bandwidth else None,
                "latency_ms": {
                    n: median(m["latency_ms"][n] for m in ok)
                    if ok and all(m["latency_ms"][n] is not None for m in ok)
                    else None
                    for n in ("p50", "p90", "p95", "p99")
                },
                "errors": {"rate": 0.0004 if ok else None},
                "quality": {"recall_at_10": median(recall)} if recall else {},
                "verdict": worst,
                "reasons": sorted({r["code"] for m in ok for r in m["reasons"]}),
                "trials": [t["id"] for t, _ in pairs],
            }
        )
    failed = [
        {"trial": m["trial"], "status": m["status"], "category": m["category"], "reason": m["reason"]}
        for m in metrics
        if m["status"] != "ok"
    ]
    ok_count = len(metrics) - len(failed)
    return {
        "schema_version": 1,
        "scenario": scenario,
        "trials": len(metrics),
        "ok": ok_count,
        "failed": failed,
        "treatments": treatments,
    }


META: dict[str, Any] = {
    "schema_version": 1,
    "git_commit": "1224a8a0c1d2e3f405162738495a6b7c8d9e0f10",
    "host": "bench-host",
    "partition": None,
    "container_digest": None,
    "service_version": "18.6",
    "licence": "PostgreSQL",
    "runtime": "venv",
    "software": {
        "seamark": "0.1.0",
        "python": "3.11.2",
        "lock": "made.lock",
        "lock_sha256": "9f2c1b7a" * 8,
        "git_dirty": False,
    },
    "machine": {
        "hostname": "bench-host",
        "cpu_model": "A Processor of Some Kind @ 2.6 GHz",
        "cpus_logical": 2,
        "memory_bytes": 8 << 30,
        "kernel": "6.1.0-18-amd64",
        "os": "Debian GNU/Linux 12 (bookworm)",
    },
}

if __name__ == "__main__":
    print(make_results(Path(sys.argv[1])))
