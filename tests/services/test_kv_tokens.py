"""Tokens that a server of a language model counts at its start are kept in deployment.json."""

from pathlib import Path

import pytest
from shipped import SERVICES

from seamark.model.results.deployment_record import DeploymentRecord
from seamark.model.service import GpuMemory
from seamark.services.supervisor.deployment import START_UP_BYTES, teardown
from seamark.storage.documents import read
from seamark.storage.paths import DeploymentFolder

LINE = (
    "(EngineCore pid=9225) INFO 11-23 14:12:21 [kv_cache_utils.py:2327] GPU KV cache size: {} tokens, Maximum"
    " concurrency for 512 tokens per request: 512.00x\n"
)
"""A line of vLLM 0.32."""
METRIC = (
    '1.0,service,"vllm:cache_config_info{{block_size=""16"",cache_dtype=""auto"",engine=""{}"",'
    'num_gpu_blocks=""{}""}}",1,\n'
)
"""A row of telemetry.csv with the sample that vLLM 0.32 answers."""


def kept(root: Path, log: str | None, declared: GpuMemory | None, telemetry: str | None = None) -> int | None:
    """Return the tokens in the record of a server with this log and telemetry."""
    folder = DeploymentFolder(root=root)
    for path, text in ((folder.server_log, log), (folder.telemetry, telemetry)):
        if text is not None:
            path.write_text(text, encoding="utf-8")
    written = teardown(folder, [], declared)
    assert read(folder.record, DeploymentRecord) == written
    return written.kv_tokens


@pytest.mark.covers("D8")
@pytest.mark.parametrize("service", ["vllm", "vllm_ray"])
def test_the_tokens_that_vllm_counts_are_in_the_record_of_its_deployment(tmp_path: Path, service: str) -> None:
    declared = SERVICES[service].gpu_memory
    assert declared is not None
    log = "INFO Loading weights took 0.11 seconds\n" + LINE.format("262,144") + "INFO Started server process\n"
    assert kept(tmp_path, log, declared) == 262_144
    assert kept(tmp_path, log + LINE.format("98,304"), declared) == 98_304


@pytest.mark.parametrize(
    "log",
    [
        None,
        "",
        "INFO nothing of it\n",
        LINE.format(","),
        LINE.format("9" * 40),
        " " * START_UP_BYTES + LINE.format("16"),
    ],
    ids=["no log", "empty", "no line", "no number", "no plausible number", "beyond the start"],
)
def test_a_log_without_the_count_leaves_none(tmp_path: Path, log: str | None) -> None:
    assert kept(tmp_path, log, SERVICES["vllm"].gpu_memory) is None


def test_without_a_declared_place_nothing_is_looked_for(tmp_path: Path) -> None:
    assert kept(tmp_path, LINE.format("16"), None, METRIC.format(0, 4)) is None


@pytest.mark.covers("D8")
@pytest.mark.parametrize(
    ("log", "rows", "tokens"),
    [
        (None, METRIC.format(0, 1024), 16_384),
        (None, METRIC.format(0, 1024) + METRIC.format(1, 1000), 16_000),
        (LINE.format("8,192"), METRIC.format(0, 1024), 8_192),
        (LINE.format("32,768"), METRIC.format(0, 1024), 16_384),
        (LINE.format("8,192"), METRIC.format(0, "None"), 8_192),
        (None, METRIC.format(0, "None") + "1.0,service,vllm:cache_config_info,1,\n", None),
        (None, METRIC.format(0, 0) + '1.0,service,"vllm:cache_config_info{{num_gpu', None),
    ],
    ids=["metric", "engines", "groups of layers", "metric of fewer", "not known yet", "no labels", "a torn row"],
)
def test_the_tokens_are_also_those_of_the_metric_and_the_fewest_count(
    tmp_path: Path, log: str | None, rows: str, tokens: int | None
) -> None:
    telemetry = "at_unix_s,source,name,value,unit\n1.0,host,cpu_ratio,0.5,ratio\n" + rows
    assert kept(tmp_path, log, SERVICES["vllm"].gpu_memory, telemetry) == tokens
