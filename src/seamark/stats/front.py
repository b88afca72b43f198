"""Points that no other dominates, and the probability of each by a bootstrap of whole clusters. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamark.stats.paired_scores import Labels, cluster_numbers, rows_of
from seamark.stats.ranks import Values

RESAMPLES = 2000
SEED = 0


@dataclass(frozen=True, kw_only=True)
class FrontPlaces:
    """For each point: whether it is on the front, and in which share of resamples."""

    on_front: NDArray[np.bool_]
    probability: Values
    clusters: int
    blocks: int


def undominated(quality: NDArray[np.float64], cost: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which points no other dominates: has at least the quality and at most the cost, and differs in one.

    `quality` and `cost` have shape (..., points); more quality and less cost is better. Equal points are both on it.
    """
    better = quality[..., None, :] >= quality[..., :, None]
    cheaper = cost[..., None, :] <= cost[..., :, None]
    strictly = (quality[..., None, :] > quality[..., :, None]) | (cost[..., None, :] < cost[..., :, None])
    dominated = np.asarray((better & cheaper & strictly).any(axis=-1))
    return np.asarray(~dominated)


def front(
    scores: Sequence[Sequence[float]],
    costs: Sequence[Sequence[float]],
    *,
    clusters: Labels | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> FrontPlaces:
    """Return the front of points with `scores`, shape (points, items), and `costs`, shape (points, blocks).

    Higher scores and lower costs are better. A resample draws as many clusters of items (items without `clusters`) as
    there are, with replacement, and as many blocks; the same ones for all points, as they were measured on the same
    items and in the same blocks (Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8).
    With one block, costs do not vary between resamples: the probability is then that of the quality alone.
    ValueError for tables of other shapes, or values that are not finite.
    """
    table, cost = np.asarray(scores, dtype=float), np.asarray(costs, dtype=float)
    if table.ndim != 2 or cost.ndim != 2 or len(table) != len(cost) or not table.size or not cost.size:
        raise ValueError(
            f"scores and costs have shapes {table.shape} and {cost.shape}; both need a row for each point"
        )
    if not (np.isfinite(table).all() and np.isfinite(cost).all()):
        raise ValueError("scores and costs must be finite")
    groups = cluster_numbers(clusters, table.shape[1])
    sizes = np.bincount(groups).astype(float)
    sums = np.array([np.bincount(groups, weights=row) for row in table])
    rng = np.random.default_rng(seed)
    held = np.zeros(len(table))
    for rows in rows_of(resamples, max(len(sizes), len(table) ** 2)):
        picked = rng.integers(0, len(sizes), size=(rows, len(sizes)))
        blocks = rng.integers(0, cost.shape[1], size=(rows, cost.shape[1]))
        quality = np.stack([row[picked].sum(axis=1) for row in sums], axis=1) / sizes[picked].sum(axis=1)[:, None]
        spent = np.stack([np.median(row[blocks], axis=1) for row in cost], axis=1)
        held += undominated(quality.round(12), spent).sum(axis=0)
    quality, spent = table.mean(axis=1), np.median(cost, axis=1)
    return FrontPlaces(
        on_front=undominated(quality.round(12), spent),
        probability=held / resamples,
        clusters=len(sizes),
        blocks=cost.shape[1],
    )
