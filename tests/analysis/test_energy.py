"""Joules of a trial from telemetry of known power, for each way to have them; and every reason to have none."""

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from samples import a_load, a_metrics, a_trial, metrics_of, samples_of, write_chunks, write_samples, write_telemetry

from seamark.analysis.metrics.schema import metrics_schema
from seamark.analysis.summary.summary import energy_over
from seamark.model.results.trial_metrics import EnergyFigures
from seamark.model.sample import Failure
from seamark.model.trial import Deployment
from seamark.storage.paths import TrialFolder

approx = pytest.approx
RAPL = {"package": {"counters": ["package0", "dram0"], "reason": None}, "node": {"reason": "not in a Slurm job"}}


def deployment(gpus=0, nodes=1):
    return Deployment(id="d-1", service="x", settings={}, nodes=nodes, gpus=gpus, cpus_per_task=1, mem_gb=1)


def counter(source, watts, times=None):
    times = np.arange(0, 10.5, 0.5) if times is None else times
    return [(float(t), source, "energy_j", watts * float(t), "J") for t in times]


@pytest.fixture
def measured(folder):
    """Return metrics.json of 1,000 requests of 10 ms, of two units each, in a window from 1 s to 9 s."""

    def of(telemetry, energy=RAPL, **asked):
        ends = np.arange(1, 1001) * 0.01
        write_samples(folder.samples, samples_of(ends - 0.01, None, ends, units=2))
        write_telemetry(folder.telemetry, telemetry)
        load = a_load(energy=energy, completed=1000)
        trial = a_trial({"warmup_s": 1.0, "duration_s": 8.0})
        document = metrics_of(trial, load, folder, scenario="s", deployment=deployment(**asked))
        Draft202012Validator(metrics_schema()).validate(document)
        return document

    return of


@pytest.mark.covers("E-FR09", "E-MON02", "E-SCHEMA")
def test_packages_and_memory_together_are_the_energy_of_a_service_without_gpus(measured):
    document = measured([*counter("package0", 90.0), *counter("dram0", 10.0)])
    energy = document["energy"]
    assert (energy["scope"], energy["method"]) == ("package", "RAPL: package0, dram0")
    assert (energy["value_j"], energy["window_s"], energy["power_w"]) == (approx(800), approx(8), approx(100))
    assert energy["per_request_j"] == approx(1.0, rel=0.01)
    assert energy["per_unit_j"] == approx(0.5, rel=0.01)
    assert (energy["package_j"], energy["gpu_j"], energy["node_j"]) == (approx(800), None, None)
    assert document["energy_reason"] is None


@pytest.mark.covers("E-FR09", "E-MON02")
def test_the_gpus_of_a_deployment_come_before_its_processors(measured):
    rows = [*counter("gpu0", 300.0), *counter("gpu1", 200.0), *counter("package0", 90.0), *counter("dram0", 10.0)]
    energy = measured(rows, gpus=2)["energy"]
    assert (energy["scope"], energy["method"]) == ("gpu", "NVML energy counter")
    assert (energy["gpu_j"], energy["package_j"]) == (approx(4000), approx(800))
    assert energy["value_j"] == approx(4000)


def test_a_gpu_without_a_counter_has_its_power_integrated_and_that_is_said(measured):
    times = np.arange(0, 10.5, 0.5)
    ramp = [(float(t), "gpu0", "power_w", 100.0 * float(t), "W") for t in times]
    energy = measured(ramp, gpus=1)["energy"]
    assert energy["method"] == "NVML power, integrated"
    assert energy["value_j"] == approx(100 * (81 - 1) / 2)


def test_a_gpu_counter_that_was_set_back_is_not_summed_up_but_its_power_is(measured):
    times = np.arange(0, 10.5, 0.5)
    reset = [(float(t), "gpu0", "energy_j", 300.0 * (t if t < 5 else t - 5), "J") for t in times]
    assert measured(reset, gpus=1)["energy"] is None
    power = [(float(t), "gpu0", "power_w", 300.0, "W") for t in times]
    energy = measured([*reset, *power], gpus=1)["energy"]
    assert (energy["method"], energy["value_j"]) == ("NVML power, integrated", approx(2400))


def test_slurms_figure_is_of_the_whole_load_and_all_its_requests(measured):
    node = {"value_j": 5000.0, "window_s": 10.2, "step": "71.batch", "reason": None}
    energy = measured([], {"package": {"counters": [], "reason": "no RAPL"}, "node": node})["energy"]
    assert (energy["scope"], energy["value_j"], energy["window_s"]) == ("node", 5000, 10.2)
    assert "ConsumedEnergyRaw of step 71.batch" in energy["method"]
    assert energy["per_request_j"] == approx(5.0)
    assert energy["per_unit_j"] == approx(2.5, rel=0.01)


