"""Attention in transformers' registry: dense phases go to SDPA, sparse ones to `evaluation.attend`."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from seamark_evaluate.attention.attend import attend
from seamark_evaluate.attention.method import Kernel, Method
from seamark_evaluate.server.errors import UnsupportedModelError
from seamark_evaluate.server.measurements import Measurements, Phase, SampledQuery

NAME = "seamark"
"""The name of our function as `attn_implementation` of a model."""
WORD = (1 << 64) - 1
CHANGES = ("softcap", "s_aux", "position_bias")
"""What a model may pass to its attention that `attend` has not: it is refused for sparse methods."""


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One forward pass: its phase, and the method where it is sparse (None: dense).

    `positions` are those before it. `sample_at` is the query whose output is compared with dense attention later.
    """

    phase: Phase
    measurements: Measurements
    method: Method | None
    kernel: Kernel
    seed: int
    positions: int
    longest: int
    sample_at: int | None = None


def seeded(method: Method, device: torch.device, seed: int, positions: int, layer: int) -> torch.Generator | None:
    """Return a generator that depends on a seed, that of a request and its prompt, a position and a layer alone; None
    for a method that draws nothing."""
    if not method.is_sampled:
        return None
    mixed = seed
    for part in (positions, layer):
        mixed = _mixed(mixed ^ _mixed(part + 1))
    return torch.Generator(device=device).manual_seed(mixed >> 1)


def _mixed(number: int) -> int:
    """Return 64 bits that all depend on all bits of `number` (the finalizer of SplitMix64, Steele et al. 2014): torch
    seeds a generator of the CPU with 32 of them."""
    number = (number + 0x9E3779B97F4A7C15) & WORD
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & WORD
    return number ^ (number >> 31)


def register() -> None:
    """Enter our function, with SDPA's masks, into the registries of transformers."""
    AttentionInterface.register(NAME, forward)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Return the attention of one layer, [1, queries, heads, head_dim].

    `query` is [1, heads, queries, head_dim], `key` and `value` are [1, kv_heads, positions, head_dim]; the queries
    are those of the last positions. A Pass comes as the keyword `seamark`; without one the layer is dense and is not
    counted. Raises UnsupportedModelError for a sparse pass of a model that needs more.
    """
    step: Pass | None = kwargs.pop("seamark", None)
    if step is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return, unused-ignore]
    layer = int(module.layer_idx)  # type: ignore[arg-type, unused-ignore]
    if step.method is None:
        _count_dense(step, layer, query, key, value)
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return, unused-ignore]
    if (reason := unsupported(kwargs, step.longest)) is not None:
        raise UnsupportedModelError(reason)
    scale = float(kwargs.get("scaling") or query.shape[-1] ** -0.5)
    attended = attend(
        query[0],
        key[0],
        value[0],
        method=step.method,
        kernel=step.kernel,
        scale=scale,
        layer=layer,
        generator=seeded(step.method, query.device, step.seed, step.positions, layer),
    )
    step.measurements.add(
        step.phase, layer, kept=attended.kept, allowed=attended.allowed, kv_bytes_read=attended.kv_bytes_read
    )
    if step.sample_at is not None:
        at = step.sample_at
        positions = key.shape[-2] - query.shape[-2] + at + 1
        queries = query[0, :, at : at + 1].clone()
        step.measurements.sampled.append(SampledQuery(layer=layer, positions=positions, queries=queries, scale=scale))
    return attended.output.transpose(0, 1)[None], None


def unsupported(kwargs: dict[str, Any], longest: int) -> str | None:
    """Return why attention with these keywords cannot be sparse, None if it can."""
    for name in CHANGES:
        if kwargs.get(name) is not None:
            return f"its attention has '{name}'"
    window = kwargs.get("sliding_window")
    if window is not None and window < longest:
        return f"its attention has a sliding window of {window} tokens, fewer than the longest prompt ({longest})"
    return None


def _count_dense(step: Pass, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    """Count a dense layer: every query has all keys up to its own, and the pass reads every key and value once."""
    _, heads, queries, _ = query.shape
    positions = key.shape[-2]
    allowed = heads * (queries * positions - queries * (queries - 1) // 2)
    bytes_read = key.numel() * key.element_size() + value.numel() * value.element_size()
    step.measurements.add(step.phase, layer, kept=allowed, allowed=allowed, kv_bytes_read=bytes_read)


def measure_errors(measurements: Measurements, cache: Any, method: Method, kernel: Kernel, seed: int) -> None:
    """Compute the output error of the sampled positions, relative to dense attention on the same inputs."""
    errors: dict[int, list[float]] = {}
    for sampled in measurements.sampled:
        layer = cache.layers[sampled.layer]
        with torch.inference_mode():
            attended = attend(
                sampled.queries,
                layer.keys[0, :, : sampled.positions],
                layer.values[0, :, : sampled.positions],
                method=method,
                kernel=kernel,
                scale=sampled.scale,
                layer=sampled.layer,
                generator=seeded(method, sampled.queries.device, seed, sampled.positions - 1, sampled.layer),
                measure_error=True,
            )
        if attended.error is not None:
            errors.setdefault(sampled.layer, []).append(attended.error)
    measurements.errors = errors
    measurements.sampled.clear()
