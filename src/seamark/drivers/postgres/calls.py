"""Transactions through psycopg2: TPC-B-like ones, batches of rows, single statements over encrypted connections."""

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import psycopg2
import psycopg2.errorcodes
import psycopg2.extensions
from psycopg2.extras import execute_values

from seamark.drivers.postgres import tables
from seamark.drivers.postgres.pool import Pool, PoolTimeoutError
from seamark.drivers.postgres.replies import category
from seamark.drivers.postgres.requests import PAYLOAD, PREPARED, TableRequests
from seamark.load.driver import Body, Call, Reply, Session, Target, whole
from seamark.model.sample import Failure

GOOD = Reply()
WRONG = Reply(units=0, failure=Failure.WRONG_REPLY)
Run = Callable[[Body], Reply]
Cursor: TypeAlias = "psycopg2.extensions.cursor"


class PostgresCalls(Call):
    """One transaction a call, on one connection a session or on those of a pool."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._requests = TableRequests.of(target.settings)
        self._pool: Pool | None = None
        if connections := whole(target.settings, "connections", 0):
            # LoadJob.at_least makes no more workers than connections
            size = connections // target.workers + (target.worker < connections % target.workers)
            self._pool = Pool(self.connected, size, target.load.timeout_s)
        self.unit = self._requests.unit
        self.kinds: Sequence[str] = (self._requests.operation,)
        self.body_count = self._requests.body_count

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return seeded statements, ready to send; of a TPC-B its four numbers."""
        bodies, operation = self._requests.bodies(count, seed), self._requests.operation
        if operation == "tpcb":
            return bodies
        if operation in ENCODED:
            return [Body(content=ENCODED[operation](body.content)) for body in bodies]
        return [Body(content=f"execute {operation}{_texts(body.content)}".encode()) for body in bodies]

    def session(self) -> Session:
        """Return a connection of its own, or a share of the pool."""
        return self.connected() if self._pool is None else self._pool.join()

    def connected(self) -> Session:
        """Connect and prepare the statements."""
        return _TransactionSession(self._target, self._requests)

    def failure(self, error: Exception) -> Failure:
        """Classify an exception of psycopg2, by its SQLSTATE if it has one."""
        return Failure.TIMEOUT if isinstance(error, PoolTimeoutError) else failure_of(error)


def failure_of(error: Exception) -> Failure:
    """Return the category of an exception of psycopg2, by its SQLSTATE if it has one."""
    if isinstance(error, psycopg2.InterfaceError):
        return Failure.RESET
    if not isinstance(error, psycopg2.Error):
        return Failure.DRIVER
    if error.pgcode is None and isinstance(error, psycopg2.OperationalError):
        # libpq's own errors have no SQLSTATE: no connection was made, or it broke
        return Failure.CONNECT if "connection to server at" in str(error) else Failure.RESET
    return category(error.pgcode or "")


def in_words(sqlstate: str, message: str) -> str:
    """Return an error of the server's with the standard name of its condition, as `40P01 deadlock_detected: why`."""
    try:
        return f"{sqlstate} {psycopg2.errorcodes.lookup(sqlstate).lower()}: {message}"
    except KeyError:  # of an extension, or of a newer server
        return f"{sqlstate}: {message}"


class _TransactionSession:
    """One connection with its prepared statements. `call` runs one transaction; a failed one is rolled back, so the
    next can begin, and the server's error is in the reply."""

    def __init__(self, target: Target, requests: TableRequests) -> None:
        self._connection = tables.connect(target, target.load.timeout_s)
        self._cursor = self._connection.cursor()
        if requests.operation in PREPARED:
            self._cursor.execute(PREPARED[requests.operation])
        self._run: Run = _tpcb(self._cursor)
        if requests.operation == "insert_copy":
            self._run = _copy(self._cursor, requests.rows)
        elif requests.operation == "insert_values":
            self._run = _values(self._cursor, requests.rows, requests.page)
        elif requests.operation != "tpcb":
            self._run = _statement(self._cursor, requests.rows, counts_bytes=requests.operation == "insert_batch")

    def call(self, body: Body) -> Reply:
        """Run one transaction."""
        try:
            return self._run(body)
        except psycopg2.Error as error:
            if not self._connection.closed:
                with contextlib.suppress(psycopg2.Error):
                    self._cursor.execute("rollback")
            if error.pgcode is None:
                raise
            message = error.diag.message_primary or ""
            return Reply(units=0, failure=category(error.pgcode), error=in_words(error.pgcode, message))

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


def _statement(cursor: Cursor, rows: int, *, counts_bytes: bool) -> Run:
    """One statement, good if it returns the expected number of rows. They are counted as received and, as in pgbench,
    not parsed: parsing is the client's work, not the server's."""
    execute = cursor.execute

    def call(body: Body) -> Reply:
        execute(body.content)
        if cursor.rowcount != rows:
            return WRONG
        return Reply(bytes_sent=len(body.content)) if counts_bytes else GOOD

    return call


def _copy(cursor: Cursor, rows: int) -> Run:
    """One COPY of lines in its text format."""

    def call(body: Body) -> Reply:
        cursor.copy_expert("copy inserts (key, payload) from stdin", io.BytesIO(body.content))
        return Reply(units=rows, bytes_sent=len(body.content)) if cursor.rowcount == rows else WRONG

    return call


def _values(cursor: Cursor, rows: int, page: int) -> Run:
    """psycopg2's execute_values, with `page` rows a statement; several statements are one transaction. The client
    makes the statements while the clock runs, as an application does."""
    several, rows_of_last = rows > page, (rows - 1) % page + 1

    def call(body: Body) -> Reply:
        if several:
            cursor.execute("begin")
        execute_values(cursor, "insert into inserts (key, payload) values %s", body.content, page_size=page)
        inserted = cursor.rowcount  # of the last statement
        if several:
            cursor.execute("commit")
        return Reply(units=rows) if inserted == rows_of_last else WRONG

    return call


def _tpcb(cursor: Cursor) -> Run:
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

    return lambda body: transaction(*body.content)


def _texts(numbers: Sequence[int]) -> str:
    return f"({', '.join(map(str, numbers))})"


def _insert(keys: list[int]) -> bytes:
    """Return one statement that inserts a row for each key."""
    rows = ",".join([f"({key},'{PAYLOAD}')" for key in keys])
    return f"insert into inserts (key, payload) values {rows}".encode()


def _lines(keys: list[int]) -> bytes:
    """Return a line of COPY for each key."""
    return "".join([f"{key}\t{PAYLOAD}\n" for key in keys]).encode()


def _pairs(keys: list[int]) -> list[tuple[int, str]]:
    return [(key, PAYLOAD) for key in keys]


ENCODED: Mapping[str, Callable[[list[int]], object]] = {
    "insert_batch": _insert,
    "insert_copy": _lines,
    "insert_values": _pairs,
}
"""Operation -> content of a body that inserts a row for each key."""
