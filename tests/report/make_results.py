"""Makes a scenario's folder of results from a seeded model: loads are made up, all else is derived as in earnest."""

import io
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from seamark.analysis.summary import write_metrics, write_summary
from seamark.model.results.summary import Summary
from seamark.model.sample import SAMPLE, Failure
from seamark.model.trial import Deployment, Plan, Trial
from seamark.report.terminal import summary_table
from seamark.storage.codec import decode
from seamark.storage.documents import write, write_json
from seamark.storage.paths import ScenarioFolder, TrialFolder
from seamark.storage.redaction import redacted

WARMUP_S, DURATION_S = 1.0, 6.0


@dataclass(frozen=True, kw_only=True)
class Made:
    """A service of the model: mean service time, the rate it cannot exceed, and what it varies."""

    service: str
    component: str
    unit: str
    service_ms: float
    cap_rps: float
    factors: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    bytes_each: int = 0
    recall: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)


SERVICES = (
    Made(
        service="fileio",
        component="storage",
        unit="operation",
        service_ms=0.12,
        cap_rps=9_000,
        factors={"operation": ("read", "write"), "access": ("sequential", "random"), "concurrency": (1, 4)},
        bytes_each=65536,
    ),
    Made(
        service="postgres",
        component="storage",
        unit="transaction",
        service_ms=9.0,
        cap_rps=700,
        factors={"operation": ("lookup", "tpcb"), "concurrency": (1, 4, 16)},
        phases={"setup_s": 1.9, "start_s": 0.35, "populate_s": 2.4},
    ),
    Made(
        service="s3",
        component="storage",
        unit="operation",
        service_ms=0.9,
        cap_rps=3_000,
        factors={"operation": ("put", "get"), "object_bytes": (4096, 1048576), "concurrency": (1, 8)},
        bytes_each=65536,
        phases={"setup_s": 0.02, "start_s": 0.09},
    ),
    Made(
        service="faiss",
        component="vectordb",
        unit="query",
        service_ms=0.8,
        cap_rps=2_500,
        factors={"index": ("flat", "hnsw"), "concurrency": (1, 4)},
        recall=0.97,
        phases={"populate_s": 3.2},
    ),
    Made(
        service="triton",
        component="inference",
        unit="item",
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
    services: tuple[Made, ...] = SERVICES,
    repetitions: int = 2,
    fail: Collection[int] = (5,),
    suspect: Collection[int] = (9,),
    seed: int = 7,
    telemetry: bool = True,
) -> Path:
    """Write results below `root` and return the scenario's folder.

    Trials whose place in the plan is in `fail` lost their server; in those in `suspect` the client was too busy.
    Treatments of few samples have their p99 withheld.
    """
    rng = np.random.default_rng(seed)
    folder = ScenarioFolder(root=root / scenario)
    source = root / f"{scenario}.yaml"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(f"scenario: {scenario}\n# made by a model\nrepetitions: {repetitions}\n")
    plan = planned(scenario, services, repetitions, seed, str(source), rng)
    write(folder.plan, plan)
    by_name = {made.service: made for made in services}
    deployments = {deployment.id: deployment for deployment in plan.deployments}
    for place, trial in enumerate(plan.trials):
        own, made = folder.trial(trial.id), by_name[trial.service]
        write_json(own.meta, META | {"block": trial.block, "position": trial.position, "seed": trial.seed})
        write_load(own, trial, made, place, failed=place in fail, busy=place in suspect, scenario=scenario, rng=rng)
        if telemetry and place not in fail:
            write_telemetry(own, made, rng)
        write_metrics(trial, own, deployments[trial.deployment], scenario=scenario)
    for deployment in plan.deployments:
        write_json(folder.deployment(deployment.id).record, record(deployment, by_name[deployment.service], plan))
    write_summary(plan, folder)
    return folder.root


def planned(
    scenario: str, services: tuple[Made, ...], repetitions: int, seed: int, source: str, rng: np.random.Generator
) -> Plan:
    """Return a plan of randomised blocks."""
    every = [
        (made, dict(zip(made.factors, at, strict=True)))
        for made in services
        for at in product(*made.factors.values())
    ]
    trials = [
        planned_trial(*every[place], block, position)
        for block in range(1, repetitions + 1)
        for position, place in enumerate(rng.permutation(len(every)), 1)
    ]
    factors = {name: levels for made in services for name, levels in made.factors.items()}
    sizes = {"nodes": 1, "gpus": 0, "cpus_per_task": 2, "mem_gb": 4}
    deployments = [Deployment(id=slug(made), service=made.service, settings={}, **sizes) for made in services]
    return Plan(
        scenario=scenario,
        source=source,
        seed=seed,
        repetitions=repetitions,
        max_retries=0,
        factors={"deployment": {}, "workload": factors},
        deployments=tuple(deployments),
        trials=tuple(trials),
        notes="Made by a model: no number here was measured.",
    )


def slug(made: Made) -> str:
    """Return a path-safe deployment id."""
    return "".join(c if c.isalnum() else "-" for c in made.service) + "-3fa1"


def planned_trial(made: Made, levels: Mapping[str, Any], block: int, position: int) -> Trial:
    """Return one trial."""
    spoken = "-".join(f"{name}-{redacted(value, name)}" for name, value in levels.items()) or "all"
    words = "".join(c if c.isalnum() else "-" for c in spoken)
    settings = {"pattern": "closed", "concurrency": 1, "duration_s": DURATION_S, "warmup_s": WARMUP_S, **levels}
    return Trial(
        id=f"{slug(made)}--{words}-9c0d--r{block}",
        trial_id=f"00000000-0000-5000-8000-{position:06d}{block:06d}",
        deployment=slug(made),
        workload=f"{words}-9c0d",
        component=made.component,
        service=made.service,
        settings=settings | {"timeout_s": 30.0},
        changed={"duration_s": DURATION_S, **levels},
        repetition=block,
        block=block,
        position=position,
        seed=position,
        config_hash="made",
        group=made.service,
    )


def write_load(
    own: TrialFolder,
    trial: Trial,
    made: Made,
    place: int,
    *,
    failed: bool,
    busy: bool,
    scenario: str,
    rng: np.random.Generator,
) -> None:
    """Write load.json and samples.parquet of one trial; a failed one has no samples."""
    started = f"2026-03-01T10:{place // 6 % 60:02d}:{place % 6 * 10:02d}.000+00:00"
    worker = {"worker": 0, "pid": 1, "ok": True, "wall_s": 7.0, "cpu_s": 6.8 if busy else 2.0, "lag_ns": None}
    count = 0 if failed else write_samples(own, trial, made, rng)
    tail = ["LOG:  checkpoint starting: time", "FATAL:  <out of memory> & gone", "Killed"]
    document = {
        "schema_version": 1,
        "scenario": scenario,
        "trial": trial.id,
        "config_hash": "made",
        "status": "failed" if failed else "ok",
        "category": "server_died" if failed else None,
        "reason": "the server's process ended with code 137 while the load ran" if failed else None,
        "log_tail": tail if failed else [],
        "started_at": started,
        "finished_at": started.replace(".000", ".900"),
        "warmup_s": WARMUP_S,
        "duration_s": DURATION_S,
        "scheduled": count,
        "sent": count,
        "completed": count,
        "failures": {},
        "unit": made.unit,
        "kinds": ["main"],
        "workers": [worker],
        "quality": {"recall_at_10": made.recall + float(rng.normal(0, 0.001))} if made.recall else {},
    }
    write_json(own.load, document)


def write_samples(own: TrialFolder, trial: Trial, made: Made, rng: np.random.Generator) -> int:
    """Write samples of a closed loop whose users wait in line where the rate is capped; return their number."""
    users = int(trial.settings["concurrency"] or 1)
    levels = [value for name, value in trial.settings.items() if name in made.factors and name != "concurrency"]
    slower = 1.0 + 0.6 * sum(sum(str(value).encode()) % 97 / 97 for value in levels)
    rate = min(users / (made.service_ms * slower / 1e3), made.cap_rps / slower) * float(rng.normal(1, 0.02))
    mean_ns = 1e9 * users / rate
    each = int(rate * (WARMUP_S + DURATION_S) / users)
    due, last = [], []
    for _ in range(users):
        took = mean_ns * (0.6 + 0.4 * rng.lognormal(-0.32, 0.8, each))
        took[: each // 10] *= 1.4
        ends = np.cumsum(took)
        ends = ends[ends < (WARMUP_S + DURATION_S) * 1e9].astype(np.int64)
        due.append(np.concatenate(([0], ends[:-1])))
        last.append(ends)
    due_ns, last_ns = np.concatenate(due), np.concatenate(last)
    ordered = np.argsort(due_ns, kind="stable")
    n = len(ordered)
    columns: dict[str, Any] = {name: np.zeros(n, dtype=SAMPLE[name]) for name in SAMPLE.names or ()}
    columns |= {"index": np.arange(n), "due_ns": due_ns[ordered], "last_ns": last_ns[ordered]}
    columns |= {"sent_ns": columns["due_ns"], "first_ns": pa.nulls(n, pa.int64())}
    columns["units"] = np.ones(n, dtype=np.int32)
    columns["bytes_received"] = np.full(n, made.bytes_each)
    columns["failure"] = np.where(rng.random(n) < 0.0004, Failure.RESET, Failure.NONE).astype(np.int8)
    about = {"config_hash": "made", "trial": trial.id, "unit": made.unit, "kinds": ["main"], "schema_version": 1}
    table = pa.table(columns).replace_schema_metadata({b"seamark": json.dumps(about).encode()})
    pq.write_table(table, own.samples, row_group_size=20_000)
    return n


def write_telemetry(own: TrialFolder, made: Made, rng: np.random.Generator) -> None:
    """Write telemetry.parquet of one trial."""
    rows = []
    for at_s in np.arange(0, WARMUP_S + DURATION_S, 0.5):
        for source in ("host", "server", "client") if made.phases else ("host", "client"):
            level = {"host": 0.7, "server": 0.5, "client": 0.25}[source]
            rows.append((float(at_s), source, "cpu_ratio", float(np.clip(rng.normal(level, 0.03), 0, 1)), "ratio"))
            if source != "host":
                rows.append((float(at_s), source, "rss_bytes", level * 4e8 + at_s * 1e6, "bytes"))
    names = ("at_s", "source", "name", "value", "unit")
    pq.write_table(pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)}), own.telemetry)


def record(deployment: Deployment, made: Made, plan: Plan) -> dict[str, Any]:
    """Return the record of one deployment."""
    own = [trial for trial in plan.trials if trial.deployment == deployment.id]
    return {
        "schema_version": 1,
        "deployment": deployment.id,
        "service": deployment.service,
        "ended": {"why": "teardown", "returncode": 0},
        "started_at": "2026-03-01T10:00:00.000+00:00",
        "ended_at": "2026-03-01T10:20:00.000+00:00",
        "time_to_service_s": dict(made.phases),
        "uptime_s": 312.5,
        "gpu_hours": 0.0,
        "trials": {"n": len(own), "ok": len(own)},
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


def printed(summary: Mapping[str, Any], width: int) -> str:
    """Return the table of a summary document as a terminal of that width shows it."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(summary_table(decode(summary, Summary), width))
    return console.export_text()
