"""Attention of one step of one layer under a method: dense, fixed, masked or gathered. Needs torch.

Queries of several heads share key-value heads in groups. The softmax takes its maximum over kept keys, so nothing is
NaN; a query for which nothing is kept has an output of zeros. Kept keys of a sample weigh 1 / probability in
numerator and denominator. A fixed method keeps positions that follow from positions alone: slices of the cache.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from seamark_evaluate.attention.masker_settings import HashTopK, Lsh, Quest, TopK, TopP
from seamark_evaluate.attention.maskers import select
from seamark_evaluate.attention.method import Kernel, Method
from seamark_evaluate.attention.selection import NEVER, Selection, Step, grouped


def weighted_terms(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return numerators [..., n] and denominator [..., 1] of the softmax of scores; -inf leaves a term out.

    A weight w of a term is log(w) added to its score. The maximum is that of the terms that are not left out, and a
    row without any has numerators of 0 and a denominator of 1.
    """
    highest = scores.amax(dim=-1, keepdim=True)
    terms = (scores - highest.masked_fill(highest == float("-inf"), 0)).exp()
    total = terms.sum(dim=-1, keepdim=True)
    return terms, torch.where(total > 0, total, 1.0)


ROWS = 256
"""Queries that share slices: a window moves with its query, and so do the slices of a long step."""


def attend_fixed(
    queries: Tensor, keys: Tensor, values: Tensor, method: Method, scale: float
) -> tuple[Tensor, int, int]:
    """Return output [heads, q, d] of a fixed method, the number of kept keys of all heads and queries, and the number
    of positions that are read. The queries are the last of the positions."""
    (heads, count, _), total = queries.shape, keys.shape[1]
    windows = [method.fixed_window(position) for position in range(total - count, total)]
    outputs = [
        _attended(queries[:, row : row + ROWS], keys, values, windows[row : row + ROWS], total - count + row, scale)
        for row in range(0, count, ROWS)
    ]
    kept = sum(min(sinks, start) + total - count + row + 1 - start for row, (sinks, start) in enumerate(windows))
    positions = sum(part.stop - part.start for part in _slices(windows, total))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1), heads * kept, positions


def _attended(
    queries: Tensor, keys: Tensor, values: Tensor, windows: list[tuple[int, int]], first: int, scale: float
) -> Tensor:
    """Return the output of some rows, the first of them at position `first`. One row keeps all of its slices."""
    heads, count, _ = queries.shape
    groups = keys.shape[0]
    slices = _slices(windows, first + count)
    if not slices:
        return values.new_zeros(heads, count, values.shape[-1])
    scores = torch.cat([grouped(queries, keys[:, part]) for part in slices], dim=-1).float() * scale
    if count > 1:
        device = keys.device
        columns = torch.cat([torch.arange(part.start, part.stop, device=device) for part in slices])
        sinks, starts = torch.tensor(windows, device=device).T[:, :, None]
        rows = torch.arange(first, first + count, device=device)[:, None]
        kept = ((columns < sinks) | (columns >= starts)) & (columns <= rows)
        scores = scores.masked_fill(~kept, NEVER)
    terms, denominator = weighted_terms(scores)
    terms = terms.to(values.dtype).reshape(groups, -1, scores.shape[-1])
    output, at = values.new_zeros(()), 0
    for part in slices:
        width = part.stop - part.start
        output = output + terms[..., at : at + width] @ values[:, part]
        at += width
    return output.reshape(heads, count, -1) / denominator.to(values.dtype)


def _slices(windows: list[tuple[int, int]], total: int) -> list[slice]:
    """Return the positions that any of the rows keeps, the last row at position `total` - 1, as one or two slices."""
    sinks, start = max(sinks for sinks, _ in windows), min(start for _, start in windows)
    parts = [slice(0, total)] if sinks >= start else [slice(0, sinks), slice(start, total)]
    return [part for part in parts if part.start < part.stop]


