"""PostgreSQL through psycopg2: indexed reads, writes, batches, and pgbench's TPC-B-like transaction.

The tables are made in postgres_tables.py.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import psycopg2
import psycopg2.extensions
from psycopg2 import errors

from seamark.drivers import postgres_tables
from seamark.drivers.postgres_tables import ACCOUNTS, TELLERS
from seamark.errors import UserError
from seamark.load.driver import Body, Reply, Target
from seamark.model.failure import Failure
from seamark.model.service import Value

MAX_BODIES = 1 << 17
MAX_BODIES_BYTES = 1 << 26
PAYLOAD = "seamark " * 10
PREPARED = {
    "lookup": "prepare lookup(bigint) as select abalance from pgbench_accounts where aid = $1",
    "range": "prepare range(bigint, bigint) as select * from pgbench_accounts where aid between $1 and $2",
    "update": "prepare update(bigint) as update pgbench_accounts set filler = 'updated' where aid = $1",
}
"""Statements the server parses and plans once. An update leaves balances alone, so that TPC-B's sums still hold."""

GOOD = Reply()
WRONG = Reply(units=0, failure=Failure.WRONG_REPLY)
Run = Callable[[Body], Reply]
Cursor: TypeAlias = "psycopg2.extensions.cursor"


class Postgres:
    """One transaction a call, on one connection a session. Rows are drawn as pgbench draws them: uniformly."""

    unit = "transaction"

    def __init__(self, target: Target) -> None:
        self._target = target
        self._operation = str(target.settings["operation"])
        self._scale = _int(target.settings, "scale")
        self._batch = _int(target.settings, "batch")
        self._accounts = self._scale * ACCOUNTS
        self.kinds = (self._operation,)
        if self._operation == "range" and self._batch > self._accounts:
            raise UserError(
                f"postgres: a range of {self._batch:,} rows is larger than the table ({self._accounts:,} rows). "
                "Lower `batch` or raise `scale`."
            )

    @property
    def body_count(self) -> int:
        """Different bodies worth making: enough to touch the whole table, in bounded memory."""
        if self._operation == "insert_batch":
            return max(16, min(1024, MAX_BODIES_BYTES // (self._batch * (len(PAYLOAD) + 26))))
        return min(MAX_BODIES, self._accounts)

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return seeded statements, ready to send; of a TPC-B its four numbers (aid, bid, tid, delta)."""
        random = np.random.default_rng(seed)
        if self._operation == "insert_batch":
            keys = random.integers(0, 1 << 62, (count, self._batch))
            return [Body(content=_insert(row.tolist())) for row in keys]
        if self._operation == "tpcb":
            columns = (
                random.integers(1, self._accounts, count, endpoint=True).tolist(),
                random.integers(1, self._scale, count, endpoint=True).tolist(),
                random.integers(1, self._scale * TELLERS, count, endpoint=True).tolist(),
                random.integers(-5000, 5000, count, endpoint=True).tolist(),
            )
            return [Body(content=numbers) for numbers in zip(*columns, strict=True)]
        if self._operation == "range":
            firsts = random.integers(1, self._accounts - self._batch + 1, count, endpoint=True).tolist()
            return [Body(content=b"execute range(%d, %d)" % (aid, aid + self._batch - 1)) for aid in firsts]
        execute = f"execute {self._operation}(%d)".encode()
        return [
            Body(content=execute % aid) for aid in random.integers(1, self._accounts, count, endpoint=True).tolist()
        ]

    def session(self) -> "_Session":
        """Connect, and prepare what is prepared."""
        return _Session(self._target, self._operation, self._batch)

    def failure(self, error: Exception) -> Failure:
        """Sort what psycopg2 raises; SQLSTATE decides where there is one.

        40 (serialisation, deadlock), 53, 54, 58 and XX are the server's; 22, 23 and 42 blame the statement.
        """
        if isinstance(error, errors.QueryCanceled | errors.LockNotAvailable):
            return Failure.TIMEOUT
        if isinstance(error, psycopg2.InterfaceError | errors.AdminShutdown | errors.CrashShutdown):
            return Failure.RESET
        if isinstance(error, errors.CannotConnectNow):
            return Failure.CONNECT
        if isinstance(error, psycopg2.OperationalError) and error.pgcode is None:
            # libpq's own errors have no SQLSTATE: no connection could be made, or it broke
            return Failure.CONNECT if "connection to server at" in str(error) else Failure.RESET
        if isinstance(error, psycopg2.Error):
            return Failure.CLIENT_ERROR if (error.pgcode or "")[:2] in ("22", "23", "42") else Failure.SERVER_ERROR
        return Failure.DRIVER


class _Session:
    """One connection and what is prepared on it. `call` runs one transaction; one that failed is rolled back, so that
    the next can begin."""

    def __init__(self, target: Target, operation: str, batch: int) -> None:
        timeout_s = float(target.settings.get("timeout_s") or 0)
        self._connection = postgres_tables.connect(target, timeout_s)
        self._cursor = self._connection.cursor()
        if operation in PREPARED:
            self._cursor.execute(PREPARED[operation])
        self.call: Run = RUNS[operation](self._cursor, batch)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


def _roll_back(cursor: Cursor) -> None:
    if not cursor.connection.closed:
        with contextlib.suppress(psycopg2.Error):
            cursor.execute("rollback")


def _one_row(cursor: Cursor, _: int) -> Run:
    return _statement(cursor, 1)


def _statement(cursor: Cursor, rows: int) -> Run:
    """One statement, good when it has so many rows. They are counted where they arrived and, as in pgbench, not
    looked at: making objects of them is the client's work, not the server's."""
    execute = cursor.execute

    def call(body: Body) -> Reply:
        try:
            execute(body.content)
        except psycopg2.Error:
            _roll_back(cursor)
            raise
        return GOOD if cursor.rowcount == rows else WRONG

    return call


def _insert_batch(cursor: Cursor, rows: int) -> Run:
    insert = _statement(cursor, rows)

    def call(body: Body) -> Reply:
        reply = insert(body)
        return Reply(bytes_sent=len(body.content)) if reply is GOOD else reply

    return call


def _tpcb(cursor: Cursor, _: int) -> Run:
    """The seven statements of pgbench's script `tpcb-like`, each sent and answered by itself."""
    execute = cursor.execute

    def transaction(aid: int, bid: int, tid: int, delta: int) -> Reply:
        execute("BEGIN")
        execute(f"UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {aid}")
        execute(f"SELECT abalance FROM pgbench_accounts WHERE aid = {aid}")
        found = cursor.rowcount
        execute(f"UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {tid}")
        execute(f"UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = {bid}")
        execute(
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) "
            f"VALUES ({tid}, {bid}, {aid}, {delta}, CURRENT_TIMESTAMP)"
        )
        execute("END")
        return GOOD if found == 1 else WRONG

    def call(body: Body) -> Reply:
        try:
            return transaction(*body.content)
        except psycopg2.Error:
            _roll_back(cursor)
            raise

    return call


RUNS: Mapping[str, Callable[[Cursor, int], Run]] = {
    "lookup": _one_row,
    "range": _statement,
    "update": _one_row,
    "insert_batch": _insert_batch,
    "tpcb": _tpcb,
}


def _insert(keys: list[int]) -> bytes:
    """Return one statement that inserts a row for each key."""
    rows = ",".join([f"({key},'{PAYLOAD}')" for key in keys])
    return f"insert into inserts (key, payload) values {rows}".encode()


def populate(target: Target, seed: int) -> Mapping[str, Value]:
    """Make pgbench's tables; nothing in them is random."""
    return postgres_tables.make_tables(target)


def quality(target: Target, seed: int) -> Mapping[str, float]:
    """After TPC-B: 1 when the sums of all balances and of history's deltas are equal, as committed transactions
    leave them, else 0."""
    if target.settings["operation"] != "tpcb":
        return {}
    accounts, tellers, branches, history, _ = postgres_tables.sums(target)
    return {"tpcb_consistent": float(accounts == tellers == branches == history)}


def _int(settings: Mapping[str, Value], name: str) -> int:
    value = settings[name]
    assert isinstance(value, int)
    return value
