"""Chroma's collection, through the library chromadb: over a server, or over a folder in this process."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
from chromadb.config import Settings

from seamark.drivers.vectors.chroma_search import COLLECTION, ROW, filter_of
from seamark.drivers.vectors.dataset import Ids, Vectors
from seamark.errors import SiteError
from seamark.load.driver import Target, whole
from seamark.model.service import Value

SILENT = Settings(anonymized_telemetry=False)
FOLDER = "chroma"
ASKED_QUERIES = 100
MOST_ROWS = 5000
"""Vectors in one request while filling: SQLite, below Chroma, takes 5,461."""


def client_of(target: Target) -> Any:
    """Return a client of the target's server."""
    return chromadb.HttpClient(host=target.host, port=target.ports["main"], settings=SILENT)


def embedded(target: Target) -> Any:
    """Return a client over the folder of the deployment, without a server."""
    return chromadb.PersistentClient(path=str(target.data / FOLDER), settings=SILENT)


class ChromaCollection:
    """The collection that is searched."""

    def __init__(self, client: Any, target: Target) -> None:
        self._client = client
        self._settings: Mapping[str, Value] = target.settings
        self._folder: Path = target.data / FOLDER
        self.facts: dict[str, Value] = {"server_version": client.get_version()}

    @property
    def _collection(self) -> Any:
        return self._client.get_collection(COLLECTION, embedding_function=None)

    @property
    def name_in_urls(self) -> str:
        """The id of the collection, as requests name it."""
        return str(self._collection.id)

    def build(self, vectors: Vectors) -> None:
        """Make the collection, empty; whatever had its name is dropped."""
        if COLLECTION in [collection.name for collection in self._client.list_collections()]:
            self._client.delete_collection(COLLECTION)
        graph = {
            "space": str(self._settings["metric"]),
            "max_neighbors": whole(self._settings, "m"),
            "ef_construction": whole(self._settings, "ef_construction"),
            "ef_search": whole(self._settings, "ef_search"),
        }
        self._client.create_collection(COLLECTION, embedding_function=None, configuration={"hnsw": graph})

    def ingest(self, vectors: Vectors) -> None:
        """Store all vectors and search once, by which they are indexed. Raises SiteError where some are missing."""
        collection = self._collection
        for start in range(0, len(vectors), MOST_ROWS):
            rows = range(start, min(start + MOST_ROWS, len(vectors)))
            metadata = [{ROW: row} for row in rows]
            collection.add(ids=[str(row) for row in rows], embeddings=vectors[start : rows.stop], metadatas=metadata)
        collection.query(query_embeddings=vectors[:1], n_results=1, include=[])
        if (stored := collection.count()) != len(vectors):
            raise SiteError(f"chroma: {stored} of {len(vectors)} vectors are stored.")
        if sizes := [path.stat().st_size for path in self._folder.rglob("*.bin")]:
            self.facts["index_bytes"] = sum(sizes)

    def search(self, queries: Vectors, k: int) -> Ids:
        """Return the ids (q, k), -1 for a missing one."""
        collection, found = self._collection, np.full((len(queries), k), -1, dtype=np.int64)
        for start in range(0, len(queries), ASKED_QUERIES):
            part = queries[start : start + ASKED_QUERIES]
            reply = collection.query(query_embeddings=part, n_results=k, include=[], where=filter_of(self._settings))
            for row, ids in enumerate(reply["ids"], start):
                found[row, : len(ids)] = [int(name) for name in ids]
        return found

    def delete(self, ids: range) -> None:
        """Delete these vectors, and search once, by which the index lets go of them."""
        collection = self._collection
        for start in range(ids.start, ids.stop, MOST_ROWS):
            rows = range(start, min(start + MOST_ROWS, ids.stop))
            collection.delete(ids=[str(row) for row in rows])
        probe = np.zeros((1, whole(self._settings, "dimensions")), dtype=np.float32) + 1
        collection.query(query_embeddings=probe, n_results=1, include=[])