MOST_ELEMENTS = 1 << 24
"""Elements of one intermediate tensor: steps of many queries are computed some rows at a time."""


@dataclass(frozen=True, kw_only=True)
class Attended:
    """Output of a step, and what it took.

    `output` [heads, q, d]. `kept` and `allowed` count keys over all heads and queries: their ratio is the density.
    `error` is the mean over heads and queries of |output - dense| / |dense| (Euclidean), None if it was not measured.
    `kv_bytes_read`: keys and values that any query of the group needs, and keys that choosing them reads (all for the
    oracles, the first sample for adaptive sampling), each once a step; beside these, signatures for hashes (as if
    they were stored), and least and greatest values for pages. With kernel `masked` and for dense attention it is all
    keys and values.
    """

    output: Tensor
    kept: int
    allowed: int
    kv_bytes_read: int
    error: float | None = None


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    method: Method,
    kernel: Kernel,
    scale: float,
    layer: int,
    generator: torch.Generator | None = None,
    measure_error: bool = False,
) -> Attended:
    """Return the attention of `queries` [heads, q, d], the last q of the n positions, over `keys` [kv_heads, n, d]
    and `values` [kv_heads, n, d] of one sequence.

    `scale` multiplies scores; `layer` picks projections of hashes; `generator` draws samples, and is needed where
    `method.is_sampled`. Raises ValueError without it, UserError for weights of a hash that do not fit.
    """
    heads, count, _ = queries.shape
    total = keys.shape[1]
    allowed = heads * sum(range(total - count + 1, total + 1))
    if method.is_dense:
        output, kept, read = dense(queries, keys, values, scale), allowed, _bytes(keys, values, total)
    elif method.is_fixed and kernel == "gathered":
        output, kept, positions = attend_fixed(queries, keys, values, method, scale)
        read = _bytes(keys, values, positions)
    else:
        output, kept, read = _chosen(queries, keys, values, method, kernel, scale, layer, generator)
    error = relative_error(output, dense(queries, keys, values, scale)) if measure_error else None
    return Attended(output=output, kept=kept, allowed=allowed, kv_bytes_read=read, error=error)


