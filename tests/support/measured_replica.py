"""Concurrencies against a real server of a language model: a replica fitted to some, held against the others."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seamark.housekeeping.compared_results import results_named
from seamark.model.results.deployment_record import DeploymentRecord
from seamark.storage.documents import read
from seamark_simulate.fit.prediction import predict_replica
from seamark_simulate.fit.replica_fit import fit_replica
from seamark_simulate.model.fitted_model import FitScore
from seamark_simulate.trials.fit_inputs import fit_inputs
from seamark_simulate.trials.fitting import score

FITTED, HELD_OUT = (1, 4, 16), (2, 8)
"""Concurrencies of the trials that a replica is fitted to, and of those that it is held against."""
FIGURES = ("throughput_rps", "mean_s", "ttft_mean_s", "tpot_mean_s")
NAME = "replica"


@dataclass(frozen=True, kw_only=True)
class HeldAgainst:
    """A figure of the trials of one concurrency: mean, relative spread of the repeats, and the prediction."""

    concurrency: int
    figure: str
    measured: float
    spread: float
    predicted: float
    inside: int
    trials: int

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.measured - 1


def sweep(root: Path, workload: Mapping[str, Any], *options: str, repetitions: int = 2) -> None:
    """Measure all concurrencies, each `repetitions` times, in a folder of its own."""
    document = {
        "scenario": NAME,
        "repetitions": repetitions,
        "workload": {**workload, "concurrency": sorted((*FITTED, *HELD_OUT))},
    }
    (root / f"{NAME}.yaml").write_text(json.dumps(document), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "seamark.cli.main", "submit", "-c", f"{NAME}.yaml", *options],
        cwd=root,
        env=dict(os.environ),
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr


def kv_tokens_of(root: Path) -> set[int | None]:
    """Return the tokens that the servers of a sweep counted in their memory."""
    results = results_named(root, f"{NAME}.yaml", None)
    folders = {trial.deployment for trial in results.plan.measured}
    return {read(results.folder.deployment(each).record, DeploymentRecord).kv_tokens for each in folders}


def held_against(root: Path) -> tuple[list[HeldAgainst], tuple[FitScore, ...]]:
    """Fit a replica to FITTED and predict HELD_OUT; return that, and the score of each treatment left out."""
    results = results_named(root, f"{NAME}.yaml", None)
    inputs = fit_inputs([(results.plan, results.folder)])
    [group] = inputs.replicas
    fitted = fit_replica([each for each in group.trials if each.concurrency in FITTED], group.limits[0])
    found = []
    for concurrency in HELD_OUT:
        trials = [each for each in group.trials if each.concurrency == concurrency]
        said = [predict_replica(fitted, each, number).figures for number, each in enumerate(trials)]
        for name in FIGURES:
            values = np.array([each.figures[name] for each in trials])
            inside = [one[name].low <= value <= one[name].high for one, value in zip(said, values, strict=True)]
            found.append(
                HeldAgainst(
                    concurrency=concurrency,
                    figure=name,
                    measured=float(values.mean()),
                    spread=float(values.std(ddof=1) / values.mean()) if len(values) > 1 else float("nan"),
                    predicted=float(np.mean([each[name].value for each in said])),
                    inside=sum(inside),
                    trials=len(trials),
                )
            )
    _, scores = score(group.trials, lambda others: fit_replica(others, group.limits[0], draws=20), predict_replica)
    return found, scores


def table(rows: list[HeldAgainst]) -> str:
    """Return the rows as text."""
    lines = ["concurrency figure          measured  predicted    error   spread of repeats  in 90 % interval"]
    lines += [
        f"{row.concurrency:>11} {row.figure:<15} {row.measured:>8.4g} {row.predicted:>10.4g} {row.error:>8.1%}"
        f" {row.spread:>19.1%}  {row.inside}/{row.trials}"
        for row in rows
    ]
    return "\n".join(lines)
