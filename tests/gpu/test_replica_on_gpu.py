"""vLLM on a GPU: memory computed before a start against what the server counts, and a replica fitted to it.

Skipped without a GPU and without a `vllm` command with a build for it; not run on the machines this was written on.
The model is an unpacked folder in SEAMARK_GPU_MODEL: weights do not matter, so any small one will do.
"""

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pynvml
import pytest
from measured_replica import held_against, sweep, table

from seamark.model.service import GpuMemory
from seamark.services.supervisor.deployment import counted_kv_tokens
from seamark.storage.paths import DeploymentFolder
from seamark_simulate.config.model_folder import read_model_folder
from seamark_simulate.simulation.gpu_memory import Layout, ServerMemory, estimate_memory

UTILISATION, LONGEST = 0.5, 2048
OFF_BY = 0.1
"""Relative error of the tokens that fit: the constants of activations and libraries are not those of every GPU."""
COUNTED_BY = GpuMemory(
    model="model",
    max_model_len="max_model_len",
    gpu_memory_utilization="gpu_memory_utilization",
    tokens_line=r"KV cache size: ([\d,]+) tokens",
)


@dataclass(frozen=True, kw_only=True)
class Started:
    """A server that answers, and its folder with server.log."""

    model: Path
    port: int
    folder: DeploymentFolder


@pytest.fixture(scope="module")
def gpu_gb() -> float:
    try:
        pynvml.nvmlInit()
        return float(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total) / 2**30
    except pynvml.NVMLError as error:
        pytest.skip(f"no GPU that NVML can read: {error}")


@pytest.fixture(scope="module")
def started(gpu_gb: float, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    command, model = shutil.which("vllm"), os.environ.get("SEAMARK_GPU_MODEL")
    if command is None or model is None:
        pytest.skip("no command vllm, or no folder of a model in SEAMARK_GPU_MODEL")
    folder = DeploymentFolder(root=tmp_path_factory.mktemp("vllm"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [command, "serve", model, "--served-model-name=gpu", f"--port={port}", f"--max-model-len={LONGEST}"]
    words += [f"--gpu-memory-utilization={UTILISATION}", "--no-enable-prefix-caching"]
    with folder.server_log.open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_for_health(port, process, folder.server_log)
            yield Started(model=Path(model), port=port, folder=folder)
        finally:
            process.terminate()
            process.wait(60)


def wait_for_health(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until the server answers. Fails with the end of its log when it ends, or after 15 minutes."""
    limit_s = time.monotonic() + 900
    while time.monotonic() < limit_s and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(1)
        else:
            return
    pytest.fail(log.read_text(errors="replace")[-3000:])


@pytest.mark.covers("D8")
def test_the_tokens_computed_before_a_start_are_those_that_the_server_counts(started: Started, gpu_gb: float) -> None:
    model = read_model_folder(started.model)
    memory = ServerMemory(
        layout=Layout(), gpu_gb=gpu_gb, gpu_memory_utilization=UTILISATION, max_model_len=LONGEST, dtype="auto"
    )
    counted = counted_kv_tokens(started.folder, COUNTED_BY)
    assert counted is not None
    assert estimate_memory(model, memory).kv_tokens == pytest.approx(counted, rel=OFF_BY)


@pytest.mark.covers("C14")
def test_a_replica_fitted_on_the_gpu_predicts_concurrencies_that_it_never_saw(
    started: Started, tmp_path: Path
) -> None:
    site = tmp_path / "config" / "sites" / "gpu.yaml"
    site.parent.mkdir(parents=True)
    address = f"127.0.0.1:{started.port}"
    text = f"name: gpu\nsummary: this machine's GPU\nprofile: default\nruntime: external\naddress: {address}\n"
    site.write_text(text, encoding="utf-8")
    workload = {
        "service": "vllm",
        "model": "gpu",
        "prompt_len": 256,
        "gen_tokens": 64,
        "duration_s": 10,
        "warmup_s": 2,
    }
    sweep(tmp_path, workload, "--site", "gpu")
    rows, _ = held_against(tmp_path)
    print(table(rows))
    assert all(abs(row.error) < 1 for row in rows)
