"""pgvector: a table of vectors in PostgreSQL, filled and indexed before the load, and searched through psycopg2.

psycopg2 exists in the service's environment only, so what uses it is imported where it is used.
"""

from collections.abc import Mapping
from contextlib import closing

from seamark.drivers.vectors.dataset import Dataset, fill, recall, started
from seamark.errors import UserError
from seamark.load.driver import Call, Hooks, Target, whole
from seamark.model.service import Value


def driver(target: Target) -> Call:
    """Return the driver of searches. Raises UserError for a search that would find fewer than `k`."""
    from seamark.drivers.vectors.pgvector_table import PgvectorSearch

    ef, k = whole(target.settings, "ef_search"), whole(target.settings, "k")
    if target.settings["index"] == "hnsw" and ef < k:
        raise UserError(
            f"ef_search: {ef} is less than k, {k}, and pgvector finds no more. Set ef_search to {k} or more."
        )
    return PgvectorSearch(target)


def populate(target: Target, seed: int) -> Mapping[str, Value]:
    """Make the data set, store and index it."""
    from seamark.drivers.vectors.pgvector_table import PgvectorTable, connected

    data = Dataset.stage(target, seed)
    with closing(connected(target)) as connection:
        table = PgvectorTable(connection, target.settings)
        facts = fill(table, data, target.settings)
    return started(target, {**facts, **table.facts})


def quality(target: Target, seed: int) -> Mapping[str, float]:
    """Return the recall over all queries, and the metrics of the start."""
    from seamark.drivers.vectors.pgvector_table import PgvectorTable, connected

    with closing(connected(target)) as connection:
        return recall(target, PgvectorTable(connection, target.settings).search)


HOOKS = Hooks(populate=populate, quality=quality)
