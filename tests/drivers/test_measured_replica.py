"""A replica fitted to three concurrencies of vLLM on the CPU, held against two others. `-s` shows the errors."""

from pathlib import Path

import pytest
from measured_replica import FIGURES, HELD_OUT, held_against, kv_tokens_of, sweep, table

WORKLOAD = {
    "service": "vllm",
    "model": "tiny",
    "max_model_len": 512,
    "max_num_seqs": 32,
    "kv_cache_bytes": 1 << 27,
    "enforce_eager": True,
    "enable_prefix_caching": False,
    "prompt_len": 96,
    "gen_tokens": 24,
    "duration_s": 6,
    "warmup_s": 1,
}


@pytest.mark.covers("C14")
@pytest.mark.services
@pytest.mark.serial
@pytest.mark.sweep
def test_a_replica_fitted_to_vllm_predicts_concurrencies_that_it_never_saw(tmp_path: Path) -> None:
    sweep(tmp_path, WORKLOAD)
    rows, scores = held_against(tmp_path)
    print(table(rows))
    assert {(row.concurrency, row.figure) for row in rows} == {(each, name) for each in HELD_OUT for name in FIGURES}
    assert all(abs(row.error) < 1 for row in rows), "off by more than the figure itself: not the server's model"
    assert {each.place for each in scores} == {"inside", "beyond"}
    [tokens] = kv_tokens_of(tmp_path)
    assert tokens is not None
    assert tokens > 0
