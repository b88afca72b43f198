"""Call drivers of Milvus: one searches, one inserts, each over its own connections."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from google.protobuf.message import DecodeError

from seamark.drivers import rpc
from seamark.drivers.vectors.dataset import Dataset, Vectors, in_batches
from seamark.drivers.vectors.milvus_collection import address_of, credentials
from seamark.drivers.vectors.milvus_messages import (
    INSERTED,
    SERVICE,
    RefusedError,
    Searching,
    insert_request,
    inserted,
    schema_of,
)
from seamark.load.driver import Body, Call, Reply, Target, whole
from seamark.model.sample import Failure

MOST_BODIES_BYTES = 64 << 20


class _Calls(Call):
    """Common part of both drivers: connections, and the categories of errors."""

    method: str

    def __init__(self, target: Target) -> None:
        self._settings = target.settings
        self._address = address_of(target)
        self._timeout_s = target.load.timeout_s

    def session(self) -> rpc.RpcSession:
        """Return a session with an open connection."""
        method = f"{SERVICE}/{self.method}"
        return rpc.RpcSession(self._address, method, self._read, self._timeout_s, metadata=credentials())

    @abstractmethod
    def _read(self, reply: bytes, sent: int) -> Reply:
        """Return what the bytes of a reply are worth, given how many were sent."""

    def failure(self, error: Exception) -> Failure:
        """Return the category of gRPC's status, or of Milvus's own code."""
        if isinstance(error, RefusedError):
            return error.category
        return Failure.PROTOCOL if isinstance(error, DecodeError) else rpc.category(error)


class MilvusSearch(_Calls):
    """Searches the collection that `populate` filled. A reply is worth its batch when every query got an answer."""

    method = "Search"
    unit = "query"
    kinds: Sequence[str] = ("search",)

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._searching = Searching.of(target.settings)
        self._batch = whole(target.settings, "batch")
        self._queries: Vectors = np.load(target.data / "queries.npy")
        self.body_count = max(len(self._queries), 64)
        """One body for each query, so that every query is sent once before any repeats."""

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return batches of queries: all queries in seeded order, again and again, cut into batches."""
        batches = in_batches(len(self._queries), count, self._batch, seed)
        return [Body(content=self._searching.request(self._queries[batch])) for batch in batches]

    def _read(self, reply: bytes, sent: int) -> Reply:
        counts = self._searching.counts(reply)
        failure = Failure.NONE
        if len(counts) != self._batch:
            failure = Failure.WRONG_REPLY
        elif not all(counts):
            failure = Failure.EMPTY_REPLY
        units = 0 if failure else self._batch
        return Reply(units=units, bytes_sent=sent, bytes_received=len(reply), failure=failure)


class Insert(_Calls):
    """Inserts vectors of the data set, `batch` per request, into a collection of its own.

    Milvus answers once they are in its log; searches and the index have them later.
    """

    method = "Insert"
    unit = "vector"
    kinds: Sequence[str] = ("insert",)

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._batch = whole(target.settings, "batch")
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

    def _read(self, reply: bytes, sent: int) -> Reply:
        right = inserted(reply) == self._batch
        failure = Failure.NONE if right else Failure.WRONG_REPLY
        units = self._batch if right else 0
        return Reply(units=units, bytes_sent=sent, bytes_received=len(reply), failure=failure)
