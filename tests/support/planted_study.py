"""Studies whose trials hold the requests of a model of known parameters, in the files that a load leaves.

Nothing was measured: each trial's `metrics.json` is derived from made samples by the code that derives those of real
ones.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from planted_replicas import planted_replica_trial
from planted_stations import MEAN_S, OVERHEAD_S
from samples import a_load, samples_of, write_chunks, write_samples

from seamark.analysis.summary.trial_files import write_metrics
from seamark.config.read import Recipes, read_scenario, read_site
from seamark.model.trial import Trial
from seamark.planning.plan import plan
from seamark.storage.documents import write
from seamark.storage.paths import ScenarioFolder, TrialFolder
from seamark_simulate.simulation.station import Station, exponential, serve
from seamark_simulate.trials.fit_inputs import DEFAULT_STEP_TOKENS

ROOT = Path(__file__).parents[2]
WARMUP_S, DURATION_S = 2.0, 12.0
NAME = "planted"


def planted_study(root: Path, **settings: Any) -> ScenarioFolder:
    """Write a study of one queue at three rates, twice each, with results; return the folder of its results."""
    asked = {
        "queue": "mm1",
        "ttft_ms": MEAN_S * 1e3,
        "pattern": "poisson",
        "rate_rps": [40, 80, 120],
        "concurrency": 256,
    }
    folder = ScenarioFolder(root=root / "results" / NAME)
    for number, (trial, files) in enumerate(_trials(root, folder, asked | settings)):
        random = np.random.default_rng([7, number])
        until_s = WARMUP_S + DURATION_S
        count = int(float(str(trial.settings.get("rate_rps") or 100)) * until_s)
        arrival_s = np.sort(random.uniform(0.0, until_s, count))[: trial.load.requests]
        served = serve(Station(servers=1, service=exponential(MEAN_S)), arrival_s, random)
        end_s = served.end_s + OVERHEAD_S
        rows = samples_of(arrival_s, arrival_s + 2e-5, end_s, first_s=end_s)
        _write(trial, files, rows)
    return folder


def planted_results(root: Path, path: Path, servers: int, mean_s: float) -> None:
    """Write results of a scenario of the reference server: `servers` of them behind one queue."""
    services, site = Recipes(root / "config" / "services"), read_site(root / "config" / "sites" / "local.yaml")
    scenario = read_scenario(path, services, site)
    made = plan(scenario, services, site)
    folder = ScenarioFolder(root=root / "results" / scenario.name)
    write(folder.plan, made)
    for trial in made.measured:
        random = np.random.default_rng(trial.seed)
        warmup_s, duration_s = trial.load.warmup_s, trial.load.duration_s
        count = random.poisson(float(str(trial.settings["rate_rps"])) * (warmup_s + duration_s))
        arrival_s = np.sort(random.uniform(0.0, warmup_s + duration_s, count))
        served = serve(Station(servers=servers, service=exponential(mean_s)), arrival_s, random)
        end_s = np.maximum(served.end_s, arrival_s + 3e-5)  # no reply before its request was sent
        rows = samples_of(arrival_s, arrival_s + 2e-5, end_s, first_s=end_s)
        write_samples(folder.trial(trial.id).samples, rows, config_hash=trial.config_hash)
        record = a_load(warmup_s=warmup_s, duration_s=duration_s, node="node1", rows=len(rows))
        write(folder.trial(trial.id).load, record)
        write_metrics(trial, folder.trial(trial.id), scenario=scenario.name)


def planted_replica_study(root: Path, *, whole: bool = False, **settings: Any) -> ScenarioFolder:
    """Write a study of one LLM replica under closed loops, twice each, with results; return their folder. `whole`
    replies are read in one piece, as behind a proxy that buffers."""
    asked = {"concurrency": [1, 4, 16], "prompt_len": [64, 256], "gen_tokens": 16}
    folder = ScenarioFolder(root=root / "results" / NAME)
    for trial, files in _trials(root, folder, asked | settings):
        made = planted_replica_trial(
            trial.treatment,
            repeat=trial.repetition,
            prompt=int(str(trial.settings["prompt_len"])),
            reply=int(str(trial.settings["gen_tokens"])),
            concurrency=int(str(trial.settings["concurrency"])),
            until_s=WARMUP_S + DURATION_S,
            budget=DEFAULT_STEP_TOKENS,
        )
        rows = samples_of(
            made.due_s,
            made.sent_s,
            made.last_s,
            first_s=made.last_s if whole else made.first_s,
            units=made.reply_tokens,
            first_units=1,
        )
        files.root.mkdir(parents=True, exist_ok=True)
        reads = zip(made.token_of.tolist(), made.token_at_s.tolist(), strict=True)
        write_chunks(files.chunks, [(index, at_s, 1) for index, at_s in reads])
        _write(trial, files, rows)
    return folder


def _trials(root: Path, folder: ScenarioFolder, asked: dict[str, Any]) -> Iterator[tuple[Trial, TrialFolder]]:
    """Write configuration, scenario and plan of the reference server; yield its trials and their folders."""
    config = root / "config"
    shutil.copytree(ROOT / "config", config)
    workload = {"service": "known", "duration_s": DURATION_S, "warmup_s": WARMUP_S} | asked
    given = {name: value for name, value in workload.items() if value is not None}
    path = config / "scenarios" / f"{NAME}.yaml"
    path.write_text(yaml.safe_dump({"scenario": NAME, "repetitions": 2, "workload": given}, sort_keys=False))
    services, site = Recipes(config / "services"), read_site(config / "sites" / "local.yaml")
    made = plan(read_scenario(path, services, site), services, site)
    write(folder.plan, made)
    for trial in made.measured:
        yield trial, folder.trial(trial.id)


def _write(trial: Trial, files: TrialFolder, rows: np.ndarray) -> None:
    write_samples(files.samples, rows, config_hash=trial.config_hash)
    write(files.load, a_load(warmup_s=WARMUP_S, duration_s=DURATION_S, node="node1", rows=len(rows)))
    write_metrics(trial, files, scenario=NAME)
