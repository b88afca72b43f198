"""Matrices from Python on the reference server: results are skipped, a failure stays alone, lanes share devices."""

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from processes import until
from study_folder import StudyFolder

from seamark.errors import UserError
from seamark_evaluate.evaluation import (
    AdapterConfig,
    BenchmarkConfig,
    BenchmarkExecutor,
    ExecutionProgress,
    ExecutionResults,
)

pytestmark = pytest.mark.e2e

RECIPE = """\
extends: known.yaml
name: scripted
component: evaluation
load: finite
limit_s: 120
typical_load_s: 1
driver: seamark_evaluate.drivers.questions:Questions
judge: seamark_evaluate.drivers.questions:judge
qualities:
  score: {range: [0, 1], help: Score of an answer.}
server:
  command:
    - sh
    - -c
    - 'case "$1" in *" 13.0"|*" 13") echo "no such weights" >&2; exit 3;; esac; shift; exec "$@"'
    - sh
    - "{settings[model]} {settings[ttft_ms]}"
    - "{python}"
    - "{package}/platform/isolated_main.py"
    - seamark.testservers.reference
    - --host={host}
    - --port={ports[main]}
    - --ttft-ms={settings[ttft_ms]}
settings:
  model: {type: str, role: deployment, required: true, help: Name of the model.}
  task: {type: structure, role: workload, required: true, help: Task.}
  max_requests: {type: int, role: workload, default: null, help: Number of questions.}
  length_words: {type: int, role: workload, default: null, help: Length of contexts.}
  max_new_tokens: {type: int, role: workload, default: null, help: Longest answer.}
"""
ADAPTER = AdapterConfig(adapter_name="scripted", model_kwargs={"ttft_ms": 1})
TASKS = [
    BenchmarkConfig(benchmark_name="mock_benchmark"),
    BenchmarkConfig(benchmark_name="ruler", subsets=["vt", "fwe"]),
]


