"""Models that run out of memory, hang or die: each stub has the category of its failure, the others their results.

The server is tests/support/scripted_model.py, as nothing here has a device whose memory could be full.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from study_folder import BENCH

from seamark_evaluate.evaluation import AdapterConfig, BenchmarkConfig, BenchmarkExecutor, ExecutionResults

pytestmark = pytest.mark.e2e

MOCK = BenchmarkConfig(benchmark_name="mock_benchmark")

SERVER = Path(__file__).parents[1] / "support" / "scripted_model.py"
RECIPE = f"""\
extends: known.yaml
name: on_demand
component: evaluation
load: finite
limit_s: 2
timeout_s: 3
typical_load_s: 1
driver: seamark_evaluate.drivers.questions:Questions
judge: seamark_evaluate.drivers.questions:judge
qualities:
  score: {{range: [0, 1], help: Score of an answer.}}
failures:
  gpu_out_of_memory: {{help: Too little memory., remedy: Put fewer servers on a device.}}
  model_not_found: {{help: No such model., remedy: Correct the name.}}
server:
  command: ["{sys.executable}", "{SERVER}", "{{host}}", "{{ports[main]}}", "{{settings[model]}}",
            "{{settings[flag]}}"]
settings:
  model: {{type: str, role: deployment, required: true, help: Name of the model.}}
  flag: {{type: str, role: deployment, default: none, help: File that a model waits for.}}
  task: {{type: structure, role: workload, required: true, help: Task.}}
  max_requests: {{type: int, role: workload, default: null, help: Number of questions.}}
  max_new_tokens: {{type: int, role: workload, default: null, help: Longest answer.}}
"""


@pytest.fixture(autouse=True)
def at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seamark.planning.study import SHIPPED

    shutil.copytree(SHIPPED / "config/services", tmp_path / "config/services")
    (tmp_path / "config/services/on_demand.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEAMARK_RUNTIME_DIR", str(tmp_path / "locks"))


def run(
    models: list[str], at_once: int = 2, tasks: Sequence[BenchmarkConfig] = (MOCK,), **settings: Any
) -> ExecutionResults:
    executor = BenchmarkExecutor(sorted(os.sched_getaffinity(0))[:2], at_once, "out", device_kind="cpu")
    adapter = AdapterConfig(adapter_name="on_demand", model_kwargs=settings)
    asked = {"generation_kwargs": {"max_new_tokens": 4}, "request_kwargs": {"max_requests": 5}}
    return executor.run_benchmark_matrix(models, [("dense", None)], tasks, adapter, **asked)


@pytest.mark.sweep
@pytest.mark.covers("B2", "B11", "B12")
def test_of_twelve_stubs_one_fails_with_its_category_and_eleven_succeed() -> None:
    tasks = [MOCK, BenchmarkConfig(benchmark_name="ruler", subsets=["vt", "fwe"])]
    results = run(["picky", "good", "better", "best"], at_once=4, tasks=tasks)
    assert len(results.individual_results) == results.execution_summary["completed_stubs"] == 11
    [failed] = results.failed_executions
    assert (failed.stub.title, failed.error_type) == ("picky/dense/ruler_vt", "gpu_out_of_memory")
    [summary] = Path("out").glob("execution_*/execution_summary.json")
    assert [each["stub"] for each in json.loads(summary.read_text())["failures"]] == ["picky/dense/ruler_vt"]
    again = subprocess.run(
        [*BENCH, "submit", "-c", "config/scenarios/matrix.yaml"], cwd="out/.seamark", check=False, capture_output=True
    )
    assert again.returncode == 1, "one stub has failed"


@pytest.mark.sweep
@pytest.mark.covers("B2", "B12")
def test_each_kind_of_failure_has_its_category_and_leaves_the_others_alone() -> None:
    results = run(["oom", "good", "half", "dies", "hangs"])
    assert [each.stub.model_name for each in results.individual_results] == ["good"]
    said = {each.stub.model_name: (each.error_type, each.error_message) for each in results.failed_executions}
    assert {model: error for model, (error, _) in said.items()} == {
        "oom": "gpu_out_of_memory",
        "half": "gpu_out_of_memory",
        "dies": "server_died",
        "hangs": "timeout",
    }
    metrics = [json.loads(path.read_text()) for path in Path("out/.seamark/results/matrix").glob("*/metrics.json")]
    [full] = [each for each in metrics if each["config"]["model"] == "oom"]
    assert full["category"] == "gpu_out_of_memory"
    assert "Put fewer servers on a device." in str(full["reasons"])
    [some] = [each for each in metrics if each["config"]["model"] == "half"]
    assert "2 of 5 items have no answer (2 gpu_out_of_memory)" in str(some["reasons"])
    assert "none of 5 requests succeeded" in said["oom"][1]
    assert "of 5 questions have no scored answer" in said["half"][1]


@pytest.mark.sweep
@pytest.mark.covers("B2", "B12")
def test_three_models_that_are_not_there_do_not_stop_a_fourth() -> None:
    results = run(["absent/d", "absent/e", "absent/f", "good"], at_once=1)
    plan = json.loads(Path("out/.seamark/results/matrix/plan.json").read_text())
    assert plan["deployments"][-1]["settings"]["model"] == "good", "the last one to be tried"
    assert [each.stub.model_name for each in results.individual_results] == ["good"]
    assert {each.error_type for each in results.failed_executions} == {"model_not_found"}
    assert len(results.failed_executions) == 3


@pytest.mark.sweep
@pytest.mark.covers("B9", "B12")
def test_a_stub_that_failed_is_evaluated_again_by_the_next_execution(tmp_path: Path) -> None:
    flag = tmp_path / "memory"
    first = run(["until", "good"], at_once=1, flag=str(flag))
    assert [each.error_type for each in first.failed_executions] == ["gpu_out_of_memory"]
    flag.touch()
    second = run(["until", "good"], at_once=1, flag=str(flag))
    assert not second.failed_executions
    records = [json.loads(path.read_text()) for path in Path("out/.seamark/results/matrix").glob("*/load.json")]
    assert len({record["device"]["id"] for record in records}) == 1, "one stub at a time, on the first device"
    assert second.execution_summary["skipped_stubs"] == second.execution_summary["completed_stubs"] == 1
