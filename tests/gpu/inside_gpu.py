"""What test_evaluation_on_gpu.py asks in the environment `evaluation-cuda`. Every answer is JSON."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from seamark_evaluate.attention.attend import attend, dense
from seamark_evaluate.attention.known_reader import write_random_model
from seamark_evaluate.attention.method import read_method
from seamark_evaluate.server.arguments import read_arguments
from seamark_evaluate.server.errors import category_of
from seamark_evaluate.server.key_value_cache import KeyValueCache
from seamark_evaluate.server.model import load
from seamark_evaluate.server.prefill import Chunks

HEADS, GROUPS, SIZE, KEYS = 32, 8, 128, 8000
MASKERS = [{"masker": "sink", "fraction": 0.025}, {"masker": "local", "fraction": 0.025}]


def kernels() -> Any:
    """Give, by type, how far `gathered` is from `masked`, and `masked` with all keys from dense attention."""
    method = read_method({"name": "here", "maskers": MASKERS}, "here")
    whole = read_method({"name": "all", "maskers": [{"masker": "local", "keys": KEYS}]}, "here")
    apart = {}
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        generator = torch.Generator(device="cuda").manual_seed(1)
        q = torch.randn(HEADS, 1, SIZE, generator=generator, device="cuda").to(dtype)
        k, v = (torch.randn(GROUPS, KEYS, SIZE, generator=generator, device="cuda").to(dtype) for _ in range(2))
        options: Any = {"scale": SIZE**-0.5, "layer": 0}
        both = [attend(q, k, v, method=method, kernel=each, **options).output for each in ("gathered", "masked")]
        full = attend(q, k, v, method=whole, kernel="gathered", **options).output
        apart[str(dtype).removeprefix("torch.")] = [
            float((both[0] - both[1]).abs().max()),
            float((full - dense(q, k, v, options["scale"])).abs().max()),
        ]
    return apart


def full_memory() -> Any:
    """Give the category of an allocation that cannot be, and how far the logits of a prompt whose chunk had to be
    halved for real are from those of one that fitted."""
    try:
        torch.empty(2**50, device="cuda")
        category = "none"
    except Exception as error:
        category = category_of(error)
    with TemporaryDirectory() as name:
        write_random_model(Path(name), seed=1, keys=128, max_length=16_384)
        model = load(read_arguments(["--model", name, "--port", "0", "--device", "cuda", "--dtype", "float32"]))
    ids = [20 + k % 100 for k in range(12_000)]

    def logits(chunks: Chunks) -> torch.Tensor:
        cache = KeyValueCache(model.layers)
        return chunks.compute(ids, cache, lambda part: model.logits(part, cache, None)).float().cpu()

    small = logits(Chunks(tokens=64))
    torch.cuda.empty_cache()
    whole = Chunks(tokens=len(ids))
    free, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction(min(1.0, (total - free + 2**29) / total))
    return {
        "category": category,
        "apart": float((logits(whole) - small).abs().max()),
        "halvings": whole.halvings,
    }
