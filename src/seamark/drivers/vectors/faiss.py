"""FAISS as a library: the Call driver that searches its index, which is built before the load. No server.

The library exists in the service's environment only, so faiss_index.py is imported where it is used.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from seamark.drivers.vectors.dataset import Vectors, in_batches, recall
from seamark.load.driver import Body, Call, Hooks, Target, whole
from seamark.model.sample import Failure
from seamark.model.service import Value

if TYPE_CHECKING:
    from seamark.drivers.vectors.faiss_index import SearchSession


def stage(target: Target, seed: int) -> Mapping[str, Value]:
    """Generate the data set, build the index, and write both into the deployment's folder."""
    from seamark.drivers.vectors.faiss_index import write_index

    return write_index(target, seed)


def quality(target: Target, seed: int) -> Mapping[str, float]:
    """Return the recall over all queries of the data set, searched as this trial's settings say."""
    from seamark.drivers.vectors.faiss_index import INDEX_FILE, FaissIndex

    return recall(target, FaissIndex.read(target.data / INDEX_FILE, target.settings).search)


class Search(Call):
    """Searches the index built by `stage`; every worker process has its own copy."""

    unit = "query"
    kinds: Sequence[str] = ("search",)

    def __init__(self, target: Target) -> None:
        from seamark.drivers.vectors.faiss_index import INDEX_FILE, FaissIndex, directed

        self._settings = target.settings
        self._events = target.events
        self._index = FaissIndex.read(target.data / INDEX_FILE, target.settings).index
        self._queries: Vectors = directed(np.load(target.data / "queries.npy"), target.settings)
        apart = target.settings["index"] == "ivf" and target.settings.get("filter_ratio") is None
        self.stages = ("choose lists", "scan lists") if apart else ("search",)
        self.body_count = max(len(self._queries), 64)
        """One body for each query, so that every query is sent once before any repeats."""

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return batches of queries: all queries in seeded order, again and again, cut into batches."""
        batches = in_batches(len(self._queries), count, whole(self._settings, "batch"), seed)
        return [Body(content=np.ascontiguousarray(self._queries[batch])) for batch in batches]

    def session(self) -> "SearchSession":
        """Return a session with room for the answers of one request."""
        from seamark.drivers.vectors.faiss_index import SearchSession

        return SearchSession(self._index, self._settings, None if self._events is None else self._events.track())

    def failure(self, error: Exception) -> Failure:
        """FAISS runs in this process, so its exceptions are failures of the driver."""
        return Failure.DRIVER


HOOKS = Hooks(stage=stage, quality=quality)