def test_energy_of_slurm_is_for_the_good_replies_of_the_load(tmp_path):
    """Every second of 1,000 requests fails."""
    folder = TrialFolder(root=tmp_path / "s" / "d-1--w-1--r1")
    due = np.arange(1000) / 100
    failure = np.where(np.arange(1000) % 2, int(Failure.SERVER_ERROR), 0)
    write_samples(folder.samples, samples_of(due, None, due + 0.001, failure=failure, units=2))
    node = {"value_j": 1000.0, "window_s": 10.0, "step": "1.0"}
    load = a_load(completed=1000, energy={"node": node})
    energy = metrics_of(a_trial(), load, folder, scenario="s")["energy"]
    assert (energy["per_request_j"], energy["per_unit_j"]) == (approx(2.0), approx(1.0))


@pytest.mark.parametrize("warmup_s", [0.0, 4.0, 7.0])
def test_energy_for_a_token_of_a_stream_is_that_of_the_tokens_of_its_time(tmp_path, warmup_s):
    """16 users have replies of 8 s with a token each 0.1 s, and the GPU takes 400 W: 2.5 J for a token."""
    folder = TrialFolder(root=tmp_path / "s" / "d-1--w-1--r1")
    starts = np.repeat([0.0, 8.0, 16.0], 16)
    rows = samples_of(starts, None, starts + 8.0, first_s=starts + 0.1, units=80, first_units=1)
    write_samples(folder.samples, rows)
    write_chunks(folder.chunks, [(i, starts[i] + 0.1 * n, 1) for i in range(len(starts)) for n in range(1, 81)])
    write_telemetry(folder.telemetry, [(float(t), "gpu0", "power_w", 400.0, "W") for t in np.arange(0, 20, 0.5)])
    trial = a_trial({"concurrency": 16, "warmup_s": warmup_s, "duration_s": 10.0})
    document = metrics_of(trial, a_load(unit="token"), folder, scenario="s")
    assert document["throughput"]["value"] == approx(160, rel=0.02)
    assert document["energy"]["per_unit_j"] == approx(2.5, rel=0.02)


def test_energy_of_several_nodes_is_that_of_all_or_none(measured):
    here, there = counter("package0", 90.0), counter("package0@n2", 110.0)
    told = {"package": {"counters": ["package0"], "reason": None}, "node": {"value_j": 9.0, "window_s": 9.0}}
    assert measured([*here, *there], told, nodes=2)["energy"]["value_j"] == approx(1600)
    document = measured(here, told, nodes=2)
    assert document["energy"] is None
    assert "counters of 1 of 2 nodes were watched" in document["energy_reason"]
    assert "node: the energy of the load's own step covers one node" in document["energy_reason"]


@pytest.mark.covers("E-FR09", "E-NFR04")
@pytest.mark.parametrize(
    ("rows", "asked", "why"),
    [
        ([], {}, "package: package0: no readings"),
        ([*counter("package0", 90.0)], {}, "package: dram0: no readings"),
        ([*counter("package0", 0.0), *counter("dram0", 1.0)], {}, "package0: the counter stands still"),
        (
            [*counter("package0", 9.0, [1, 4, 6]), *counter("dram0", 1.0)],
            {},
            "package0: readings cover 5 s of a window",
        ),
        ([*counter("package0", 9.0, [0, 10]), *counter("dram0", 1.0)], {}, "package0: 1 readings are too few"),
        ([*counter("gpu0", 9.0)], {"gpus": 2}, "gpu: 1 of 2 were watched"),
        ([("x", "y")][:0], {"gpus": 1}, "gpu: none was watched"),
        ([], {}, "gpu: the deployment has none"),
        ([], {}, "node: not in a Slurm job"),
    ],
)
def test_energy_that_is_not_known_is_null_with_every_reason(measured, rows, asked, why):
    document = measured(rows, **asked)
    assert document["energy"] is None
    assert why in document["energy_reason"]


def test_a_virtual_machine_says_what_it_lacks(measured):
    told = {"package": {"counters": [], "reason": "no RAPL counters"}, "node": {"reason": "not in a Slurm job"}}
    document = measured([], told)
    assert document["energy_reason"] == (
        "gpu: the deployment has none; package: no RAPL counters; node: not in a Slurm job"
    )


@pytest.mark.covers("E-MON04")
def test_trials_of_one_scope_are_summed_up_and_scopes_are_never_mixed():
    one, other = (a_metrics(energy=EnergyFigures(scope="gpu", per_unit_j=value)) for value in (2.0, 4.0))
    whole, without = a_metrics(energy=EnergyFigures(scope="node", per_unit_j=9.0)), a_metrics()
    assert energy_over([one, other, without]).per_unit_j.median == 3.0
    assert energy_over([one, whole]) is None
    assert energy_over([without]) is None
