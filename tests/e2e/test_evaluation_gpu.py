"""GPUs that are promised and not there: a server refuses to compute on the CPU in their place, and so do lanes."""

import json
import os
from pathlib import Path

import pytest
from study_folder import StudyFolder

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def write(study: StudyFolder, **more: object) -> None:
    settings = {"component": "evaluation", "service": "attention", "model": "/nowhere", "task": "mock_benchmark"}
    document = {"scenario": "try", "workload": settings, **more}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))


@pytest.mark.sweep
@pytest.mark.covers("B12")
def test_a_server_that_was_promised_a_gpu_and_sees_none_ends_its_start(study: StudyFolder) -> None:
    write(study, resources={"gpus": 1})
    study.measure(code=1)
    [deployment] = study.results.glob("deployments/*/deployment.json")
    record = json.loads(deployment.read_text())
    assert (record["category"], record["gpus"]) == ("gpu_error", 1)
    assert "promised the GPU 0 (CUDA_VISIBLE_DEVICES) and sees none" in record["reason"]
    assert "Use the service attention_cuda" in record["reason"]
    assert study.json("summary.json")["ok"] == 0


def test_lanes_on_gpus_that_no_deployment_asks_for_are_refused_before_any_work(study: StudyFolder) -> None:
    write(study)
    run = StudyFolder(root=study.root, environment=os.environ | {"CUDA_VISIBLE_DEVICES": "0,1"})
    done = run.bench("submit", "-c", "config/scenarios/try.yaml", "--gpus", "0,1", "--parallel", "2", code=2)
    assert "no deployment asks for one" in done.stderr
    assert "resources: {gpus: 1}" in done.stderr
    assert not list(Path(study.results).glob("*/load.json"))
