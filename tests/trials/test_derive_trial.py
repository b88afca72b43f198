"""One function derives the telemetry and figures of a trial, and one says whether they are up to date."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from samples import a_load, a_trial, samples_of, write_samples

from seamark.analysis.summary.repetitions import compared
from seamark.analysis.trial_view import TrialView
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.scenario import Slo
from seamark.model.trial import Deployment
from seamark.storage.documents import read, read_json, write, write_json
from seamark.storage.paths import ScenarioFolder
from seamark.trials.derive_trial import derive_telemetry, derive_trial, is_derived

DEPLOYMENT = Deployment(id="d-1", service="fileio", settings={}, nodes=1, gpus=0, cpus_per_task=1, mem_gb=1)
EPOCH_S = 1_767_225_600


@pytest.fixture
def scenario(tmp_path: Path) -> ScenarioFolder:
    """A scenario with one measured trial and the telemetry of its deployment; nothing is derived yet."""
    folder, trial = ScenarioFolder(root=tmp_path / "results" / "s"), a_trial()
    due_s = np.arange(0.0, 10.0, 0.01)
    write_samples(folder.trial(trial.id).samples, samples_of(due_s, last_s=due_s + 0.0099))
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


def flipped(samples: Path) -> None:
    content = bytearray(samples.read_bytes())
    for at in range(100, 164):
        content[at] ^= 0xFF
    samples.write_bytes(content)


HARM: dict[str, Callable[[Path], object]] = {
    "missing": lambda samples: samples.unlink(),
    "empty": lambda samples: samples.write_bytes(b""),
    "cut": lambda samples: samples.write_bytes(samples.read_bytes()[:-20]),
    "a page of it changed": flipped,
    "of another trial": lambda samples: write_samples(samples, samples_of([0.0], last_s=[1.0]), config_hash="beef"),
}


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize("kind", HARM)
def test_figures_stay_and_are_suspect_while_their_samples_are_missing_or_damaged(scenario, kind):
    trial, own = a_trial(), scenario.trial(a_trial().id)
    whole, right = derive_trial(scenario, trial, DEPLOYMENT), own.samples.read_bytes()
    assert whole.verdict == "VALID"
    HARM[kind](own.samples)
    for objectives in ((), (Slo(metric="latency_p99_s", op="<=", limit=0.5),)):
        assert not is_derived(own, replace(trial, slos=objectives))
        kept = derive_trial(scenario, replace(trial, slos=objectives), DEPLOYMENT)
        assert (kept.latency_ms, kept.counts, kept.verdict) == (whole.latency_ms, whole.counts, "SUSPECT")
        [said] = [reason for reason in kept.reasons if reason.code == "samples_missing"]
        assert own.samples.name in said.text
        assert "samples_missing" in own.metrics_csv.read_text()
        assert TrialView(trial=trial, folder=own).verdict == "SUSPECT"
    own.samples.write_bytes(right)
    assert not is_derived(own, trial)
    assert derive_trial(scenario, trial, DEPLOYMENT) == whole


def test_samples_that_were_pruned_are_not_missed(scenario):
    trial, own = a_trial(), scenario.trial(a_trial().id)
    derive_trial(scenario, trial, DEPLOYMENT)
    own.samples.unlink()
    write_json(own.record, read_json(own.load) | {"pruned_at": "2026-02-01T00:00:00+00:00"})
    assert is_derived(own, trial)


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize("content", [None, "{", "{}", '{"trial": "t", "histograms": {}}'])
def test_a_damaged_histogram_leaves_the_figures_of_its_trial_and_is_derived_again(scenario, content):
    trial, own = a_trial(), scenario.trial(a_trial().id)
    whole, right = derive_trial(scenario, trial, DEPLOYMENT), own.histogram.read_bytes()
    own.histogram.unlink()
    if content is not None:
        own.histogram.write_text(content)
    [found] = compared([TrialView(trial=trial, folder=own)])
    assert (found.verdict, found.codes[-1]) == ("SUSPECT", "damaged_file")
    assert found.good.latency_ms == whole.latency_ms
    assert not is_derived(own, trial)
    assert derive_trial(scenario, trial, DEPLOYMENT) == whole
    assert own.histogram.read_bytes() == right
    assert is_derived(own, trial)
