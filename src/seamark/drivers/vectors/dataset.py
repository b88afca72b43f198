"""Seeded vectors, queries and their exact neighbours, recall against them, and the interface of a vector store."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from seamark.datasets.neighbours import DEPTH, Distances, distances, drawn, nearest_distances
from seamark.datasets.neighbours import Vectors as Vectors
from seamark.errors import UserError
from seamark.load.driver import Target, whole
from seamark.model.service import Value

Ids = NDArray[np.int64]

EPSILON_RATIO = 1e-5
"""A distance this little above the k-th is a tie: float32 arithmetic cannot tell them apart."""
ROUNDING = 1e-6
"""What float32 leaves of an inner product, in lengths of its vectors: a distance near 0 is a small difference of
large numbers."""
START = "start.json"
STARTED: Mapping[str, tuple[str, ...]] = {
    "ingest_vectors_per_s": ("ingest_vectors_per_s",),
    "build_s": ("index_s", "ingest_s"),
    "index_bytes": ("index_bytes",),
    "memory_bytes": ("index_resident_bytes", "memory_bytes"),
    "delete_vectors_per_s": ("delete_vectors_per_s",),
    "zero_vectors": ("zero_vectors",),
}
"""Metrics of a start, and the facts that they are: the first that a store has."""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Vectors (n, d), queries (q, d), and the distances (q, depth) of each query's nearest by `metric`, ascending."""

    vectors: Vectors
    queries: Vectors
    truth: Distances
    metric: str = "l2"

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
            data = replace(data, vectors=np.ascontiguousarray(data.vectors))
            data.require_directions(target.settings["metric"])
            return data
        sizes = {name: whole(target.settings, name) for name in ("vectors", "dimensions", "queries")}
        data = Dataset.generate(**sizes, seed=seed)
        data.save(target.data)
        return data

    def by(self, metric: str, rows: int | None = None) -> "Dataset":
        """Return the data with the ground truth of another metric, or over the first `rows` vectors."""
        if metric == self.metric and rows in (None, len(self.vectors)):
            return self
        vectors = self.vectors[:rows]
        truth = nearest_distances(vectors, self.queries, min(DEPTH, len(vectors)), metric)
        return replace(self, vectors=vectors, truth=truth, metric=metric)

    def require_directions(self, metric: Value) -> None:
        """Raise UserError for a query that has no cosine."""
        if metric == "cosine" and (zero := ~self.queries.any(axis=1)).any():
            raise UserError(
                f"query {int(zero.argmax()) + 1} is a zero vector: it has no cosine. Choose another metric."
            )

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


def in_text(vector: Vectors) -> str:
    """Return a vector (d,) as a list of JSON, each number exact to float32."""
    return f"[{','.join(f'{number:.9g}' for number in vector.tolist())}]"


def recall_at_k(data: Dataset, found: Ids, k: int) -> float:
    """Return the mean ratio of the k nearest in the answers `found` (q, >= k); ties with the k-th count.

    Distances are computed here from the ids, never taken from the store. An id of -1, an unknown id and a repeated id
    count as misses.
    """
    ids, truth = found[:, :k], data.truth[:, k - 1]
    within = truth + EPSILON_RATIO * np.abs(truth)
    if data.metric != "l2":
        lengths = np.linalg.norm(data.queries, axis=1) * np.linalg.norm(data.vectors, axis=1).max()
        within += ROUNDING * (lengths if data.metric == "ip" else 1.0)
    known = (ids >= 0) & (ids < len(data.vectors))
    shares = np.empty(len(ids))
    for row, (asked, names, good) in enumerate(zip(data.queries, ids, known, strict=True)):
        unique = np.asarray(data.vectors[np.unique(names[good])])
        if data.metric == "l2":  # by differences: exact also where both are far from 0
            away = ((unique.astype(np.float64) - asked.astype(np.float64)) ** 2).sum(axis=1)
        else:
            away = distances(unique, asked[None, :], data.metric)[0]
        shares[row] = min(int(np.count_nonzero(away <= within[row])), k) / k
    return float(shares.mean())


def visible(settings: Mapping[str, Value], vectors: int) -> tuple[int, int]:
    """Return how many vectors, the first ones, are left after deletes, and how many of these pass the filter.

    Raises UserError for a filter that lets fewer than `k` pass.
    """
    left = vectors - round(vectors * float(settings.get("deleted_ratio") or 0.0))
    share, k = settings.get("filter_ratio"), whole(settings, "k", 1)
    passing = left if share is None else round(left * float(share))
    if passing < k:
        raise UserError(f"filter_ratio: {passing} vectors pass, and 'k' asks for {k}. Raise filter_ratio.")
    return left, passing


def recall(target: Target, search: Callable[[Vectors, int], Ids]) -> Mapping[str, float]:
    """Return the recall over all queries of a deployment's data set, searched as this trial's settings say, and the
    metrics of its start."""
    k, data = whole(target.settings, "k"), Dataset.load(target.data)
    data = data.by(str(target.settings["metric"]), visible(target.settings, len(data.vectors))[1])
    start = target.data / START  # a server that an older version started has none
    started = json.loads(start.read_text(encoding="utf-8")) if start.is_file() else {}
    return {f"recall_at_{k}": recall_at_k(data, search(data.queries, k), k), **started}


class Store(Protocol):
    """One set of vectors in one store. Ids are positions in the data set, counted from 0."""

    def build(self, vectors: Vectors) -> None:
        """Make ready to ingest: create the collection or train the index on these vectors."""

    def ingest(self, vectors: Vectors) -> None:
        """Store all vectors; they can be searched, with their index complete, when this returns."""

    def search(self, queries: Vectors, k: int) -> Ids:
        """Return the ids (q, k) for each query, -1 for a missing one."""

    def delete(self, ids: range) -> None:
        """Delete these vectors; no search finds them when this returns."""


def fill(
    store: Store, data: Dataset, settings: Mapping[str, Value], clock: Callable[[], float] = time.monotonic
) -> Mapping[str, Value]:
    """Build, ingest and delete; return the seconds of the first two and the vectors stored per second of both
    together."""
    count = len(data.vectors)
    began_s = clock()
    store.build(data.vectors)
    built_s = clock()
    store.ingest(data.vectors)
    ended_s = clock()
    facts: dict[str, Value] = {
        "build_s": built_s - began_s,
        "ingest_s": ended_s - built_s,
        "ingest_vectors_per_s": count / (ended_s - began_s),
        "vectors": count,
        "vectors_bytes": data.vectors.nbytes,
    }
    if zero := count - int(np.count_nonzero(data.vectors.any(axis=1))):
        facts["zero_vectors"] = zero
    left, _ = visible(settings, count)
    if left < count:
        ended_s = clock()
        store.delete(range(left, count))
        facts |= {"delete_vectors_per_s": (count - left) / (clock() - ended_s), "vectors_left": left}
    return facts


def started(target: Target, facts: Mapping[str, Value]) -> Mapping[str, Value]:
    """Keep the metrics of a start for each of its trials; return all facts."""
    found = {name: next((facts[fact] for fact in of if fact in facts), None) for name, of in STARTED.items()}
    known = {name: float(value) for name, value in found.items() if value is not None}
    (target.data / START).write_text(json.dumps(known), encoding="utf-8")
    return facts
