"""effective_config.yaml says how a trial was run: container, binds, allocation, retries, restarts, metadata."""

from pathlib import Path

import pytest
import yaml

from seamark.planning.study import Study
from seamark.trials.deployment_context import DeploymentContext
from seamark.trials.trial_record import write_config

SCENARIO = """
scenario: try
partition: gpu
account: p200000
repetitions: 2
max_retries: 1
restarts: each
resources: {nodes: 1, gpus: 1, cpus_per_task: 8, mem_gb: 32}
workload: {component: inference, service: vllm, model: mistral-7b-instruct, duration_s: 1}
artifacts: {container: $WORK/containers/vllm.sif}
binds: ["$WORK/data:/data"]
metadata: {seed: 7, notes: "first, password=hunter2"}
"""


@pytest.mark.covers("E-FR15", "E-AC05")
def test_the_configuration_of_a_trial_says_how_it_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORK", str(tmp_path / "work"))
    (tmp_path / "try.yaml").write_text(SCENARIO)
    study = Study.at(tmp_path, scenario="try.yaml", site="meluxina")
    trial = study.plan.trials[0]
    context = DeploymentContext.of(study, "try", trial.deployment)
    write_config(context, trial)
    written = yaml.safe_load(context.results.trial(trial.id).config.read_text())
    assert written["container"] == str(tmp_path / "work/containers/vllm.sif")
    assert written["binds"] == [f"{tmp_path}/work/data:/data"]
    names = ("partition", "account", "qos", "max_retries", "restarts")
    assert [written[name] for name in names] == ["gpu", "p200000", "default", 1, "each"]
    assert written["metadata"]["seed"] == 7
    assert written["metadata"]["notes"].startswith("first, ")
    assert "hunter2" not in written["metadata"]["notes"]


def test_a_trial_without_containers_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "try.yaml").write_text("scenario: try\nworkload: {service: 'null'}\nbinds: ['/tmp:/data']\n")
    study = Study.at(tmp_path, scenario="try.yaml")
    trial = study.plan.trials[0]
    context = DeploymentContext.of(study, "try", trial.deployment)
    write_config(context, trial)
    written = yaml.safe_load(context.results.trial(trial.id).config.read_text())
    assert (written["container"], written["binds"], written["partition"]) == (None, [], None)
    assert written["trial"]["trial_id"] == trial.trial_id
