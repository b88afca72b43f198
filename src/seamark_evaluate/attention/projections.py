"""Projections from which signatures of queries and keys are made: random hyperplanes or trained ones. Needs torch."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from seamark.errors import UserError


@lru_cache(maxsize=256)
def random_projections(size: int, bits: int, seed: int, layer: int) -> Tensor:
    """Return normals of random hyperplanes [size, bits], the same for the same arguments."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + layer)
    return torch.randn(size, bits, generator=generator)


@lru_cache(maxsize=4)
def read_weights(path: Path) -> Mapping[str, Tensor]:
    """Return the tensors of a file of trained projections (safetensors). Raises UserError when it cannot be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        weights: Mapping[str, Tensor] = load_file(path)
        return weights
    except (OSError, SafetensorError) as cause:
        raise UserError(f"{path}: these weights of hash_top_k cannot be read as safetensors: {cause}.") from None


def trained_signatures(path: Path, layer: int, queries: Tensor, keys: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Return the trained projections of queries [heads, q, bits] and keys [kv_heads, n, bits]; signs are the
    signatures.

    The file has, for each layer and for `query` and `key`, linear steps `layers.L.query.0.weight` [heads, in, out]
    with `layers.L.query.0.bias` [heads, out] where there is one, and SiLU between them (HashAttention's form). A
    key's tensors have a row a key-value head. Raises UserError when tensors are missing or do not fit the model.
    """
    weights = read_weights(path)
    return (
        _projected(weights, path, f"layers.{layer}.query", queries.float(), bits),
        _projected(weights, path, f"layers.{layer}.key", keys.float(), bits),
    )


def _projected(weights: Mapping[str, Tensor], path: Path, prefix: str, values: Tensor, bits: int) -> Tensor:
    steps = 0
    while (name := f"{prefix}.{steps}.weight") in weights:
        weight = weights[name].to(values)
        if weight.dim() != 3 or weight.shape[:2] != (values.shape[0], values.shape[-1]):
            expected = f"[{values.shape[0]}, {values.shape[-1]}, ...]"
            raise UserError(f"{path}: {name} has the shape {list(weight.shape)}; this model needs {expected}.")
        values = (torch.nn.functional.silu(values) if steps else values) @ weight
        if (bias := weights.get(f"{prefix}.{steps}.bias")) is not None:
            values = values + bias.to(values)[:, None]
        steps += 1
    if not steps:
        raise UserError(f"{path}: these weights of hash_top_k have no {prefix}.0.weight.")
    if values.shape[-1] != bits:
        raise UserError(f"{path}: {prefix} ends in {values.shape[-1]} bits, and the method says {bits}.")
    return values
