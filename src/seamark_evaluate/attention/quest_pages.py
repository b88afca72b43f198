"""Bounds of scores by page of keys, as Quest has them: from least and greatest value of each channel. Needs torch."""

import torch
from torch import Tensor

from seamark_evaluate.attention.selection import NEVER, Step, grouped


def page_bounds(step: Step, page: int) -> Tensor:
    """Return the upper bound of the scores in each page of `page` keys [heads, q, pages], -inf where none is allowed.

    The bound of a page is the sum over channels of max(q * least, q * greatest). A row's own page counts only the
    keys up to the row. https://arxiv.org/abs/2406.10774
    """
    queries, keys = step.queries.float(), step.keys.float()
    pages = -(-keys.shape[1] // page)
    missing = pages * page - keys.shape[1]
    low = _paged(keys, missing, float("inf"), page).amin(dim=2)
    high = _paged(keys, missing, NEVER, page).amax(dim=2)
    bounds = _bound(queries, low, high)
    own = step.rows[:, 0] // page
    first_page = int(own[0])
    tail = keys[:, first_page * page :]
    missing = (pages - first_page) * page - tail.shape[1]
    running_low = _paged(tail, missing, float("inf"), page).cummin(dim=2).values.flatten(1, 2)
    running_high = _paged(tail, missing, NEVER, page).cummax(dim=2).values.flatten(1, 2)
    at = step.rows[:, 0] - first_page * page
    own_bound = torch.stack(
        [
            _bound(queries[:, row : row + 1], running_low[:, at[row], None], running_high[:, at[row], None])[:, 0, 0]
            for row in range(len(at))
        ],
        dim=1,
    )
    bounds.scatter_(-1, own[None, :, None].expand(bounds.shape[0], -1, 1), own_bound[..., None])
    return bounds.masked_fill(torch.arange(pages, device=keys.device) > own[:, None], NEVER)


def _paged(keys: Tensor, missing: int, filler: float, page: int) -> Tensor:
    """Return keys as [kv_heads, pages, page, d], the last page filled up."""
    return torch.nn.functional.pad(keys, (0, 0, 0, missing), value=filler).unflatten(1, (-1, page))


def _bound(queries: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the sum over channels of max(q * low, q * high): positive parts meet high, negative ones low."""
    return grouped(queries.clamp(min=0), high) + grouped(queries.clamp(max=0), low)
