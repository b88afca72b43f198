"""Matrices as System B names them: stubs, folders, and what the arguments of an adapter stand for."""

import json
from pathlib import Path
from typing import Literal

import pytest
from samples import a_load, a_view

from seamark.config.read import Recipes
from seamark.errors import UserError
from seamark.model.results.answers import AnswersRecord
from seamark.planning.study import SHIPPED, Study
from seamark.storage.paths import TrialFolder
from seamark.trials.progress import State
from seamark_evaluate.evaluation import AdapterConfig, BenchmarkConfig, BenchmarkExecutor, ExecutionProgress
from seamark_evaluate.evaluation.evaluated_trial import EvaluatedTrial
from seamark_evaluate.evaluation.executor import _failure, running_on
from seamark_evaluate.evaluation.matrix import path_name, settings_of_generation, stubs_of
from seamark_evaluate.evaluation.matrix_study import _level, adapter_settings, service_of, study_of
from seamark_evaluate.evaluation.result_tree import new_folder

SERVICES = Recipes(SHIPPED / "config/services")


@pytest.mark.covers("B10")
def test_forbidden_letters_of_a_name_become_one_underscore_each_and_hyphens_stay() -> None:
    assert path_name("meta-llama/Llama-3.1-8B-Instruct") == "meta-llama_Llama-3.1-8B-Instruct"
    assert path_name('a/b\\c:d*e?f"g<h>i|j') == "a_b_c_d_e_f_g_h_i_j"


@pytest.mark.covers("B1", "B5")
def test_every_combination_is_a_stub_with_a_folder_of_its_own() -> None:
    adapter, kwargs = AdapterConfig(), {"max_new_tokens": 8}
    tasks = [("longbench", "qasper"), ("mock_benchmark", None)]
    stubs = stubs_of(["a/b", "c"], [("dense", None), ("s", "streaming")], tasks, adapter, kwargs, "out")
    assert len(stubs) == len({stub.result_dir for stub in stubs}) == 8
    assert stubs[0].result_dir == str(Path("out/a_b/dense/longbench_qasper"))
    assert stubs[0].title == "a/b/dense/longbench_qasper"
    assert stubs[1].result_dir == str(Path("out/a_b/dense/mock_benchmark")), "no suffix without a subset"
    kwargs["max_new_tokens"] = 1
    assert stubs[0].generation_kwargs == {"max_new_tokens": 8}


@pytest.mark.covers("B14")
def test_all_names_that_would_share_a_folder_are_named_at_once() -> None:
    with pytest.raises(UserError) as error:
        stubs_of(["a/b", "a:b"], [("x", None), ("X", None)], [("m", None), ("m", None)], AdapterConfig(), {}, "out")
    assert [line.partition(":")[0] for line in str(error.value).splitlines()] == [
        "model_names",
        "sparse_attention_configs",
        "benchmark_configs",
    ]


def test_an_empty_or_skipped_matrix_is_complete() -> None:
    assert ExecutionProgress(total_stubs=0).completion_percentage == 100
    assert ExecutionProgress(total_stubs=12, skipped_stubs=12).completion_percentage == 100
    assert ExecutionProgress(total_stubs=8, completed_stubs=1, failed_stubs=1).completion_percentage == 25


@pytest.mark.covers("B16")
def test_the_lines_of_the_source_make_configurations_without_names_of_fields() -> None:
    assert BenchmarkConfig("longbench", ["narrativeqa"]).subsets == ["narrativeqa"]
    adapter = AdapterConfig("huggingface", {"torch_dtype": "bfloat16"}, {"padding_side": "left"})
    assert (adapter.adapter_name, adapter.tokenizer_kwargs) == ("huggingface", {"padding_side": "left"})


@pytest.mark.covers("B16")
def test_options_of_from_pretrained_are_settings_or_go_to_the_model_and_the_tokenizer() -> None:
    adapter = AdapterConfig(
        model_kwargs={"torch_dtype": "bfloat16", "trust_remote_code": False},
        tokenizer_kwargs={"padding_side": "left"},
    )
    service = service_of(adapter, SERVICES, "cpu")
    assert service.name == "attention"
    settings = adapter_settings(adapter, service)
    assert settings["dtype"] == "bfloat16"
    assert json.loads(str(settings["model_options"])) == {"trust_remote_code": False}
    assert json.loads(str(settings["tokenizer_options"])) == {"padding_side": "left"}


@pytest.mark.covers("B8")
@pytest.mark.parametrize(("kind", "service", "gpus"), [("gpu", "attention_cuda", 1), ("cpu", "attention", 0)])
def test_on_gpus_every_server_of_a_matrix_has_one_and_a_torch_for_cuda(
    tmp_path: Path, kind: Literal["gpu", "cpu"], service: str, gpus: int
) -> None:
    adapter, task = AdapterConfig(), [BenchmarkConfig(benchmark_name="mock_benchmark")]
    executor = BenchmarkExecutor([0], 1, str(tmp_path), device_kind=kind)
    stubs = executor.plan(["a/b", "c"], [("d", None)], task, adapter)
    lanes = {f"{kind}s": "0", "per_device": 2, "parallel": 2}
    study = study_of(stubs, {}, tmp_path, lanes, kind)
    assert [(each.service, each.gpus) for each in study.plan.deployments] == [(service, gpus)] * 2
    study.require_environments()
    assert SERVICES["attention_cuda"].environment == "evaluation-cuda"
    assert "\ntorch==2.13.0 \\" in (SHIPPED / "envs/evaluation-cuda.lock").read_text(), "no build for the CPU"


