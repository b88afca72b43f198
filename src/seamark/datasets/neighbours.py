"""Vectors of a seed, and exact neighbours by L2. Needs numpy alone: workers of loads import it."""

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


def nearest_distances(vectors: NDArray[Any], queries: NDArray[Any], depth: int) -> Distances:
    """Return the squared L2 distances of each query's `depth` nearest vectors, ascending, exact to float64."""
    asked = queries.astype(np.float64)
    asked_squared = (asked**2).sum(axis=1, keepdims=True)
    best = np.empty((len(asked), 0))
    for start in range(0, len(vectors), BLOCK_VECTORS):
        block = vectors[start : start + BLOCK_VECTORS].astype(np.float64)
        distances = asked_squared + (block**2).sum(axis=1) - 2.0 * (asked @ block.T)
        best = np.concatenate([best, distances], axis=1)
        if best.shape[1] > depth:
            best = np.partition(best, depth - 1, axis=1)[:, :depth]
    return np.sort(np.maximum(best, 0.0), axis=1)
