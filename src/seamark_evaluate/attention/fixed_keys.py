"""Attention over keys whose positions follow from positions alone: slices of the cache. Needs torch."""

import torch
from torch import Tensor

from seamark_evaluate.attention.method import Method
from seamark_evaluate.attention.selection import NEVER, grouped
from seamark_evaluate.attention.weighted_softmax import weighted_terms

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
