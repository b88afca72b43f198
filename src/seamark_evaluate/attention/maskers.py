"""What each masker keeps: pure functions of a step and what is kept already, with bounds of scores by page and
signatures of queries and keys. Needs torch.

A masker adds to what earlier ones keep. One that chooses by rank or chance chooses among the keys that are not
certain yet, so its budget is one of new keys; `sink` and `local` keep positions, whatever is kept there.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import ceil, pi
from pathlib import Path
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor

from seamark.errors import UserError
from seamark_evaluate.attention.masker_settings import (
    ROUNDING,
    AdaptiveSampling,
    HashTopK,
    Local,
    Lsh,
    Masker,
    Quest,
    RandomKeys,
    Sink,
    TopK,
    TopP,
)
from seamark_evaluate.attention.method import Method
from seamark_evaluate.attention.selection import NEVER, Selection, Step, grouped, highest

LEAST_BASE = 2
"""Keys of a first sample: a spread needs two."""
LEAST_PROBABILITY = 1e-12
"""A collision of lower probability has the weight of this one, so that no weight is infinite."""
COLLISIONS = 2
"""Tables in which key and query must fall into the same bucket, as MagicPIG has it."""


def select(step: Step, method: Method) -> Selection:
    """Return what a method keeps in a step. Raises ValueError without a generator where it samples."""
    selection = Selection.none(step)
    for masker in method.maskers:
        selection = KEEPS[type(masker)](masker, step, selection)
    return selection


def sink(masker: Sink, step: Step, before: Selection) -> Selection:
    """Keep the first keys."""
    return before.with_certain((step.columns < step.counts(masker.budget)) & step.allowed)


def local(masker: Local, step: Step, before: Selection) -> Selection:
    """Keep the last keys up to the query's own."""
    return before.with_certain((step.columns > step.rows - step.counts(masker.budget)) & step.allowed)


def top_k(masker: TopK, step: Step, before: Selection) -> Selection:
    """Keep the candidates of the highest scores."""
    return before.with_certain(highest(step.scores, before.candidates(step), step.counts(masker.budget)))


def top_p(masker: TopP, step: Step, before: Selection) -> Selection:
    """Keep candidates by falling score while the share of the softmax that is kept for certain is below `p`."""
    candidates = before.candidates(step)
    if masker.p >= 1:
        return before.with_certain(candidates)
    shares = step.scores.softmax(dim=-1)
    certain = shares.masked_fill(candidates, 0).sum(dim=-1, keepdim=True)
    falling, order = shares.masked_fill(~candidates, 0).sort(dim=-1, descending=True, stable=True)
    before_each = falling.cumsum(dim=-1) - falling + certain
    kept = torch.zeros_like(candidates).scatter(-1, order, before_each < masker.p) & candidates
    return before.with_certain(kept)


def random_keys(masker: RandomKeys, step: Step, before: Selection) -> Selection:
    """Keep a uniform sample of the candidates."""
    return _sample(step, before, step.counts(masker.budget))


def adaptive_sampling(masker: AdaptiveSampling, step: Step, before: Selection) -> Selection:
    """Keep a uniform sample of the candidates, large enough for the bound on the denominator.

    With a first sample's mean and standard deviation s of exp(score), m candidates, and the denominator D that
    certain keys and the mean make, the size is (z s m / (epsilon D))^2 with z the quantile 1 - delta / 2 of the
    normal distribution. https://arxiv.org/abs/2510.05688. The second sample is drawn anew, so a key's probability
    does not depend on its score.
    """
    candidates = before.candidates(step)
    count = candidates.sum(dim=-1, keepdim=True)
    base = (count * masker.base_rate + ROUNDING).long().clamp(min=LEAST_BASE).minimum(count)
    drawn = highest(step.uniform(), candidates, base)
    exponentials = (step.scores - step.scores.amax(dim=-1, keepdim=True)).exp().double()
    mean = (exponentials * drawn).sum(dim=-1, keepdim=True) / base.clamp(min=1)
    squares = ((exponentials - mean) ** 2 * drawn).sum(dim=-1, keepdim=True)
    spread = (squares / (base - 1).clamp(min=1)).sqrt()
    certain = (exponentials * (step.allowed & ~candidates)).sum(dim=-1, keepdim=True)
    z = NormalDist().inv_cdf(1 - masker.delta / 2)
    size = (z * spread * count / (masker.epsilon * (certain + count * mean))).square().nan_to_num(posinf=2.0**31)
    before = replace(before, looked_at=drawn if before.looked_at is None else before.looked_at | drawn)
    return _sample(step, before, size.clamp(max=2.0**31).ceil().long().maximum(base))


