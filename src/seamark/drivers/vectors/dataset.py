"""Seeded vectors, queries and their exact neighbours, recall against them, and the interface of a vector store."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from seamark.datasets.neighbours import DEPTH, Distances, drawn, nearest_distances
from seamark.datasets.neighbours import Vectors as Vectors
from seamark.load.driver import Target, whole
from seamark.model.service import Value

Ids = NDArray[np.int64]

EPSILON_RATIO = 1e-5
"""A distance this little above the k-th is a tie: float32 arithmetic cannot tell them apart."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Vectors (n, d), queries (q, d), and the squared L2 distances (q, depth) of each query's nearest, ascending."""

    vectors: Vectors
    queries: Vectors
    truth: Distances

    @staticmethod
    def generate(*, vectors: int, dimensions: int, queries: int, seed: int) -> "Dataset":
        """Return standard normal vectors and queries, drawn in this order, and their exact neighbours."""
        stored, asked = drawn(rows=vectors, dimensions=dimensions, queries=queries, seed=seed)
        return Dataset(vectors=stored, queries=asked, truth=nearest_distances(stored, asked, min(DEPTH, vectors)))

    @staticmethod
    def stage(target: Target, seed: int) -> "Dataset":
        """Generate the data set that the target's settings ask for and write it into the deployment's folder; one
        that they name is linked there."""
        if (named := target.settings.get("dataset")) is not None:
            target.data.mkdir(parents=True, exist_ok=True)
            for array in ("vectors", "queries", "truth"):
                (target.data / f"{array}.npy").symlink_to(Path(str(named)).absolute() / f"{array}.npy")
            data = Dataset.load(target.data)
            return Dataset(vectors=np.ascontiguousarray(data.vectors), queries=data.queries, truth=data.truth)
        sizes = {name: whole(target.settings, name) for name in ("vectors", "dimensions", "queries")}
        data = Dataset.generate(**sizes, seed=seed)
        data.save(target.data)
        return data

    def save(self, folder: Path) -> None:
        """Write the three arrays into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "vectors.npy", self.vectors)
        np.save(folder / "queries.npy", self.queries)
        np.save(folder / "truth.npy", self.truth)

    @staticmethod
    def load(folder: Path) -> "Dataset":
        """Read the output of `save`; vectors stay on disk until they are accessed."""
        vectors: Any = np.load(folder / "vectors.npy", mmap_mode="r")
        return Dataset(vectors=vectors, queries=np.load(folder / "queries.npy"), truth=np.load(folder / "truth.npy"))


def in_batches(rows: int, count: int, batch: int, seed: int) -> list[Ids]:
    """Return `count` batches of row numbers: all rows in seeded order, again and again, cut into batches."""
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(rows) for _ in range(-(-count * batch // rows))])
    return [order[start : start + batch] for start in range(0, count * batch, batch)]


def recall_at_k(data: Dataset, found: Ids, k: int) -> float:
    """Return the mean ratio of the k nearest in the answers `found` (q, >= k); ties with the k-th count.

    Distances are computed here from the ids, never taken from the store. An id of -1, an unknown id and a repeated id
    count as misses.
    """
    ids = found[:, :k]
    within = data.truth[:, k - 1 : k] * (1.0 + EPSILON_RATIO)
    known = (ids >= 0) & (ids < len(data.vectors))
    shares = np.empty(len(ids))
    for row, (asked, names, good) in enumerate(zip(data.queries, ids, known, strict=True)):
        unique = np.unique(names[good])
        gaps = np.asarray(data.vectors[unique], dtype=np.float64) - asked.astype(np.float64)
        near = int(np.count_nonzero((gaps**2).sum(axis=1) <= within[row]))
        shares[row] = min(near, k) / k
    return float(shares.mean())


def recall(target: Target, search: Callable[[Vectors, int], Ids]) -> Mapping[str, float]:
    """Return the recall over all queries of a deployment's data set, searched as this trial's settings say."""
    k, data = whole(target.settings, "k"), Dataset.load(target.data)
    return {f"recall_at_{k}": recall_at_k(data, search(data.queries, k), k)}


class Collection(Protocol):
    """One set of vectors in one store. Ids are positions in the data set, counted from 0."""

    def build(self, vectors: Vectors) -> None:
        """Make ready to ingest: create the collection or train the index on these vectors."""

    def ingest(self, vectors: Vectors) -> None:
        """Store all vectors; they can be searched, with their index complete, when this returns."""

    def search(self, queries: Vectors, k: int) -> Ids:
        """Return the ids (q, k) for each query, -1 for a missing one."""


def fill(collection: Collection, data: Dataset, clock: Callable[[], float] = time.monotonic) -> Mapping[str, Value]:
    """Build and ingest; return the seconds of both and the vectors stored per second of both together."""
    began_s = clock()
    collection.build(data.vectors)
    built_s = clock()
    collection.ingest(data.vectors)
    ended_s = clock()
    return {
        "build_s": built_s - began_s,
        "ingest_s": ended_s - built_s,
        "ingest_vectors_per_s": len(data.vectors) / (ended_s - began_s),
        "vectors": len(data.vectors),
        "vectors_bytes": data.vectors.nbytes,
    }
