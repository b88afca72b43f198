"""Milvus: its collections, filled and loaded before the load; the driver of the trial's operation; recall.

pymilvus exists in the service's environment only, so it is imported where it is used.
"""

from collections.abc import Mapping

from seamark.drivers.vectors.dataset import Dataset, fill, recall, started
from seamark.load.driver import Call, Hooks, Target
from seamark.model.digest import seed_for
from seamark.model.service import Value


def driver(target: Target) -> Call:
    """Return the driver of the trial's operation. Raises UserError for a search that Milvus refuses."""
    from seamark.drivers.vectors.milvus_calls import Insert, MilvusSearch

    return Insert(target) if target.settings["operation"] == "insert" else MilvusSearch(target)


def populate(target: Target, seed: int) -> Mapping[str, Value]:
    """Generate the data set, store, index and load it, and create the empty collection of inserts."""
    from seamark.drivers.vectors.milvus_collection import MilvusCollection, client_of, make_inserted

    settings = target.settings
    data = Dataset.stage(target, seed)
    with client_of(target) as client:
        collection = MilvusCollection(client, target)
        facts = fill(collection, data, settings)
        make_inserted(client, settings)
    return started(target, {**facts, **collection.facts})


def quality(target: Target, seed: int) -> Mapping[str, float]:
    """Return the recall over all queries, or the number of this load's vectors in the server.

    The classes of a mix have bodies of other seeds, so nothing can be counted for them.
    """
    from seamark.drivers.vectors.milvus_collection import MilvusCollection, client_of, count_inserted

    if target.settings["operation"] == "insert":
        if target.load.mix:
            return {}
        with client_of(target) as client:
            return {"stored_vectors": float(count_inserted(client, seed_for(seed, "bodies")))}
    with client_of(target) as client:
        return recall(target, MilvusCollection(client, target).search)


HOOKS = Hooks(populate=populate, quality=quality)
