"""Chroma as a library: the Call driver that searches a collection in its own process. No server.

chromadb exists in the service's environment only, so what uses it is imported where it is used.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from seamark.drivers.vectors.chroma_search import COLLECTION, filter_of
from seamark.drivers.vectors.dataset import Dataset, Vectors, fill, in_batches, recall, started
from seamark.load.driver import Body, Call, Hooks, Reply, Target, whole
from seamark.model.sample import Failure
from seamark.model.service import Value


def stage(target: Target, seed: int) -> Mapping[str, Value]:
    """Make the data set, and store and index it in the deployment's folder."""
    from seamark.drivers.vectors.chroma_collection import ChromaCollection, embedded

    data = Dataset.stage(target, seed)
    collection = ChromaCollection(embedded(target), target)
    return started(target, {**fill(collection, data, target.settings), **collection.facts})


def quality(target: Target, seed: int) -> Mapping[str, float]:
    """Return the recall over all queries, and the metrics of the start."""
    from seamark.drivers.vectors.chroma_collection import ChromaCollection, embedded

    return recall(target, ChromaCollection(embedded(target), target).search)


class EmbeddedSearch(Call):
    """Searches the collection that `stage` filled; every worker process opens it."""

    unit = "query"
    kinds: Sequence[str] = ("search",)

    def __init__(self, target: Target) -> None:
        from seamark.drivers.vectors.chroma_collection import embedded

        self._search = embedded(target).get_collection(COLLECTION, embedding_function=None).query
        self._batch, self._k = whole(target.settings, "batch"), whole(target.settings, "k")
        self._filter = filter_of(target.settings)
        self._queries: Vectors = np.load(target.data / "queries.npy")
        self.body_count = max(len(self._queries), 64)
        self._search(query_embeddings=self._queries[:1], n_results=1, include=[])  # reads the index

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return batches of queries: all queries in seeded order, again and again, cut into batches."""
        return [
            Body(content=self._queries[batch]) for batch in in_batches(len(self._queries), count, self._batch, seed)
        ]

    def session(self) -> "EmbeddedSearch":
        """Return the driver: the library may be called by several threads."""
        return self

    def call(self, body: Body) -> Reply:
        """Search one batch; an answer without any id for a query is empty."""
        ids = self._search(query_embeddings=body.content, n_results=self._k, include=[], where=self._filter)["ids"]
        return Reply(units=len(ids)) if all(ids) else Reply(units=0, failure=Failure.EMPTY_REPLY)

    def close(self) -> None:
        """Nothing is held but memory."""

    def failure(self, error: Exception) -> Failure:
        """Chroma runs in this process, so its exceptions are failures of the driver."""
        return Failure.DRIVER


HOOKS = Hooks(stage=stage, quality=quality)
