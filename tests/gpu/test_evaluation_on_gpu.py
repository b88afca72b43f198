"""Evaluations on a GPU: both kernels, memory that is full, and stubs that share one device.

Skipped without a GPU; not run on the machines this was written on. The environment `evaluation-cuda` is made on first
use: torch with CUDA is several gigabytes.
"""

import json
from pathlib import Path

import pynvml
import pytest
from service_environment import ask, environment

from seamark_evaluate.evaluation import AdapterConfig, BenchmarkConfig, BenchmarkExecutor

pytestmark = [pytest.mark.services, pytest.mark.slow]

CLOSE = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}
"""Greatest difference of outputs of size 1 by type: a few units of its last place."""


@pytest.fixture(scope="module")
def place() -> Path:
    try:
        pynvml.nvmlInit()
        pynvml.nvmlDeviceGetHandleByIndex(0)
    except pynvml.NVMLError as error:
        pytest.skip(f"no GPU that NVML can read: {error}")
    return environment("evaluation-cuda")


def test_gathered_and_masked_give_the_same_and_all_keys_give_dense_attention(place: Path) -> None:
    for dtype, differences in ask(place, "inside_gpu", "kernels").items():
        assert max(differences) <= CLOSE[dtype], dtype


@pytest.mark.covers("B12")
def test_full_memory_has_its_category_and_smaller_chunks_give_the_same_logits(place: Path) -> None:
    seen = ask(place, "inside_gpu", "full_memory")
    assert seen["category"] == "gpu_out_of_memory"
    assert seen["halvings"] >= 1
    assert seen["apart"] < 1e-3


@pytest.mark.covers("B1", "B2", "B6", "B8")
def test_stubs_share_a_gpu_are_computed_on_it_and_its_memory_is_given_back(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    before = pynvml.nvmlDeviceGetMemoryInfo(handle).used
    results = BenchmarkExecutor([0], 2, "out").run_benchmark_matrix(
        ["known_reader", "random"],
        [("dense", None), ("streaming", "streaming")],
        [BenchmarkConfig(benchmark_name="needles"), BenchmarkConfig(benchmark_name="mock_benchmark")],
        AdapterConfig(),
        {"max_new_tokens": 4},
        {"max_requests": 10},
    )
    assert not results.failed_executions, results.failed_executions
    assert len(results.individual_results) == 8
    records = [json.loads(path.read_text()) for path in Path("out/.seamark/results/matrix").glob("*/load.json")]
    assert {record["device"]["id"] for record in records} == {"0"}
    assert pynvml.nvmlDeviceGetMemoryInfo(handle).used <= before + 2**28