@pytest.fixture(scope="module")
def working_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe of its own beside the shipped ones."""
    from seamark.planning.study import SHIPPED

    root = tmp_path_factory.mktemp("matrix")
    (root / "config").mkdir()
    shutil.copytree(SHIPPED / "config/services", root / "config/services")
    (root / "config/services/scripted.yaml").write_text(RECIPE)
    (root / "locks").mkdir()
    return root


@pytest.fixture(autouse=True)
def at_work(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(working_folder)
    monkeypatch.setenv("SEAMARK_RUNTIME_DIR", str(working_folder / "locks"))


def run(base: str, models: list[str], at_once: int = 4, **more: Any) -> ExecutionResults:
    devices = sorted(os.sched_getaffinity(0))[:2]
    executor = BenchmarkExecutor(devices, at_once, base, device_kind="cpu", **more)
    return executor.run_benchmark_matrix(
        models, [("dense", None)], TASKS, ADAPTER, {"max_new_tokens": 4}, {"max_requests": 2}
    )


def loads(base: str) -> Mapping[str, int]:
    """Return when each trial was measured, by its folder."""
    found = Path(base, ".seamark/results/matrix").glob("*/load.json")
    return {path.parent.name: path.stat().st_mtime_ns for path in found}


@pytest.mark.sweep
@pytest.mark.covers("B1", "B4", "B5", "B6", "B7", "B9", "B10", "B11", "B12", "B15")
def test_twelve_stubs_succeed_are_skipped_and_only_what_was_removed_is_evaluated_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: list[ExecutionProgress] = []
    whole: list[int] = []

    def look(now: ExecutionProgress) -> None:
        seen.append(now)
        whole.append(len(list(Path("out").glob("*/*/*/metrics.json"))))

    models = ["org/m-1", "m2", "m3", "m4"]
    first = run("out", models, on_progress=look)
    assert any(0 < number < 12 for number in whole), "the tree appears stub by stub"
    assert not first.failed_executions, first.failed_executions
    assert first.execution_summary["completed_stubs"] == len(first.individual_results) == 12
    assert sorted(path.name for path in Path("out").iterdir() if not path.name.startswith((".", "execution_"))) == [
        "m2",
        "m3",
        "m4",
        "org_m-1",
    ]
    assert {path.name for path in Path("out/org_m-1/dense").iterdir()} == {"mock_benchmark", "ruler_vt", "ruler_fwe"}
    assert {path.name for path in Path("out/m2/dense/ruler_vt").iterdir()} >= {
        "raw_results.csv",
        "metrics.json",
        "config.json",
    }
    [summary] = Path("out").glob("execution_*/execution_summary.json")
    assert json.loads(summary.read_text())["completed_stubs"] == 12
    assert seen[-1].total_stubs == 12
    assert any(each.current_executions for each in seen)
    records = [json.loads(path.read_text()) for path in Path("out/.seamark/results/matrix").glob("*/load.json")]
    assert len({worker["pid"] for record in records for worker in record["workers"]} - {os.getpid()}) == 12
    assert {record["device"]["id"] for record in records} == set(map(str, sorted(os.sched_getaffinity(0))[:2]))
    capsys.readouterr()

    before = loads("out")
    again = run("out", models)
    assert again.execution_summary["skipped_stubs"] == 12
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 12
    assert "Skipping org/m-1/dense/ruler_vt - results exist" in lines
    assert loads("out") == before

    shutil.rmtree("out/m3/dense/ruler_fwe")
    for name in ("metrics.json", "config.json"):
        Path("out/m4/dense/mock_benchmark", name).unlink()
    third = run("out", models)
    assert third.execution_summary["skipped_stubs"] == 10
    assert third.execution_summary["completed_stubs"] == 2
    changed = {name for name, at in loads("out").items() if before[name] != at}
    assert len(changed) == 2
    assert Path("out/m3/dense/ruler_fwe/metrics.json").exists()
    assert Path("out/m4/dense/mock_benchmark/metrics.json").exists()


@pytest.mark.sweep
@pytest.mark.covers("B9", "B11")
def test_a_folder_holds_the_configuration_that_was_asked_for_last_and_nothing_of_another_beside_a_failure() -> None:
    device, folder = min(os.sched_getaffinity(0)), Path("turns/m/dense/mock_benchmark")

    def ask(max_requests: int, ttft_ms: int = 1) -> ExecutionResults:
        adapter = AdapterConfig(adapter_name="scripted", model_kwargs={"ttft_ms": ttft_ms})
        executor = BenchmarkExecutor([device], 1, "turns", device_kind="cpu")
        asked = {"generation_kwargs": {"max_new_tokens": 4}, "request_kwargs": {"max_requests": max_requests}}
        return executor.run_benchmark_matrix(["m"], [("dense", None)], TASKS[:1], adapter, **asked)

    def held() -> tuple[int, int]:
        config, metrics = (json.loads((folder / f"{name}.json").read_text()) for name in ("config", "metrics"))
        return config["settings"]["max_requests"], metrics["questions"]

    for max_requests in (2, 3, 2):
        [result] = ask(max_requests).individual_results
        assert held() == (max_requests, result.metrics["questions"]) == (max_requests, max_requests)
    failed = ask(2, ttft_ms=13)  # the server does not start
    assert [each.error_type for each in failed.failed_executions] == ["server_never_healthy"]
    assert not folder.exists(), "it is of another configuration than the one that failed"
    again = ask(2)
    assert again.execution_summary["skipped_stubs"] == 1, "its trial was not measured again"
    assert held() == (2, 2)


MINE = """\
name: mine
summary: a question of our own
licence: none
references: []
source: {file: %s}
columns: {context: null}
template: "{question}"
scorer: own_scorer_of_matrices:score
subsets: {a: {}, b: {}}
"""
SCORER = "def score(answer, question):\n    return {'score': %g}\n"


@pytest.mark.sweep
@pytest.mark.covers("B9", "B13")
def test_a_changed_scorer_scores_the_results_that_exist_again_and_every_file_has_the_new_scores(
    working_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(working_folder / "config", tmp_path / "config")
    (tmp_path / "config/benchmarks").mkdir()
    (tmp_path / "config/benchmarks/mine.yaml").write_text(MINE % (tmp_path / "rows.jsonl"))
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "Capital of Chile?", "references": ["Santiago"]}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))

    def scores(*subsets: str) -> set[float]:
        """Return all scores that were returned and written."""
        executor = BenchmarkExecutor([min(os.sched_getaffinity(0))], 1, "out", device_kind="cpu")
        configs = [BenchmarkConfig(benchmark_name="mine", subsets=list(subsets))]
        done = executor.run_benchmark_matrix(["m"], [("dense", None)], configs, ADAPTER, {"max_new_tokens": 4})
        assert len(done.individual_results) == len(subsets), done.failed_executions
        returned = {each.metrics["scores"]["score"]["mean"] for each in done.individual_results}
        folders = [Path(each.stub.result_dir) for each in done.individual_results]
        written = {json.loads((each / "metrics.json").read_text())["scores"]["score"]["mean"] for each in folders}
        rows = [row for each in folders for row in csv.DictReader((each / "raw_results.csv").open())]
        return returned | written | {float(row["score"]) for row in rows}

    for value, subsets in ((0.25, "a"), (0.5, "a"), (0.75, "ab")):
        Path("own_scorer_of_matrices.py").write_text(SCORER % value)
        before = loads("out")
        assert scores(*subsets) == {value}
        assert before.items() <= loads("out").items(), "nothing is asked again"


@pytest.mark.sweep
@pytest.mark.covers("B1", "B7")
def test_replicas_of_one_model_share_its_tasks_on_all_devices_and_one_lane_measures_nothing_again() -> None:
    done = run("alone", ["m1"], at_once=2)
    assert done.execution_summary["completed_stubs"] == 3, done.failed_executions
    root = Path("alone/.seamark/results/matrix")
    used = {json.loads(path.read_text())["device"]["id"] for path in root.glob("*/load.json")}
    assert used == set(map(str, sorted(os.sched_getaffinity(0))[:2]))
    assert {path.name.rpartition(".")[2] for path in (root / "deployments").iterdir()} == {"replica1", "replica2"}
    before = loads("alone")
    again = run("alone", ["m1", "m2"], at_once=1)
    assert not again.failed_executions
    assert {name: at for name, at in loads("alone").items() if name in before} == before


SCRIPT = """
from seamark_evaluate.evaluation import AdapterConfig, BenchmarkConfig, BenchmarkExecutor

