"""Vectors of a seed, and exact neighbours by a metric. Needs numpy alone: workers of loads import it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Distances = NDArray[np.float64]

GOLDEN_SEED = 42
"""Seed 0 of a trial is numpy's default_rng(42), with known recalls; seed s is default_rng(42 + s)."""

DEPTH = 100
"""Exact neighbours kept for each query: the largest k of a search."""

BLOCK_VECTORS = 16384


def drawn(*, rows: int, dimensions: int, queries: int, seed: int) -> tuple[Vectors, Vectors]:
    """Return standard normal vectors and queries, drawn in this order."""
    rng = np.random.default_rng(GOLDEN_SEED + seed)
    vectors = rng.standard_normal((rows, dimensions), dtype=np.float32)
    return vectors, rng.standard_normal((queries, dimensions), dtype=np.float32)


def nearest_distances(vectors: NDArray[Any], queries: NDArray[Any], depth: int, metric: str = "l2") -> Distances:
    """Return the distances of each query's `depth` nearest vectors, ascending, exact to float64; see `distances`."""
    best = np.empty((len(queries), 0))
    for start in range(0, len(vectors), BLOCK_VECTORS):
        best = np.concatenate([best, distances(vectors[start : start + BLOCK_VECTORS], queries, metric)], axis=1)
        if best.shape[1] > depth:
            best = np.partition(best, depth - 1, axis=1)[:, :depth]
    return np.sort(best, axis=1)


def distances(vectors: NDArray[Any], queries: NDArray[Any], metric: str) -> Distances:
    """Return the distance of each query to each vector (q, n): less is nearer.

    `l2` is its square, `ip` the negative inner product, `cosine` 1 - cosine. A zero vector has no direction: by
    cosine it is infinitely far.
    """
    block, asked = vectors.astype(np.float64), queries.astype(np.float64)
    if metric == "l2":
        squares = (asked**2).sum(axis=1, keepdims=True) + (block**2).sum(axis=1) - 2.0 * (asked @ block.T)
        return np.asarray(np.maximum(squares, 0.0))
    if metric == "ip":
        return np.asarray(-(asked @ block.T))
    cosines = unit(asked) @ unit(block).T
    return np.where(block.any(axis=1), 1.0 - cosines, np.inf)


def unit(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return vectors at length 1, in their own type; zero vectors stay zero."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1.0, lengths)).astype(vectors.dtype)