def test_options_that_a_service_cannot_pass_on_are_refused_with_those_that_it_has() -> None:
    adapter = AdapterConfig(adapter_name="vllm_questions", tokenizer_kwargs={"padding_side": "left"})
    with pytest.raises(UserError, match=r"vllm_questions has no 'padding_side'. It has: dtype, "):
        adapter_settings(adapter, service_of(adapter, SERVICES, "cpu"))


@pytest.mark.covers("B14")
def test_an_option_that_the_server_sets_itself_is_refused_before_it_starts() -> None:
    adapter = AdapterConfig(model_kwargs={"attn_implementation": "sdpa"})
    with pytest.raises(UserError, match="'attn_implementation' is set by the server itself"):
        adapter_settings(adapter, service_of(adapter, SERVICES, "cpu"))


def test_a_preset_of_nested_aliases_is_refused_before_it_fills_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config/methods").mkdir(parents=True)
    names = [f"x{number}: &x{number} [{', '.join([f'*x{number - 1}'] * 9)}]" for number in range(1, 9)]
    Path("config/methods/laughs.yaml").write_text("\n".join(["x0: &x0 [1]", *names]))
    with pytest.raises(UserError, match=r"laughs.yaml:2: nested aliases: '\*x0'"):
        _level("m", "laughs")


def test_executions_of_the_same_second_have_folders_of_their_own(tmp_path: Path) -> None:
    made = [new_folder(tmp_path / "out/execution_20260101_000000").name for _ in range(3)]
    assert made == [f"execution_20260101_000000{suffix}" for suffix in ("", "_2", "_3")]


@pytest.mark.covers("B15")
def test_progress_names_the_running_stubs_of_all_lanes_of_a_device() -> None:
    titles = {"t1": "a/dense/x", "t2": "a/dense/y", "t3": "b/dense/x", "t4": "b/dense/y"}
    stages = {"t1": ("a", "ok"), "t2": ("a", "running"), "t3": ("b", "running"), "t4": ("b", "planned")}
    states = [State(trial=trial, deployment=of, state=state) for trial, (of, state) in stages.items()]
    assert running_on([(0, "a"), (0, "b"), (1, "c")], states, titles) == {0: "a/dense/y, b/dense/x", 1: "server c"}


@pytest.mark.parametrize(
    ("kwargs", "settings"),
    [
        ({}, {}),
        ({"max_new_tokens": 4, "do_sample": False}, {"max_new_tokens": 4, "temperature": 0.0}),
        ({"do_sample": True, "temperature": 0.6, "seed": 3}, {"temperature": 0.6, "sampling_seed": 3}),
        ({"do_sample": True}, {"temperature": 1.0}),
    ],
)
def test_generation_options_are_settings(kwargs: dict[str, object], settings: dict[str, object]) -> None:
    assert settings_of_generation(kwargs) == settings


@pytest.mark.covers("B12")
def test_a_failed_stub_has_its_own_category_its_reason_once_and_the_time_that_it_took(tmp_path: Path) -> None:
    config = AdapterConfig()
    [stub] = stubs_of(["m"], [("dense", None)], [("mock_benchmark", None)], config, {}, "out")
    [trial, *_] = Study.at(SHIPPED, scenario="config/scenarios/sparse_attention_local.yaml").plan.trials

    def failure(answers: AnswersRecord | None = None, **load: object) -> tuple[str, str, float]:
        times = {"started_at": "2026-11-28T10:00:00.000+00:00", "finished_at": "2026-11-28T10:00:02.500+00:00"}
        record = a_load(duration_s=86400.0, items=2, **times, **load)
        seen = EvaluatedTrial(trial=trial, folder=TrialFolder(root=tmp_path))
        failed = a_view(trial, view=seen, load=record, answers=answers)
        found = _failure(stub, failed)
        return found.error_type, found.error_message, found.execution_time

    said = "--model x: there is no such folder"
    start = {"status": "failed", "category": "model_not_found", "reason": said}
    assert failure(**start, log_tail=[f"model_not_found: {said}"]) == ("model_not_found", said, 2.5)
    assert failure(**start, log_tail=["Killed"])[1] == f"{said} Killed"
    some = AnswersRecord(status="ok", answers=1, answered=1)
    assert failure(some, failures={"timeout": 1})[0] == "timeout"
    assert failure(some, failures={"reset": 1})[0] == "unanswered"


@pytest.mark.covers("B14")
def test_a_matrix_that_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    mine = tmp_path / "results"
    executor = BenchmarkExecutor([0], 1, str(mine), device_kind="cpu")
    matrix = (["known_reader"], [("dense", None)], [BenchmarkConfig(benchmark_name="mock_benchmark")])
    with pytest.raises(UserError, match="threads"):
        executor.run_benchmark_matrix(*matrix, AdapterConfig(model_kwargs={"threads": "many"}))
    assert not mine.exists()
    mine.mkdir()
    with pytest.raises(UserError, match="threads"):
        executor.run_benchmark_matrix(*matrix, AdapterConfig(model_kwargs={"threads": "many"}))
    assert list(tmp_path.iterdir()) == [mine]
    assert not list(mine.iterdir())
