"""A study whose trials hold the requests of a station of known parameters, in the files that a load leaves.

Nothing was measured: each trial's `metrics.json` is derived from made samples by the code that derives those of real
ones.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from planted_stations import MEAN_S, OVERHEAD_S
from samples import a_load, samples_of, write_samples

from seamark.analysis.summary.trial_files import write_metrics
from seamark.config.read import read_scenario, read_services, read_site
from seamark.model.trial import Plan
from seamark.planning.plan import plan
from seamark.simulation.station import Station, exponential, serve
from seamark.storage.paths import ScenarioFolder, write

ROOT = Path(__file__).parents[2]
WARMUP_S, DURATION_S = 2.0, 12.0
NAME = "planted"


def write_scenario(root: Path, *, rates: Sequence[float], repetitions: int = 2, **settings: Any) -> Path:
    """Write a study's configuration, with one scenario of the reference server; return the scenario's file."""
    shutil.copytree(ROOT / "config", root / "config")
    workload = {
        "service": "known",
        "queue": "mm1",
        "ttft_ms": MEAN_S * 1e3,
        "pattern": "poisson",
        "rate_rps": list(rates),
        "concurrency": 256,
        "duration_s": DURATION_S,
        "warmup_s": WARMUP_S,
    }
    path = root / "config" / "scenarios" / f"{NAME}.yaml"
    given = {name: value for name, value in (workload | settings).items() if value is not None}
    document = {"scenario": NAME, "repetitions": repetitions, "workload": given}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def planned(root: Path) -> Plan:
    """Return the plan of the study's scenario."""
    config = root / "config"
    services, site = read_services(config / "services"), read_site(config / "sites" / "local.yaml")
    return plan(read_scenario(config / "scenarios" / f"{NAME}.yaml", services, site), services, site)


def planted_study(root: Path, *, rates: Sequence[float] = (40, 80, 120), **settings: Any) -> ScenarioFolder:
    """Write a study with results of all its trials; return the folder of its results."""
    write_scenario(root, rates=rates, **settings)
    made = planned(root)
    folder = ScenarioFolder(root=root / "results" / NAME)
    write(folder.plan, made)
    for number, trial in enumerate(made.measured):
        random = np.random.default_rng([7, number])
        until_s = WARMUP_S + DURATION_S
        count = int(float(str(trial.settings.get("rate_rps") or 100)) * until_s)
        arrival_s = np.sort(random.uniform(0.0, until_s, count))
        served = serve(Station(servers=1, service=exponential(MEAN_S)), arrival_s, random)
        files = folder.trial(trial.id)
        end_s = served.end_s + OVERHEAD_S
        rows = samples_of(arrival_s, arrival_s + 2e-5, end_s, first_s=end_s)
        write_samples(files.samples, rows, config_hash=trial.config_hash)
        write(files.load, a_load(warmup_s=WARMUP_S, duration_s=DURATION_S, node="node1", rows=len(rows)))
        write_metrics(trial, files, scenario=NAME)
    return folder
