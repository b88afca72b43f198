"""Tokens that a server of a language model counts at its start are kept in deployment.json."""

from pathlib import Path

import pytest

from seamark.config.read import read_services
from seamark.model.results.deployment_record import DeploymentRecord
from seamark.services.supervisor.deployment import START_UP_BYTES, teardown
from seamark.storage.paths import DeploymentFolder, read

SERVICES = read_services(Path(__file__).parents[2] / "config" / "services")
LINE = (
    "(EngineCore pid=9225) INFO 11-23 14:12:21 [kv_cache_utils.py:2327] GPU KV cache size: {} tokens, Maximum"
    " concurrency for 512 tokens per request: 512.00x\n"
)
"""A line of vLLM 0.32."""


def kept(root: Path, log: str | None, tokens_line: str | None) -> int | None:
    """Return the tokens in the record of a server with this log."""
    folder = DeploymentFolder(root=root)
    if log is not None:
        folder.server_log.write_text(log, encoding="utf-8")
    written = teardown(folder, [], tokens_line)
    assert read(folder.record, DeploymentRecord) == written
    return written.kv_tokens


@pytest.mark.covers("D8")
@pytest.mark.parametrize("service", ["vllm", "vllm_ray"])
def test_the_tokens_that_vllm_counts_are_in_the_record_of_its_deployment(tmp_path: Path, service: str) -> None:
    declared = SERVICES[service].gpu_memory
    assert declared is not None
    log = "INFO Loading weights took 0.11 seconds\n" + LINE.format("262,144") + "INFO Started server process\n"
    assert kept(tmp_path, log, declared.tokens_line) == 262_144
    assert kept(tmp_path, log + LINE.format("98,304"), declared.tokens_line) == 98_304


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
    assert kept(tmp_path, log, SERVICES["vllm"].gpu_memory.tokens_line) is None


def test_without_a_declared_line_nothing_is_looked_for(tmp_path: Path) -> None:
    assert kept(tmp_path, LINE.format("16"), None) is None
