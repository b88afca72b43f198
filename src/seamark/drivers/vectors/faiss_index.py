"""Indexes and searches of FAISS, the library that faiss.py drives."""

import ctypes
import threading
from collections.abc import Mapping
from pathlib import Path
from time import monotonic_ns
from typing import Any

import faiss
import numpy as np

from seamark.datasets.neighbours import unit
from seamark.drivers.vectors.dataset import Dataset, Ids, Vectors, fill, started, visible
from seamark.errors import UserError
from seamark.load.driver import Body, Reply, Target, Track, whole
from seamark.model.sample import EventKind, Failure
from seamark.model.service import Value

INDEX_FILE = "index.faiss"
_CALLING = threading.local()
"""The number of threads that OpenMP has for the calling thread: it keeps one for each."""


class FaissIndex:
    """An index of one kind; an hnsw graph is the same on every run when one thread builds it."""

    def __init__(self, index: Any, settings: Mapping[str, Value]) -> None:
        self.index = index
        self._settings = settings

    @staticmethod
    def empty(settings: Mapping[str, Value]) -> "FaissIndex":
        """Return an index of the kind and size that the settings name, with no vectors in it."""
        dimensions = whole(settings, "dimensions")
        metric = faiss.METRIC_L2 if settings["metric"] == "l2" else faiss.METRIC_INNER_PRODUCT
        if settings["index"] == "flat":
            return FaissIndex(faiss.IndexFlat(dimensions, metric), settings)
        if settings["index"] == "hnsw":
            graph = faiss.IndexHNSWFlat(dimensions, whole(settings, "m"), metric)
            graph.hnsw.efConstruction = whole(settings, "ef_construction")
            return FaissIndex(graph, settings)
        coarse = faiss.IndexFlat(dimensions, metric)
        cells = faiss.IndexIVFFlat(coarse, dimensions, whole(settings, "lists"), metric)
        cells.cp.min_points_per_centroid = 1  # fewer vectors than FAISS advises are the scenario's own choice
        return FaissIndex(cells, settings)

    @staticmethod
    def read(path: Path, settings: Mapping[str, Value]) -> "FaissIndex":
        """Return the index that lies at `path`, set to search as this trial's settings say."""
        index = faiss.read_index(str(path))
        if settings["index"] == "hnsw":
            index.hnsw.efSearch = whole(settings, "ef_search")
        elif settings["index"] == "ivf":
            index.nprobe = whole(settings, "nprobe")
        return FaissIndex(index, settings)

    def build(self, vectors: Vectors) -> None:
        """Train on the vectors; only inverted lists need it."""
        self.index.train(directed(vectors, self._settings))

    def ingest(self, vectors: Vectors) -> None:
        """Add all vectors; for hnsw this builds the graph."""
        self.index.add(directed(vectors, self._settings))

    def search(self, queries: Vectors, k: int) -> Ids:
        """Return the ids (q, k), -1 for a missing one."""
        asked = directed(queries, self._settings)
        ids: Ids = self.index.search(asked, k, params=filter_of(self.index, self._settings))[1]
        return ids

    def delete(self, ids: range) -> None:
        """Delete these vectors. Raises UserError for a graph, which cannot."""
        if self._settings["index"] == "hnsw":
            raise UserError("deleted_ratio: FAISS deletes nothing from hnsw. Choose 'index: flat' or 'index: ivf'.")
        self.index.remove_ids(faiss.IDSelectorRange(ids.start, ids.stop))


def directed(vectors: Vectors, settings: Mapping[str, Value]) -> Vectors:
    """Return vectors as FAISS compares them: a cosine is the inner product of unit vectors."""
    return unit(vectors) if settings["metric"] == "cosine" else vectors


def filter_of(index: Any, settings: Mapping[str, Value]) -> Any:
    """Return the parameters of a search among the vectors that pass a filter, None without one."""
    if settings.get("filter_ratio") is None:
        return None
    passing = faiss.IDSelectorRange(0, visible(settings, whole(settings, "vectors"))[1])
    if settings["index"] == "hnsw":
        return faiss.SearchParametersHNSW(sel=passing, efSearch=index.hnsw.efSearch)
    if settings["index"] == "ivf":
        return faiss.SearchParametersIVF(sel=passing, nprobe=index.nprobe)
    return faiss.SearchParameters(sel=passing)


def write_index(target: Target, seed: int) -> Mapping[str, Value]:
    """Generate the data set, build the index, and write both into the deployment's folder."""
    settings = target.settings
    data = Dataset.stage(target, seed)
    faiss.omp_set_num_threads(whole(settings, "build_threads"))
    index = FaissIndex.empty(settings)
    facts = fill(index, data, settings)
    path = target.data / INDEX_FILE
    faiss.write_index(index.index, str(path))
    del index
    size_bytes, resident_bytes = path.stat().st_size, _resident_bytes_of(path)
    index_s = sum(float(facts[name] or 0.0) for name in ("build_s", "ingest_s"))
    sizes = {"index_bytes": size_bytes, "index_resident_bytes": resident_bytes}
    return started(target, {**facts, "index_s": index_s, **sizes})


class SearchSession:
    """The searches of one thread. FAISS releases the interpreter's lock while it searches."""

    def __init__(self, index: Any, settings: Mapping[str, Value], track: Track | None = None) -> None:
        self._index = index
        self._track = track
        self._k = whole(settings, "k")
        self._threads = whole(settings, "threads_per_search")
        self._filter = filter_of(index, settings)
        batch = whole(settings, "batch")
        self._distances = np.empty((batch, self._k), dtype=np.float32)
        self._ids = np.empty((batch, self._k), dtype=np.int64)

    def call(self, body: Body) -> Reply:
        """Search one batch; an answer without any id for a query is empty."""
        self._set_threads()
        self._index.search(body.content, self._k, params=self._filter, D=self._distances, I=self._ids)
        return self._reply(body)

    def call_traced(self, body: Body, query: int) -> Reply:
        """Search one batch and record its stages: of inverted lists two calls of FAISS, with the same result."""
        assert self._track is not None
        self._set_threads()
        index, begin_ns = self._index, monotonic_ns()
        if isinstance(index, faiss.IndexIVF) and self._filter is None:
            distances, lists = index.quantizer.search(body.content, index.nprobe)
            chosen_ns = monotonic_ns()
            index.search_preassigned(body.content, self._k, lists, distances, D=self._distances, I=self._ids)
            self._track.add(query, 0, EventKind.RUN, begin_ns, chosen_ns)
            self._track.add(query, 1, EventKind.RUN, chosen_ns, monotonic_ns())
        else:
            index.search(body.content, self._k, params=self._filter, D=self._distances, I=self._ids)
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
    """Return this process's own memory, without pages of files: code that is run for the first time is no index."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
