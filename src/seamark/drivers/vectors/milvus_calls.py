"""Call drivers of Milvus: one searches, one inserts, each over its own connections."""

from collections.abc import Sequence

import numpy as np
from google.protobuf.message import DecodeError

from seamark.drivers.rpc import RpcCall
from seamark.drivers.vectors.dataset import Dataset, Vectors, in_batches
from seamark.drivers.vectors.milvus_collection import credentials
from seamark.drivers.vectors.milvus_messages import (
    INSERTED,
    SERVICE,
    RefusedError,
    Searching,
    insert_request,
    inserted,
    schema_of,
)
from seamark.load.driver import Body, Target, whole
from seamark.model.sample import Failure

MOST_BODIES_BYTES = 64 << 20


class _Calls(RpcCall):
    """Common part of both drivers: where the server is, and the categories of its errors."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, "main")
        self.metadata = credentials()
        self._batch = whole(target.settings, "batch")

    def failure(self, error: Exception) -> Failure:
        """Return the category of gRPC's status, or of Milvus's own code."""
        if isinstance(error, RefusedError):
            return error.category
        return Failure.PROTOCOL if isinstance(error, DecodeError) else super().failure(error)


class MilvusSearch(_Calls):
    """Searches the collection that `populate` filled. A reply is worth its batch when every query got an answer."""

    method = f"{SERVICE}/Search"
    unit = "query"
    kinds: Sequence[str] = ("search",)

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._searching = Searching.of(target.settings)
        self._queries: Vectors = np.load(target.data / "queries.npy")
        self.body_count = max(len(self._queries), 64)
        """One body for each query, so that every query is sent once before any repeats."""

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return batches of queries: all queries in seeded order, again and again, cut into batches."""
        batches = in_batches(len(self._queries), count, self._batch, seed)
        return [Body(content=self._searching.request(self._queries[batch])) for batch in batches]

    def read(self, reply: bytes) -> tuple[int, Failure]:
        """Return the batch of a reply with an answer to every query."""
        counts = self._searching.counts(reply)
        if len(counts) != self._batch:
            return 0, Failure.WRONG_REPLY
        return self._batch, Failure.NONE if all(counts) else Failure.EMPTY_REPLY


class Insert(_Calls):
    """Inserts vectors of the data set, `batch` per request, into a collection of its own.

    Milvus answers once they are in its log; searches and the index have them later.
    """

    method = f"{SERVICE}/Insert"
    unit = "vector"
    kinds: Sequence[str] = ("insert",)

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._vectors = Dataset.load(target.data).vectors
        request_bytes = self._batch * (self._vectors.itemsize * self._vectors.shape[1] + 16)
        batches = -(-len(self._vectors) // self._batch)
        self.body_count = max(1, min(batches, MOST_BODIES_BYTES // request_bytes))
        """Each vector once, as far as memory allows, before any is stored again."""

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return batches of vectors, all of them in seeded order, marked with the seed."""
        fields = schema_of(INSERTED, self._vectors.shape[1]).to_dict()["fields"]
        batches = in_batches(len(self._vectors), count, self._batch, seed)
        return [Body(content=insert_request(fields, self._vectors[batch], seed)) for batch in batches]

    def read(self, reply: bytes) -> tuple[int, Failure]:
        """Return the batch of a reply that accepts all of it."""
        return self._batch, Failure.NONE if inserted(reply) == self._batch else Failure.WRONG_REPLY
