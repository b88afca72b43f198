"""What a fit keeps of the server of its trials: settings, GPUs and place."""

from dataclasses import replace

import in_process
import pytest
from planted_replicas import planted_replica_trial
from planted_study import NAME, planted_study

from seamark.model.results.trial_meta import Gpu, Gpus, Machine, TrialMeta
from seamark.model.trial import Plan
from seamark.storage.documents import read, write
from seamark_simulate.fit.replica_fit import ReplicaLimits
from seamark_simulate.model.fitted_model import FittedModels
from seamark_simulate.simulation.gpu_memory import GIB, gpu_kind
from seamark_simulate.trials.fit_inputs import fit_inputs, replica_limits
from seamark_simulate.trials.fitted_server import fitted_server, gpu_of
from seamark_simulate.trials.fitting import common_limits

A100 = Gpu(name="NVIDIA A100-SXM4-40GB", memory_bytes=42_949_672_960)
H100 = Gpu(name="NVIDIA H100 80GB HBM3", memory_bytes=85_520_809_984)


@pytest.mark.parametrize(
    ("name", "memory_bytes", "kind"),
    [
        ("NVIDIA A100-SXM4-40GB", 42_949_672_960, "a100-40"),
        ("NVIDIA A100-SXM4-80GB", 85_899_345_920, "a100-80"),
        ("NVIDIA H100 80GB HBM3", 85_520_809_984, "h100-80"),
        ("NVIDIA H200", 150_754_820_096, "h200-141"),
        ("Tesla V100-SXM2-32GB", 34_359_738_368, "v100-32"),
        ("NVIDIA L40S", 48 * GIB, "l40s-48"),
    ],
)
def test_a_gpu_is_named_by_what_it_reports(name, memory_bytes, kind):
    assert gpu_kind(name, memory_bytes) == kind


def with_gpus(root, *, devices):
    """Write a planted study whose deployments have a GPU, and its trials in turn one of these devices."""
    folder = planted_study(root, rate_rps=[40, 80])
    plan = read(folder.plan, Plan)
    plan = replace(plan, deployments=tuple(replace(each, gpus=1) for each in plan.deployments), partition="gpu")
    for number, trial in enumerate(plan.measured):
        machine = Machine(gpu=Gpus(devices=(devices[number % len(devices)],)))
        write(folder.trial(trial.id).meta, TrialMeta(trial_id=trial.trial_id, machine=machine))
    return plan, folder


@pytest.mark.covers("C14")
def test_trials_on_other_kinds_of_gpu_are_other_models(tmp_path):
    plan, folder = with_gpus(tmp_path, devices=[A100, H100])
    groups = fit_inputs([(plan, folder)]).stations
    assert [group.name for group in groups] == ["known on a100-40", "known on h100-80"]
    server = fitted_server(groups[0].served)
    assert (server.gpu, server.gpus, server.partition) == ("a100-40", 1, "gpu")


def test_a_server_without_gpus_has_no_kind_even_on_a_node_that_has_some(tmp_path):
    plan, folder = with_gpus(tmp_path, devices=[A100])
    bare = replace(plan, deployments=tuple(replace(each, gpus=0) for each in plan.deployments))
    trial = plan.measured[0]
    assert gpu_of(plan, folder, trial) == "a100-40"
    assert gpu_of(bare, folder, trial) is None
    folder.trial(trial.id).meta.unlink()
    assert gpu_of(plan, folder, trial) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gpu", "tokens"),
    [(None, 2048), ("a100-80", 2048), ("l40s-48", 2048), ("h100-80", 8192), ("h200-141", 8192), ("b200-192", 16384)],
)
def test_tokens_of_a_step_are_those_of_vllm_on_a_kind_of_gpu(tmp_path, gpu, tokens):
    folder = planted_study(tmp_path, rate_rps=[40])
    trial = read(folder.plan, Plan).measured[0]
    seen = planted_replica_trial("any", concurrency=1, until_s=1.0)
    limits = replica_limits(trial, seen, None, gpu)
    assert (limits.max_num_batched_tokens, limits.kv_counted) == (tokens, False)


def test_blocks_that_a_server_counted_come_before_guessed_ones():
    guessed = ReplicaLimits(kv_blocks=10_240)
    counted = [ReplicaLimits(kv_blocks=blocks, kv_counted=True) for blocks in (1_000, 900)]
    assert common_limits([guessed, *counted]).kv_blocks == 900
    assert common_limits([guessed, ReplicaLimits(kv_blocks=20_000)]).kv_blocks == 20_000


@pytest.mark.slow
def test_the_file_of_a_fit_has_the_settings_that_all_trials_have_and_no_rate(tmp_path, monkeypatch):
    planted_study(tmp_path, rate_rps=[40, 80], concurrency=64)
    monkeypatch.chdir(tmp_path)
    assert in_process.run(["fit", "-c", NAME, "-o", "out.json"])[0] == 0
    [station] = read(tmp_path / "out.json", FittedModels).stations
    assert station.server.settings == {"queue": "mm1", "ttft_ms": 5.0, "concurrency": 64}
    assert station.server.resources == {"nodes": 1, "gpus": 0, "cpus_per_task": 1, "mem_gb": 1}