def lsh(masker: Lsh, step: Step, before: Selection) -> Selection:
    """Keep candidates that fall into the query's bucket in at least two tables; weights undo that probability.

    A random hyperplane has key and query on one side with p = 1 - angle / pi, and a table of K bits with p^K = c; two
    of L tables with 1 - (1-c)^L - L c (1-c)^(L-1). Keys are centred first, by the mean of those that every row may
    see. https://arxiv.org/abs/2410.16179
    """
    candidates = before.candidates(step)
    keys = step.keys.float()
    keys = keys - keys[:, : step.first + 1].mean(dim=1, keepdim=True)
    queries = step.queries.float()
    planes = random_projections(queries.shape[-1], masker.bits * masker.tables, masker.seed, step.layer)
    key_signs, query_signs = _signs(keys @ planes.to(keys)), _signs(queries @ planes.to(keys))
    shared = torch.zeros(step.shape, dtype=torch.int32, device=keys.device)
    for table in range(masker.tables):
        part = slice(table * masker.bits, (table + 1) * masker.bits)
        shared += grouped(query_signs[..., part], key_signs[..., part]) == masker.bits
    lengths = queries.norm(dim=-1)[..., None] * grouped(
        torch.ones_like(queries[:, :1, :1]), keys.norm(dim=-1)[..., None]
    )
    cosine = (grouped(queries, keys) / lengths.clamp(min=1e-20)).clamp(-1, 1).double()
    one = (1 - cosine.acos() / pi) ** masker.bits
    several = 1 - (1 - one) ** masker.tables - masker.tables * one * (1 - one) ** (masker.tables - 1)
    probability = several.clamp(LEAST_PROBABILITY, 1) * candidates
    return before.with_sampled((shared >= COLLISIONS) & candidates, probability)


def hash_top_k(masker: HashTopK, step: Step, before: Selection) -> Selection:
    """Keep the candidates whose signatures have most bits in common with the query's; the later key wins a tie."""
    if masker.weights is None:
        planes = random_projections(step.keys.shape[-1], masker.bits, masker.seed, step.layer).to(step.keys.device)
        queries, keys = step.queries.float() @ planes, step.keys.float() @ planes
    else:
        queries, keys = (
            trained_signatures(Path(masker.weights), f"layers.{step.layer}.{part}", values.float(), masker.bits)
            for part, values in (("query", step.queries), ("key", step.keys))
        )
    common = grouped(_signs(queries), _signs(keys)).long()
    ranks = common * step.shape[-1] + step.columns
    return before.with_certain(highest(ranks, before.candidates(step), step.counts(masker.budget)))


def quest(masker: Quest, step: Step, before: Selection) -> Selection:
    """Keep whole pages by the bound of their scores until the budget is filled, certain pages aside."""
    candidates = before.candidates(step)
    bounds = page_bounds(step, masker.page)
    page_of = step.columns // masker.page
    open_pages = torch.zeros_like(bounds, dtype=torch.int32).index_add(-1, page_of, candidates.int()) > 0
    counts = [ceil(masker.budget.count(position + 1) / masker.page) for position in step.positions]
    wanted = torch.tensor(counts, device=bounds.device)[:, None]
    kept = highest(bounds, open_pages, wanted)[..., page_of] & candidates
    return before.with_certain(kept)


def _sample(step: Step, before: Selection, counts: Tensor) -> Selection:
    """Keep a uniform sample without replacement of `counts` candidates, each with probability counts / candidates."""
    candidates = before.candidates(step)
    all_counts = candidates.sum(dim=-1, keepdim=True)
    counts = counts.minimum(all_counts)
    kept = highest(step.uniform(), candidates, counts)
    return before.with_sampled(kept, candidates * (counts / all_counts.clamp(min=1)))


def _signs(values: Tensor) -> Tensor:
    return torch.where(values >= 0, 1.0, -1.0)


KEEPS: Mapping[type[Masker], Callable[[Any, Step, Selection], Selection]] = {
    Sink: sink,
    Local: local,
    TopK: top_k,
    TopP: top_p,
    RandomKeys: random_keys,
    AdaptiveSampling: adaptive_sampling,
    Lsh: lsh,
    HashTopK: hash_top_k,
    Quest: quest,
}
"""The function of each masker."""


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


def trained_signatures(path: Path, prefix: str, values: Tensor, bits: int) -> Tensor:
    """Return the trained projections of queries or keys [heads, n, bits]; signs are the signatures.

    The file has, for each layer and for `query` and `key`, linear steps `layers.L.query.0.weight` [heads, in, out]
    with `layers.L.query.0.bias` [heads, out] where there is one, and SiLU between them (HashAttention's form). A
    key's tensors have a row a key-value head. Raises UserError when tensors are missing or do not fit the model.
    """
    weights, steps = read_weights(path), 0
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