def dense(queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """Return causal attention over all keys [heads, q, d]; the queries are the last of the positions."""
    count, total = queries.shape[1], keys.shape[1]
    mask = None
    if 1 < count < total:
        mask = torch.ones(count, total, dtype=torch.bool, device=keys.device).tril(total - count)
    attended: Tensor = torch.nn.functional.scaled_dot_product_attention(
        queries[None],
        keys[None],
        values[None],
        attn_mask=mask,
        is_causal=1 < count == total,
        scale=scale,
        enable_gqa=queries.shape[0] != keys.shape[0],
    )
    return attended[0]


def masked(queries: Tensor, keys: Tensor, values: Tensor, selection: Selection, scale: float) -> Tensor:
    """Return attention over all keys with a mask: the same numbers as `gathered`, at the cost of dense."""
    groups = keys.shape[0]
    weights, total = weighted_terms(grouped(queries, keys).float() * scale + selection.bias)
    output = weights.to(values.dtype).reshape(groups, -1, keys.shape[1]) @ values
    return output.reshape(queries.shape[0], queries.shape[1], -1) / total.to(values.dtype)


def gathered(queries: Tensor, keys: Tensor, values: Tensor, selection: Selection, scale: float) -> Tensor:
    """Return attention over the kept keys only: each row gathers its own, filled up to the longest row."""
    heads, count, _ = queries.shape
    index, bias = _kept_positions(selection)
    most = index.shape[-1]
    if not most:
        return values.new_zeros(heads, count, values.shape[-1])
    group = torch.arange(heads, device=keys.device)[:, None, None] // (heads // keys.shape[0])
    rows = max(1, MOST_ELEMENTS // (heads * most * keys.shape[-1]))
    outputs = []
    for start in range(0, count, rows):
        part = slice(start, start + rows)
        near = keys[group, index[:, part]]
        scores = torch.einsum("hqd,hqmd->hqm", queries[:, part], near).float() * scale
        weights, total = weighted_terms(scores + bias[:, part])
        output = torch.einsum("hqm,hqmd->hqd", weights.to(values.dtype), values[group, index[:, part]])
        outputs.append(output / total.to(values.dtype))
    return torch.cat(outputs, dim=1)


def relative_error(output: Tensor, reference: Tensor) -> float:
    """Return the mean over heads and queries of |output - reference| / |reference|."""
    reference = reference.float()
    distance = (output.float() - reference).norm(dim=-1)
    return float((distance / reference.norm(dim=-1).clamp(min=torch.finfo(torch.float32).tiny)).mean())


def _chosen(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    method: Method,
    kernel: Kernel,
    scale: float,
    layer: int,
    generator: torch.Generator | None,
) -> tuple[Tensor, int, int]:
    """Return output, kept keys and bytes read of a method whose keys are chosen, some rows at a time."""
    (heads, count, _), (groups, total, _) = queries.shape, keys.shape
    rows = max(1, MOST_ELEMENTS // (heads * total))
    outputs, kept = [], 0
    needed = torch.zeros(groups, total, dtype=torch.bool, device=keys.device)
    looked_at = needed.clone()
    for start in range(0, count, rows):
        part = queries[:, start : start + rows]
        seen = total - count + start + part.shape[1]
        first = total - count + start
        step = Step(queries=part, keys=keys[:, :seen], scale=scale, layer=layer, first=first, generator=generator)
        selection = select(step, method)
        kept += int(selection.kept.sum())
        needed[:, :seen] |= selection.kept.reshape(groups, -1, seen).any(dim=1)
        if selection.looked_at is not None:
            looked_at[:, :seen] |= selection.looked_at.reshape(groups, -1, seen).any(dim=1)
        compute = gathered if kernel == "gathered" else masked
        outputs.append(compute(part, keys[:, :seen], values[:, :seen], selection, scale))
    if kernel == "masked":
        read = _bytes(keys, values, total)
    else:
        oracle = any(isinstance(masker, TopK | TopP) for masker in method.maskers)
        keys_read = groups * total if oracle else int((needed | looked_at).sum())
        read = (keys_read * keys.shape[-1] + int(needed.sum()) * values.shape[-1]) * keys.element_size()
        read += _signature_bytes(method, keys)
    return torch.cat(outputs, dim=1), kept, read


def _kept_positions(selection: Selection) -> tuple[Tensor, Tensor]:
    """Return positions of kept keys [heads, q, most] and their biases; rows with fewer are filled with -inf."""
    counts = selection.kept.sum(dim=-1)
    most = int(counts.max())
    head, row, position = selection.kept.nonzero(as_tuple=True)
    starts = (counts.flatten().cumsum(0) - counts.flatten()).reshape(counts.shape)
    place = torch.arange(len(position), device=position.device) - starts[head, row]
    index = position.new_zeros(*counts.shape, most)
    bias = selection.probability.new_full((*counts.shape, most), float("-inf"))
    index[head, row, place] = position
    bias[head, row, place] = -selection.probability[head, row, position].log()
    return index, bias


def _bytes(keys: Tensor, values: Tensor, positions: int) -> int:
    """Return the bytes of keys and values at a number of positions, of all key-value heads."""
    size: int = keys.shape[0] * positions * (keys.shape[-1] + values.shape[-1]) * keys.element_size()
    return size


def _signature_bytes(method: Method, keys: Tensor) -> int:
    """Return what choosing reads beside keys, of all key-value heads in one step: signatures and bounds of pages."""
    groups, total, size = keys.shape
    read = 0.0
    for masker in method.maskers:
        if isinstance(masker, Lsh):
            read += groups * total * masker.bits * masker.tables / 8
        elif isinstance(masker, HashTopK):
            read += groups * total * masker.bits / 8
        elif isinstance(masker, Quest):
            read += groups * -(-total // masker.page) * 2 * size * keys.element_size()
    return round(read)
