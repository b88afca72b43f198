"""The table of pgvector: filled by binary COPY, indexed, searched by one prepared statement a connection."""

import io
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seamark.drivers.postgres import tables
from seamark.drivers.postgres.calls import failure_of
from seamark.drivers.vectors.dataset import Ids, Vectors, in_batches, in_text, visible
from seamark.load.driver import Body, Call, Reply, Target, whole
from seamark.model.sample import Failure
from seamark.model.service import Value

if TYPE_CHECKING:
    import psycopg2.extensions

OPERATORS = {"l2": ("<->", "vector_l2_ops"), "ip": ("<#>", "vector_ip_ops"), "cosine": ("<=>", "vector_cosine_ops")}
ROWS_PER_COPY = 10_000
COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_END = b"\xff\xff"
MAKE = f"""
drop schema if exists {tables.SCHEMA} cascade;
create schema {tables.SCHEMA};
create extension if not exists vector;
"""


def connected(target: Target, timeout_s: float = 0.0) -> "psycopg2.extensions.connection":
    """Return a connection that searches as the settings say, with the index if there is one."""
    settings = target.settings
    session = {"search_path": f"{tables.SCHEMA},public"}
    if settings["index"] != "flat":
        session["enable_seqscan"] = "off"  # the planner takes a scan of the whole table for little dearer
    knobs = {"hnsw": ("hnsw.ef_search", "ef_search"), "ivf": ("ivfflat.probes", "nprobe")}
    for index, (parameter, setting) in knobs.items():
        if settings["index"] == index and settings.get(setting) is not None:
            session[parameter] = str(settings[setting])
    if (iterative := settings.get("iterative_scan")) is not None and settings["index"] != "flat":
        session[f"{'hnsw' if settings['index'] == 'hnsw' else 'ivfflat'}.iterative_scan"] = str(iterative)
    return tables.connect(target, timeout_s, session)


def search_of(settings: Mapping[str, Value]) -> str:
    """Return the statement `knn`, to be prepared."""
    passing = visible(settings, whole(settings, "vectors"))[1]
    where = "" if settings.get("filter_ratio") is None else f"where id < {passing} "
    operator = OPERATORS[str(settings["metric"])][0]
    limit = whole(settings, "k")
    return f"prepare knn(vector) as select id from vectors {where}order by vector {operator} $1 limit {limit}"


def statement(query: Vectors) -> bytes:
    """Return the search for one query (d,)."""
    return f"execute knn('{in_text(query)}')".encode()


def copied(vectors: Vectors, first: int) -> bytes:
    """Return rows for COPY in PostgreSQL's binary format, numbered from `first`."""
    head = "fields:>i2 id_bytes:>i4 id:>i8 vector_bytes:>i4 dimensions:>i2 unused:>i2"
    layout: list[Any] = [tuple(field.split(":")) for field in head.split()]
    rows = np.zeros(len(vectors), dtype=[*layout, ("vector", ">f4", (vectors.shape[1],))])
    rows["fields"], rows["id_bytes"], rows["vector_bytes"] = 2, 8, 4 + 4 * vectors.shape[1]
    rows["id"] = np.arange(first, first + len(vectors))
    rows["dimensions"], rows["vector"] = vectors.shape[1], vectors
    return COPY_HEAD + rows.tobytes() + COPY_END


class PgvectorTable:
    """The table, over one connection."""

    def __init__(self, connection: "psycopg2.extensions.connection", settings: Mapping[str, Value]) -> None:
        self._cursor = connection.cursor()
        self._settings = settings
        self.facts: dict[str, Value] = {}

    def build(self, vectors: Vectors) -> None:
        """Make the schema, the extension and the table, empty."""
        self._cursor.execute(MAKE)
        self._cursor.execute(
            f"create table vectors(id bigint primary key, vector vector({vectors.shape[1]}) not null)"
        )
        self._cursor.execute("alter table vectors alter column vector set storage plain")  # never out of line

    def ingest(self, vectors: Vectors) -> None:
        """Copy all vectors, then index them."""
        began_s = time.monotonic()
        for first in range(0, len(vectors), ROWS_PER_COPY):
            rows = copied(vectors[first : first + ROWS_PER_COPY], first)
            self._cursor.copy_expert("copy vectors from stdin with (format binary)", io.BytesIO(rows))
        copied_s = time.monotonic()
        settings, operators = self._settings, OPERATORS[str(self._settings["metric"])][1]
        graph = f"m = {settings['m']}, ef_construction = {settings['ef_construction']}"
        how = {
            "hnsw": f"hnsw (vector {operators}) with ({graph})",
            "ivf": f"ivfflat (vector {operators}) with (lists = {settings['lists']})",
        }.get(str(settings["index"]))
        if how is not None:
            self._cursor.execute(f"create index neighbours on vectors using {how}")
            self.facts["index_s"] = round(time.monotonic() - copied_s, 4)
        self._cursor.execute("vacuum analyze vectors")
        self.facts["insert_s"] = round(copied_s - began_s, 4)
        self._cursor.execute(
            "select coalesce(pg_relation_size(to_regclass('neighbours')), 0), pg_total_relation_size('vectors'),"
            " version(), (select extversion from pg_extension where extname = 'vector')"
        )
        facts = zip(("index_bytes", "table_bytes", "server", "pgvector"), self._cursor.fetchone() or (), strict=True)
        self.facts |= dict(facts)

    def search(self, queries: Vectors, k: int) -> Ids:
        """Return the ids (q, k), -1 for a missing one."""
        self._cursor.execute(search_of({**self._settings, "k": k}))
        found = np.full((len(queries), k), -1, dtype=np.int64)
        for row, query in enumerate(queries):
            self._cursor.execute(statement(query))
            ids = [name for (name,) in self._cursor.fetchall()]
            found[row, : len(ids)] = ids
        return found

    def delete(self, ids: range) -> None:
        """Delete these rows, and vacuum them out of the index."""
        self._cursor.execute("delete from vectors where id >= %s and id < %s", (ids.start, ids.stop))
        self._cursor.execute("vacuum analyze vectors")


class PgvectorSearch(Call):
    """One query a request: pgvector has no batches. A reply without any neighbour is empty."""

    unit = "query"
    kinds: Sequence[str] = ("search",)

    def __init__(self, target: Target) -> None:
        self._target = target
        self._queries: Vectors = np.load(target.data / "queries.npy")
        self.body_count = max(len(self._queries), 64)

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return all queries in seeded order, again and again, as statements."""
        statements = [statement(query) for query in self._queries]
        return [Body(content=statements[at]) for (at,) in in_batches(len(self._queries), count, 1, seed)]

    def session(self) -> "_SearchSession":
        """Return a connection on which the search is prepared."""
        return _SearchSession(self._target)

    def failure(self, error: Exception) -> Failure:
        """Return the category of an exception of psycopg2."""
        return failure_of(error)


class _SearchSession:
    def __init__(self, target: Target) -> None:
        self._connection = connected(target, target.load.timeout_s)
        self._cursor = self._connection.cursor()
        self._cursor.execute(search_of(target.settings))

    def call(self, body: Body) -> Reply:
        """Search, and count the rows that came."""
        self._cursor.execute(body.content)
        if self._cursor.rowcount < 1:
            return Reply(units=0, failure=Failure.EMPTY_REPLY)
        return Reply(bytes_sent=len(body.content))

    def close(self) -> None:
        """End the connection."""
        self._connection.close()
