"""Chroma as a server: its collection is filled before the load and searched over HTTP; recall.

chromadb exists in the service's environment only, so what uses it is imported where it is used.
"""

from collections.abc import Mapping

from seamark.drivers.vectors.chroma_search import ID_FILE
from seamark.drivers.vectors.chroma_search import ChromaSearch as ChromaSearch
from seamark.drivers.vectors.dataset import Dataset, fill, recall, started
from seamark.load.driver import Hooks, Target
from seamark.model.service import Value


def populate(target: Target, seed: int) -> Mapping[str, Value]:
    """Make the data set, store and index it."""
    from seamark.drivers.vectors.chroma_collection import ChromaCollection, client_of

    data = Dataset.stage(target, seed)
    collection = ChromaCollection(client_of(target), target)
    facts = fill(collection, data, target.settings)
    (target.data / ID_FILE).write_text(collection.name_in_urls, encoding="ascii")
    return started(target, {**facts, **collection.facts})


def quality(target: Target, seed: int) -> Mapping[str, float]:
    """Return the recall over all queries, and the metrics of the start."""
    from seamark.drivers.vectors.chroma_collection import ChromaCollection, client_of

    return recall(target, ChromaCollection(client_of(target), target).search)


HOOKS = Hooks(populate=populate, quality=quality)
