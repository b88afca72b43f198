"""Collections of a Milvus server: created, filled, indexed, loaded into its query nodes, searched, counted."""

import base64
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
from pymilvus import MilvusClient

from seamark.drivers import rpc
from seamark.drivers.vectors.dataset import Ids, Vectors
from seamark.drivers.vectors.milvus_messages import INSERTED, SEARCHED, SERVICE, Searching, index_of, schema_of
from seamark.errors import SiteError
from seamark.load.driver import Target, whole
from seamark.load.engine.http import in_url
from seamark.model.service import Value

INSERT_BYTES = 8 << 20
"""Vectors per request while filling: Milvus accepts requests of up to 64 MB."""
FEWEST_INDEXED = 1024
"""Milvus builds no index for a segment of fewer vectors: it compares with each of them."""
ASKED_QUERIES = 100
"""Queries in one request when the answers are judged."""
DELETED_IDS = 10_000
"""Ids in one request that deletes."""
ASK_S = 60.0
TICK_S = 0.05
STALLED_S = 300.0


def token() -> str:
    """Return the credentials USER:PASSWORD from the variable MILVUS_TOKEN, if the server needs them."""
    return os.environ.get("MILVUS_TOKEN", "")


def credentials() -> tuple[tuple[str, str], ...]:
    """Return the metadata of each call if there is a token."""
    given = token()
    return (("authorization", base64.b64encode(given.encode()).decode()),) if given else ()


def address_of(target: Target) -> str:
    """Return host and port of the server's gRPC."""
    return f"{in_url(target.host)}:{target.ports['main']}"


def client_of(target: Target) -> "closing[MilvusClient]":
    """Return a client of the target's server, to be entered."""
    return closing(MilvusClient(uri=f"http://{address_of(target)}", token=token()))


class MilvusCollection:
    """The collection that is searched."""

    def __init__(self, client: MilvusClient, target: Target) -> None:
        self._client = client
        self._target = target
        self._settings = target.settings
        self.facts: dict[str, Value] = {"server_version": client.get_server_version()}

    def build(self, vectors: Vectors) -> None:
        """Make the collection, empty; whatever had its name is dropped."""
        _make(self._client, SEARCHED, vectors.shape[1])

    def ingest(self, vectors: Vectors) -> None:
        """Store all vectors, build the index on them and load both; each step is timed in `facts`.

        Raises SiteError when the server has not indexed and loaded all of them in the end.
        """
        with self._timed("insert_s"):
            self._insert(vectors)
        with self._timed("flush_s"):
            self._client.flush(SEARCHED)
        with self._timed("index_s"):
            _index(self._client, SEARCHED, self._settings)
            self._await_index(len(vectors))
        with self._timed("load_s"):
            self._client.load_collection(SEARCHED, replica_number=self._settings.get("replicas", 1))
            segments = self._loaded(len(vectors))
        self.facts["segments"] = len(segments)
        self.facts["indexed_vectors"] = sum(segment.num_rows for segment in segments if segment.index_name)

    def search(self, queries: Vectors, k: int) -> Ids:
        """Return the ids (q, k), -1 for a missing one, by the same requests as a load's except for their size."""
        searching = Searching.of({**self._settings, "k": k, "consistency": "strong"})
        parts = [queries[start : start + ASKED_QUERIES] for start in range(0, len(queries), ASKED_QUERIES)]
        with rpc.connected(address_of(self._target)) as channel:
            ask = channel.unary_unary(f"{SERVICE}/Search")
            replies = [ask(searching.request(part), timeout=ASK_S, metadata=credentials()) for part in parts]
        return np.concatenate([searching.ids(reply) for reply in replies])

    def delete(self, ids: range) -> None:
        """Delete these vectors; a strong search sees that at once."""
        for start in range(0, len(ids), DELETED_IDS):
            self._client.delete(SEARCHED, ids=list(ids[start : start + DELETED_IDS]))
        self._client.flush(SEARCHED)

    def _insert(self, vectors: Vectors) -> None:
        step = max(1, INSERT_BYTES // (vectors.itemsize * vectors.shape[1]))
        for start in range(0, len(vectors), step):
            rows = [{"id": start + at, "vector": vector} for at, vector in enumerate(vectors[start : start + step])]
            self._client.insert(SEARCHED, rows)

    def _await_index(self, count: int) -> None:
        def rows() -> tuple[bool, int]:
            answer = self._client.describe_index(SEARCHED, "vector")
            done = answer["state"] == "Finished" and answer["pending_index_rows"] == 0
            return done and answer["total_rows"] == count, answer["indexed_rows"]

        _await(rows, f"index {count} vectors")

    def _loaded(self, count: int) -> list[Any]:
        """Wait until the query nodes have all vectors in their final form, with index; return the segments."""
        plain = self._settings["index"] == "flat"

        def segments() -> list[Any]:
            found = {segment.segment_id: segment for segment in self._client.list_loaded_segments(SEARCHED)}
            return [
                segment
                for segment in found.values()
                if segment.state_name == "Sealed"
                and (plain or segment.index_name or segment.num_rows < FEWEST_INDEXED)
            ]

        def rows() -> tuple[bool, int]:
            ready = sum(segment.num_rows for segment in segments())
            return ready == count, ready

        _await(rows, f"load {count} vectors with their index")
        return segments()

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began_s = time.monotonic()
        yield
        self.facts[name] = round(time.monotonic() - began_s, 4)


def make_inserted(client: MilvusClient, settings: Mapping[str, Value]) -> None:
    """Create the collection for inserts: empty, with its index declared, and loaded, so that new vectors are indexed
    and can be searched."""
    _make(client, INSERTED, whole(settings, "dimensions"))
    _index(client, INSERTED, settings)
    client.load_collection(INSERTED)


def count_inserted(client: MilvusClient, load: int) -> int:
    """Return how many vectors of one load the server has, all that it ever took seen."""
    answer = client.query(
        INSERTED, filter=f"load == {load}", output_fields=["count(*)"], consistency_level="Strong", timeout=60
    )
    return int(answer[0]["count(*)"])


def _make(client: MilvusClient, name: str, dimensions: int) -> None:
    if client.has_collection(name):
        client.drop_collection(name)
    client.create_collection(name, schema=schema_of(name, dimensions))


def _index(client: MilvusClient, name: str, settings: Mapping[str, Value]) -> None:
    params = client.prepare_index_params()
    params.add_index("vector", **index_of(settings))
    client.create_index(name, params)


def _await(look: Callable[[], tuple[bool, int]], what: str) -> None:
    """Return once `look` reports completion. Raises SiteError if its number has not changed for STALLED_S."""
    seen, since_s = -1, time.monotonic()
    while True:
        done, number = look()
        if done:
            return
        if number != seen:
            seen, since_s = number, time.monotonic()
        if time.monotonic() - since_s > STALLED_S:
            raise SiteError(f"milvus: the server does not {what}: nothing moved for {STALLED_S:g} s, at {number}.")
        time.sleep(TICK_S)
