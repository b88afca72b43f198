"""pgbench's tables, filled through psycopg2 by COPY as `pgbench -i` does, and the login. Measures nothing.

All tables lie in the schema `seamark`, so a user's database is not disturbed.
"""

import io
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing

import psycopg2
import psycopg2.extensions

from seamark.config.secrets import resolve
from seamark.drivers.postgres.requests import ACCOUNTS, TELLERS
from seamark.load.driver import Target, whole
from seamark.model.service import Value, entries

SCHEMA = "seamark"
BIGINT_FROM_SCALE = 20_000
CREATE = """
drop schema if exists {schema} cascade;
create schema {schema};
create table pgbench_history(tid int, bid int, aid {aid}, delta int, mtime timestamp, filler char(22));
create table pgbench_tellers(tid int not null, bid int, tbalance int, filler char(84)) with (fillfactor=100);
create table pgbench_accounts(aid {aid} not null, bid int, abalance int, filler char(84)) with (fillfactor=100);
create table pgbench_branches(bid int not null, bbalance int, filler char(88)) with (fillfactor=100);
create table inserts(id bigint generated always as identity, key bigint not null, payload char(84));
"""
KEYS = """
alter table pgbench_branches add primary key (bid);
alter table pgbench_tellers add primary key (tid);
alter table pgbench_accounts add primary key (aid);
alter table inserts add primary key (id);
create index inserts_key on inserts (key);
"""
SUMS = """
select (select coalesce(sum(abalance), 0) from pgbench_accounts),
       (select coalesce(sum(tbalance), 0) from pgbench_tellers),
       (select coalesce(sum(bbalance), 0) from pgbench_branches),
       (select coalesce(sum(delta), 0) from pgbench_history),
       (select count(*) from pgbench_history)
"""


def connect(
    target: Target, timeout_s: float = 0.0, session: Mapping[str, str] | None = None
) -> "psycopg2.extensions.connection":
    """Return an autocommitting connection with Seamark's schema as its search path, and parameters of a `session`.

    The embedded server's password lies beside its data. Without that file the settings `password`, `sslmode` and
    `sslrootcert` apply, then libpq's variables (PGUSER, PGPASSWORD, PGDATABASE, PGSSLMODE ...) and ~/.pgpass; each
    connection asks for `server_settings` itself, and fails with the server's words if it refuses one. The server ends
    a statement that exceeds `timeout_s` (0: never).
    """
    settings, password = target.settings, target.data / "password"
    parameters = {"search_path": SCHEMA, "statement_timeout": str(int(timeout_s * 1000))}
    if isolation := settings.get("isolation"):
        parameters["default_transaction_isolation"] = str(isolation)
    own = {name: str(value) for name in ("sslmode", "sslrootcert") if (value := settings.get(name)) is not None}
    if password.exists():
        own |= {"user": "bench", "password": password.read_text(encoding="ascii").strip()}
    else:
        parameters |= entries(settings.get("server_settings"))
        if reference := settings.get("password"):
            own["password"] = resolve(str(reference))
    parameters |= session or {}
    connection = psycopg2.connect(
        host=target.host,
        port=target.ports["main"],
        dbname=os.environ.get("PGDATABASE", "postgres"),
        options=" ".join(f"-c {name}={_escaped(value)}" for name, value in parameters.items()),
        application_name="seamark",
        connect_timeout=10,
        **own,
    )
    connection.autocommit = True
    return connection


def _escaped(value: str) -> str:
    """Return a value for libpq's `options`, where blanks separate words."""
    return value.replace("\\", "\\\\").replace(" ", "\\ ")


def make_tables(target: Target) -> Mapping[str, Value]:
    """Drop our schema, fill pgbench's tables, vacuum, and add the keys: the steps of `pgbench -i`, in its order.

    Returns rows, bytes and seconds, and the values that the server has for `server_settings`. In the embedded server
    a preloaded pg_stat_statements is made available too.
    """
    scale = whole(target.settings, "scale")
    started = time.monotonic()
    aid = "bigint" if scale >= BIGINT_FROM_SCALE else "int"
    with closing(connect(target)) as connection, connection.cursor() as cursor:
        # COPY FREEZE needs a table of the same transaction
        cursor.execute("begin")
        cursor.execute(CREATE.format(schema=SCHEMA, aid=aid))
        for table, lines in (
            ("pgbench_branches", (f"{bid}\t0\t\\N\n" for bid in range(1, scale + 1))),
            ("pgbench_tellers", _rows(scale, TELLERS, "\\N")),
            ("pgbench_accounts", _rows(scale, ACCOUNTS, "")),
        ):
            cursor.copy_expert(f"copy {table} from stdin with (freeze on)", _CopyFile(lines), 1 << 18)
        cursor.execute("commit")
        copied = time.monotonic()
        for table in ("branches", "tellers", "accounts", "history"):
            cursor.execute(f"vacuum analyze pgbench_{table}")
        cursor.execute(KEYS)
        cursor.execute("checkpoint")
        cursor.execute(
            "select sum(pg_total_relation_size(c.oid)), version() from pg_class c where relkind = 'r'"
            " and relnamespace = %s::regnamespace",
            (SCHEMA,),
        )
        size_bytes, version = cursor.fetchone()
        if (target.data / "password").exists():
            cursor.execute("show shared_preload_libraries")
            if "pg_stat_statements" in cursor.fetchone()[0]:
                cursor.execute("create extension if not exists pg_stat_statements schema public")
        in_effect = {}
        for name in entries(target.settings.get("server_settings")):
            cursor.execute("select current_setting(%s)", (name,))
            in_effect[name] = cursor.fetchone()[0]
    return {
        "scale": scale,
        "accounts": scale * ACCOUNTS,
        "tables_bytes": int(size_bytes),
        "copy_s": round(copied - started, 3),
        "populate_s": round(time.monotonic() - started, 3),
        "server": version,
        **({"server_settings": json.dumps(in_effect)} if in_effect else {}),
    }


def sums(target: Target) -> tuple[int, int, int, int, int]:
    """Return the sums of abalance, tbalance, bbalance and history.delta, and the number of rows of history."""
    with closing(connect(target)) as connection, connection.cursor() as cursor:
        cursor.execute(SUMS)
        accounts, tellers, branches, history, rows = (int(value) for value in cursor.fetchone())
        return accounts, tellers, branches, history, rows


def _rows(scale: int, per_branch: int, filler: str) -> Iterator[str]:
    """Yield the lines of accounts or tellers: number, branch, balance 0, filler."""
    for branch in range(scale):
        first = branch * per_branch + 1
        end = f"\t{branch + 1}\t0\t{filler}\n"
        for start in range(first, first + per_branch, 1000):
            yield "".join([f"{number}{end}" for number in range(start, min(start + 1000, first + per_branch))])


class _CopyFile(io.TextIOBase):
    """File object for COPY over an iterator, in constant memory."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self._left = ""

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> str:
        wanted = 1 << 62 if size is None or size < 0 else size
        parts, length = [self._left], len(self._left)
        while length < wanted and (piece := next(self._pieces, None)) is not None:
            parts.append(piece)
            length += len(piece)
        whole = "".join(parts)
        self._left = whole[wanted:]
        return whole[:wanted]
