"""Keys that a method keeps for each query of a step, with the probability of each to be kept. Needs torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from seamark_evaluate.attention.masker_settings import Budget

NEVER = float("-inf")


@dataclass(frozen=True, kw_only=True)
class Step:
    """Inputs of one step of one layer: `queries` [heads, q, d] and `keys` [kv_heads, n, d] of one sequence.

    Row r of the queries stands at position `first` + r, and causality allows it the keys up to that position. Query
    heads share the key-value heads in groups, as `repeat_kv` of transformers groups them.
    """

    queries: Tensor
    keys: Tensor
    scale: float
    layer: int
    first: int
    generator: torch.Generator | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries and keys: the shape of scores and masks."""
        return self.queries.shape[0], self.queries.shape[1], self.keys.shape[1]

    @property
    def positions(self) -> Sequence[int]:
        """The position of each row."""
        return range(self.first, self.first + self.queries.shape[1])

    @cached_property
    def rows(self) -> Tensor:
        """`positions` as a tensor [q, 1], to compare with those of keys."""
        return torch.tensor(self.positions, device=self.keys.device)[:, None]

    @cached_property
    def columns(self) -> Tensor:
        """The positions of all keys [n]."""
        return torch.arange(self.keys.shape[1], device=self.keys.device)

    @cached_property
    def allowed(self) -> Tensor:
        """The mask of causality [q, n]."""
        return self.columns <= self.rows

    @cached_property
    def scores(self) -> Tensor:
        """Scaled scores of all keys [heads, q, n] in float32, -inf where causality forbids."""
        scores = grouped(self.queries, self.keys).float() * self.scale
        return scores.masked_fill(~self.allowed, NEVER)

    def counts(self, budget: Budget) -> Tensor:
        """Return how many keys a budget has for each row [q, 1]."""
        counts = [budget.count(position + 1) for position in self.positions]
        return torch.tensor(counts, device=self.keys.device)[:, None]

    def uniform(self) -> Tensor:
        """Return random numbers of 0..1 [heads, q, n], the next of the step's generator."""
        if self.generator is None:
            raise ValueError("a method that samples needs a generator")
        device = self.keys.device
        return torch.rand(self.shape, generator=self.generator, device=self.generator.device).to(device)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What is kept so far: `kept` [heads, q, n], and each key's `probability` to be kept, 1 for a certain one.

    `looked_at` has the keys of first samples, which are read to choose and need not be kept; None without any.
    """

    kept: Tensor
    probability: Tensor
    looked_at: Tensor | None = None

    @classmethod
    def none(cls, step: Step) -> "Selection":
        """Return the selection that keeps nothing."""
        kept = torch.zeros(step.shape, dtype=torch.bool, device=step.keys.device)
        return cls(kept=kept, probability=torch.zeros(step.shape, device=step.keys.device))

    def candidates(self, step: Step) -> Tensor:
        """Return the mask of allowed keys that are not certain yet."""
        return step.allowed & (self.probability < 1)

    def with_certain(self, kept: Tensor) -> "Selection":
        """Return the selection that keeps these keys for certain, too."""
        return replace(self, kept=self.kept | kept, probability=self.probability.masked_fill(kept, 1.0))

    def with_sampled(self, kept: Tensor, probability: Tensor) -> "Selection":
        """Return the selection with an independent sample; `probability` is each key's in that sample.

        A key of several samples counts once: it is kept with the probability that any of them holds it.
        """
        either = 1 - (1 - self.probability) * (1 - probability.to(self.probability))
        return replace(self, kept=self.kept | kept, probability=either)

    @property
    def bias(self) -> Tensor:
        """What is added to the scores [heads, q, n]: log(1 / probability) where kept, -inf elsewhere."""
        return torch.where(self.kept, -self.probability.log(), NEVER)


def grouped(queries: Tensor, keys: Tensor) -> Tensor:
    """Return the products of every query [heads, q, d] with the keys [kv_heads, n, d] of its group: [heads, q, n]."""
    heads, count, size = queries.shape
    together = queries.reshape(keys.shape[0], -1, size) @ keys.transpose(1, 2)
    return together.reshape(heads, count, -1)


def highest(ranks: Tensor, candidates: Tensor, counts: Tensor) -> Tensor:
    """Return the mask of the `counts` [q, 1] or [heads, q, 1] candidates of the highest ranks in each row."""
    most = int(counts.max())
    lowest = NEVER if ranks.is_floating_point() else torch.iinfo(ranks.dtype).min
    order = ranks.masked_fill(~candidates, lowest).topk(min(most, ranks.shape[-1]), dim=-1).indices
    places = torch.arange(order.shape[-1], device=ranks.device)
    taken = (places < counts).expand(order.shape)
    return torch.zeros_like(candidates.expand(ranks.shape)).scatter(-1, order, taken) & candidates
