"""Indexes and searches of FAISS, the library that faiss.py drives."""

import ctypes
import resource
import threading
from collections.abc import Mapping
from pathlib import Path
from time import monotonic_ns
from typing import Any

import faiss
import numpy as np

from seamark.drivers.vectors.dataset import Dataset, Ids, Vectors, fill
from seamark.load.driver import Body, Reply, Target, Track, whole
from seamark.model.sample import EventKind, Failure
from seamark.model.service import Value

INDEX_FILE = "index.faiss"
_CALLING = threading.local()
"""The number of threads that OpenMP has for the calling thread: it keeps one for each."""


class FaissIndex:
    """An index of one kind; an hnsw graph is the same on every run when one thread builds it."""

    def __init__(self, index: Any) -> None:
        self.index = index

    @staticmethod
    def empty(settings: Mapping[str, Value]) -> "FaissIndex":
        """Return an index of the kind and size that the settings name, with no vectors in it."""
        dimensions = whole(settings, "dimensions")
        if settings["index"] == "flat":
            return FaissIndex(faiss.IndexFlatL2(dimensions))
        if settings["index"] == "hnsw":
            graph = faiss.IndexHNSWFlat(dimensions, whole(settings, "m"))
            graph.hnsw.efConstruction = whole(settings, "ef_construction")
            return FaissIndex(graph)
        cells = faiss.IndexIVFFlat(faiss.IndexFlatL2(dimensions), dimensions, whole(settings, "lists"))
        cells.cp.min_points_per_centroid = 1  # fewer vectors than FAISS advises are the scenario's own choice
        return FaissIndex(cells)

    @staticmethod
    def read(path: Path, settings: Mapping[str, Value]) -> "FaissIndex":
        """Return the index that lies at `path`, set to search as this trial's settings say."""
        index = faiss.read_index(str(path))
        if settings["index"] == "hnsw":
            index.hnsw.efSearch = whole(settings, "ef_search")
        elif settings["index"] == "ivf":
            index.nprobe = whole(settings, "nprobe")
        return FaissIndex(index)

    def build(self, vectors: Vectors) -> None:
        """Train on the vectors; only inverted lists need it."""
        self.index.train(vectors)

    def ingest(self, vectors: Vectors) -> None:
        """Add all vectors; for hnsw this builds the graph."""
        self.index.add(vectors)

    def search(self, queries: Vectors, k: int) -> Ids:
        """Return the ids (q, k), -1 for a missing one."""
        ids: Ids = self.index.search(queries, k)[1]
        return ids


def write_index(target: Target, seed: int) -> Mapping[str, Value]:
    """Generate the data set, build the index, and write both into the deployment's folder."""
    settings = target.settings
    data = Dataset.stage(target, seed)
    faiss.omp_set_num_threads(whole(settings, "build_threads"))
    index = FaissIndex.empty(settings)
    facts = fill(index, data)
    path = target.data / INDEX_FILE
    faiss.write_index(index.index, str(path))
    del index
    return {**facts, "index_bytes": path.stat().st_size, "index_resident_bytes": _resident_bytes_of(path)}


class SearchSession:
    """The searches of one thread. FAISS releases the interpreter's lock while it searches."""

    def __init__(self, index: Any, settings: Mapping[str, Value], track: Track | None = None) -> None:
        self._index = index
        self._track = track
        self._k = whole(settings, "k")
        self._threads = whole(settings, "threads_per_search")
        batch = whole(settings, "batch")
        self._distances = np.empty((batch, self._k), dtype=np.float32)
        self._ids = np.empty((batch, self._k), dtype=np.int64)

    def call(self, body: Body) -> Reply:
        """Search one batch; an answer without any id for a query is empty."""
        self._set_threads()
        self._index.search(body.content, self._k, D=self._distances, I=self._ids)
        return self._reply(body)

    def call_traced(self, body: Body, query: int) -> Reply:
        """Search one batch and record its stages: of inverted lists two calls of FAISS, with the same result."""
        assert self._track is not None
        self._set_threads()
        index, begin_ns = self._index, monotonic_ns()
        if isinstance(index, faiss.IndexIVF):
            distances, lists = index.quantizer.search(body.content, index.nprobe)
            chosen_ns = monotonic_ns()
            index.search_preassigned(body.content, self._k, lists, distances, D=self._distances, I=self._ids)
            self._track.add(query, 0, EventKind.RUN, begin_ns, chosen_ns)
            self._track.add(query, 1, EventKind.RUN, chosen_ns, monotonic_ns())
        else:
            index.search(body.content, self._k, D=self._distances, I=self._ids)
            self._track.add(query, 0, EventKind.RUN, begin_ns, monotonic_ns())
        return self._reply(body)

    def _set_threads(self) -> None:
        if getattr(_CALLING, "threads", None) != self._threads:  # classes of a mix share their calling threads
            faiss.omp_set_num_threads(self._threads)
            _CALLING.threads = self._threads

    def _reply(self, body: Body) -> Reply:
        if self._ids[:, 0].min() < 0:
            return Reply(units=0, failure=Failure.EMPTY_REPLY)
        return Reply(units=len(body.content))

    def close(self) -> None:
        """Nothing is held but memory."""


def _resident_bytes_of(path: Path) -> int:
    """Return the memory of an index after loading, without the remains of building it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc keeps freed memory and would reuse it for the index unseen
        trim(0)
    before_bytes = _resident_bytes()
    index = faiss.read_index(str(path))
    taken_bytes = _resident_bytes() - before_bytes
    del index
    return max(0, taken_bytes)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()
