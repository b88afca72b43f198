"""One function derives the telemetry and figures of a trial, and one says whether they are up to date."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from samples import a_load, a_trial, samples_of, write_samples

from seamark.model.results.load_record import LoadRecord
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.scenario import Slo
from seamark.model.trial import Deployment
from seamark.storage.documents import read, write
from seamark.storage.paths import ScenarioFolder
from seamark.trials.derive_trial import derive_telemetry, derive_trial, is_derived

DEPLOYMENT = Deployment(id="d-1", service="fileio", settings={}, nodes=1, gpus=0, cpus_per_task=1, mem_gb=1)
EPOCH_S = 1_767_225_600


@pytest.fixture
def scenario(tmp_path: Path) -> ScenarioFolder:
    """A scenario with one measured trial and the telemetry of its deployment; nothing is derived yet."""
    folder, trial = ScenarioFolder(root=tmp_path / "results" / "s"), a_trial()
    due_s = np.arange(0.0, 10.0, 0.01)
    write_samples(folder.trial(trial.id).samples, samples_of(due_s, last_s=due_s + 0.001))
    load = a_load(epoch_unix_ns=EPOCH_S * 10**9, warmup_s=0.0, duration_s=10.0, scheduled=len(due_s), sent=len(due_s))
    write(folder.trial(trial.id).load, load)
    telemetry = folder.deployment(DEPLOYMENT.id).telemetry
    telemetry.parent.mkdir(parents=True)
    telemetry.write_text("".join(f"{EPOCH_S + at_s},host,cpu_util,0.5,ratio\n" for at_s in range(-5, 20)))
    return folder


@pytest.mark.covers("E-FR10")
def test_a_derived_trial_has_its_part_of_the_telemetry_and_its_figures(scenario):
    trial, own = a_trial(), scenario.trial(a_trial().id)
    assert not is_derived(own, trial)
    document = derive_trial(scenario, trial, DEPLOYMENT)
    assert document == read(own.metrics, TrialMetrics)
    assert (document.status, document.counts.requests) == ("ok", 1000)
    assert len(own.telemetry_csv.read_text().splitlines()) == 1 + 11
    assert is_derived(own, trial)


def test_a_trial_is_derived_again_after_another_load_or_with_other_objectives(scenario):
    trial, own = a_trial(), scenario.trial(a_trial().id)
    derive_trial(scenario, trial, DEPLOYMENT)
    assert not is_derived(own, replace(trial, slos=(Slo(metric="latency_p99_s", op="<=", limit=0.5),)))
    after_ns = own.metrics.stat().st_mtime_ns + 10**9
    os.utime(own.load, ns=(after_ns, after_ns))
    assert not is_derived(own, trial)


def test_telemetry_that_is_newer_than_its_load_is_not_cut_again(scenario):
    trial, own = a_trial(), scenario.trial(a_trial().id)
    derive_telemetry(scenario, own, DEPLOYMENT.id)
    scenario.deployment(DEPLOYMENT.id).telemetry.unlink()
    derive_trial(scenario, trial, DEPLOYMENT)
    assert len(own.telemetry_csv.read_text().splitlines()) == 1 + 11


def test_telemetry_is_that_of_the_start_that_a_load_ran_on(scenario):
    trial, own = a_trial(), scenario.trial(a_trial().id)
    write(own.load, replace(read(own.load, LoadRecord), server_start=f"{DEPLOYMENT.id} at 2026-01-01T00:00:00"))
    derive_trial(scenario, trial, replace(DEPLOYMENT, id=f"{DEPLOYMENT.id}.replica1", replica=1))
    assert len(own.telemetry_csv.read_text().splitlines()) == 1 + 11
