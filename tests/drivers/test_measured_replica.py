"""A replica fitted to three concurrencies of vLLM on the CPU, held against two others. `-s` shows the errors."""

from pathlib import Path

import pytest
from measured_replica import FIGURES, HELD_OUT, held_against, kv_tokens_of, sweep, table

from seamark.drivers.openai.models import HEAD_DIM, HEADS, HIDDEN, LAYERS
from seamark_simulate.simulation.gpu_memory import Layout, kv_token_bytes, kv_tokens
from seamark_simulate.simulation.model_architecture import architecture_of

KV_CACHE_BYTES = 1 << 27
WORKLOAD = {
    "service": "vllm",
    "model": "tiny",
    "max_model_len": 512,
    "max_num_seqs": 32,
    "kv_cache_bytes": KV_CACHE_BYTES,
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
    sizes = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS // 2}
    model = architecture_of({**sizes, "head_dim": HEAD_DIM, "hidden_size": HIDDEN})
    counted = kv_tokens(KV_CACHE_BYTES, kv_token_bytes(model, Layout(), model.compute_bytes()))
    assert kv_tokens_of(tmp_path) == {counted}, "as many as the server says"