adapter = AdapterConfig(adapter_name="scripted", model_kwargs={"ttft_ms": 400})
task = BenchmarkConfig(benchmark_name="ruler", subsets=["vt"])
ASKED = {"max_requests": 40}
executor = BenchmarkExecutor([%d], 1, "killed", device_kind="cpu")
results = executor.run_benchmark_matrix(["m"], [("dense", None)], [task], adapter, {"max_new_tokens": 4}, ASKED)
print(len(results.individual_results), "whole")
"""


@pytest.mark.sweep
@pytest.mark.covers("B2", "B9")
def test_after_kill_9_of_python_its_run_ends_and_the_next_execution_asks_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seamark_evaluate.evaluation.executor.ENDS_S", 0.1)
    script = [sys.executable, "-c", SCRIPT % min(os.sched_getaffinity(0))]
    results = Path("killed/.seamark/results/matrix")

    def replies() -> int:
        return sum(path.stat().st_size for path in results.glob("*/.sessions/*/worker-*.replies"))

    with subprocess.Popen(script) as python:
        until(lambda: replies() > 2_000, within_s=60)
        scenario = Path("killed/.seamark/config/scenarios/matrix.yaml")
        before = scenario.read_bytes()
        with pytest.raises(UserError, match="another execution is at work here"):
            BenchmarkExecutor([0], 1, "killed", device_kind="cpu").run_benchmark_matrix(
                ["other"], [("dense", None)], TASKS, ADAPTER
            )
        assert scenario.read_bytes() == before
        python.kill()
    again = subprocess.run(script, capture_output=True, text=True, check=False, timeout=120)
    assert again.stdout.splitlines()[-1] == "1 whole", again.stdout + again.stderr
    [load] = [json.loads(path.read_text()) for path in results.glob("*/load.json")]
    first, second = load["sessions"]
    assert first["items"] > 0
    assert first["items"] + second["items"] == 40


@pytest.mark.sweep
def test_a_task_at_two_lengths_is_exported_into_a_folder_for_each(working_folder: Path) -> None:
    both = {"component": "evaluation", "service": "scripted", "model": "m", "max_requests": 2, "max_new_tokens": 4}
    needles = {"name": "needles", "task": "needles", "length_words": [24, 48]}
    workloads = [{**both, **needles}, {**both, "name": "mock", "task": "mock_benchmark"}]
    document = {"scenario": "two", "workloads": workloads}
    Path("two.yaml").write_text(json.dumps(document))
    study = StudyFolder(root=working_folder)
    study.bench("submit", "-c", "two.yaml", code=0)
    for form, names in (
        ("tree", {"needles_length_words_24", "needles_length_words_48", "mock_benchmark"}),
        (
            "harness",
            {
                "results.json",
                "samples_mock_benchmark.jsonl",
                "samples_needles_length_words_24.jsonl",
                "samples_needles_length_words_48.jsonl",
            },
        ),
    ):
        study.ask("export", "evaluation", "-c", "two.yaml", "-o", form, "--format", form, code=0)
        assert {path.name for path in (working_folder / form).glob("m/dense/*")} == names
    config = json.loads((working_folder / "tree/m/dense/needles_length_words_48/config.json").read_text())
    assert config["settings"]["length_words"] == 48


@pytest.mark.covers("B8", "B14")
@pytest.mark.parametrize(
    ("devices", "concurrent", "said"),
    [
        ([], 1, "gpu_ids: an empty list"),
        ([0, 0], 1, "names a device twice"),
        ([-1], 1, "is no number of a device"),
        ([0], 0, "is no number of runs"),
    ],
)
def test_wrong_devices_are_refused_before_any_work(devices: list[int], concurrent: int, said: str) -> None:
    with pytest.raises(UserError, match=said):
        BenchmarkExecutor(devices, concurrent, "wrong")
    assert not Path("wrong").exists()


@pytest.mark.covers("B8")
def test_a_device_that_is_not_there_is_one_clear_line() -> None:
    executor = BenchmarkExecutor([4096], 2, "absent", device_kind="cpu")
    with pytest.raises(UserError, match="there is no CPU 4096 here"):
        executor.run_benchmark_matrix(["m"], [("dense", None)], TASKS, ADAPTER)


@pytest.mark.covers("B4", "B14")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_names": []}, "model_names: an empty list"),
        ({"model_names": ["a/b", "a:b"]}, "'a/b' and 'a:b' would share the folder 'a_b'"),
        ({"model_names": ["a", "a"]}, "'a' is listed twice"),
        ({"sparse_attention_configs": []}, "sparse_attention_configs: an empty list"),
        ({"benchmark_configs": []}, "benchmark_configs: an empty list"),
        ({"benchmark_configs": [BenchmarkConfig(benchmark_name="longbnech")]}, "Did you mean 'longbench'"),
        ({"benchmark_configs": [BenchmarkConfig(benchmark_name="ruler", subsets=["vtt"])]}, "no subset 'vtt'"),
        ({"benchmark_configs": [BenchmarkConfig(benchmark_name="ruler", subsets=[])]}, "empty list of subsets"),
        ({"adapter_config": AdapterConfig(adapter_name="hugingface")}, "Did you mean 'huggingface'"),
        ({"adapter_config": AdapterConfig(adapter_name="postgres")}, "'postgres' is no adapter"),
        ({"generation_kwargs": {"max_tokens": 4}}, "generation_kwargs: 'max_tokens' is not known"),
        ({"request_kwargs": {"max_request": 4}}, "Did you mean 'max_requests'"),
        ({"sparse_attention_configs": [("s", "streaming")]}, "has dense attention alone"),
    ],
)
def test_wrong_arguments_are_one_clear_line_before_any_work(change: Mapping[str, Any], said: str) -> None:
    arguments: dict[str, Any] = {
        "model_names": ["m"],
        "sparse_attention_configs": [("dense", None)],
        "benchmark_configs": TASKS,
        "adapter_config": ADAPTER,
    }
    with pytest.raises(UserError) as error:
        BenchmarkExecutor([0], 1, "refused", device_kind="cpu").run_benchmark_matrix(**arguments | change)
    assert said in str(error.value)
    assert not Path("refused/.seamark/results").exists()


@pytest.mark.covers("B16")
@pytest.mark.parametrize(
    ("methods", "subsets", "stubs"),
    [
        (("dense", "streaming"), ("narrativeqa", "qasper"), 12),
        (("dense", "streaming", "hash_attention", "sink_local"), ("narrativeqa", "qasper", "hotpotqa"), 32),
    ],
)
def test_the_worked_examples_plan_to_the_numbers_of_the_source(
    methods: tuple[str, ...], subsets: tuple[str, ...], stubs: int
) -> None:
    generation = {"max_new_tokens": 256}
    planned = BenchmarkExecutor([0, 1], 4).plan(
        ["microsoft/Phi-4-mini-instruct", "meta-llama/Llama-3.1-8B-Instruct"],
        [(name, None if name == "dense" else name) for name in methods],
        [
            BenchmarkConfig(benchmark_name="longbench", subsets=list(subsets)),
            BenchmarkConfig(benchmark_name="mock_benchmark"),
        ],
        AdapterConfig(model_kwargs={"torch_dtype": "bfloat16"}),
        generation,
    )
    assert len(planned) == stubs
    assert planned[0].result_dir.endswith("microsoft_Phi-4-mini-instruct/dense/longbench_narrativeqa")
    assert generation == {"max_new_tokens": 256}
