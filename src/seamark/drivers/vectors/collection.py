"""What every vector store can do: build, ingest, search; and how long the first two take. Knows no store."""

import time
from collections.abc import Callable, Mapping
from typing import Protocol

from seamark.drivers.vectors.dataset import Dataset, Ids, Vectors
from seamark.model.service import Value


class Collection(Protocol):
    """One set of vectors in one store. Ids are positions in the data set, counted from 0."""

    def build(self, vectors: Vectors) -> None:
        """Make ready to ingest: create the collection or train the index on these vectors."""

    def ingest(self, vectors: Vectors) -> None:
        """Store all vectors; they can be searched, with their index complete, when this returns."""

    def search(self, queries: Vectors, k: int) -> Ids:
        """Return the ids (q, k) found for each query, -1 where none was found."""


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
