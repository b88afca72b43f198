"""Transactions through psycopg2: TPC-B-like ones, batches of rows, single statements over encrypted connections."""

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

import psycopg2
import psycopg2.errorcodes
import psycopg2.extensions

from seamark.drivers.postgres import tables
from seamark.drivers.postgres.replies import category
from seamark.drivers.postgres.requests import PAYLOAD, PREPARED, TableRequests
from seamark.load.driver import Body, Call, Reply, Session, Target
from seamark.model.sample import Failure

GOOD = Reply()
WRONG = Reply(units=0, failure=Failure.WRONG_REPLY)
Run = Callable[[Body], Reply]
Cursor: TypeAlias = "psycopg2.extensions.cursor"


class PostgresCalls(Call):
    """One transaction a call, on one connection a session."""

    unit = "transaction"

    def __init__(self, target: Target) -> None:
        self._target = target
        self._requests = TableRequests.of(target.settings)
        self.kinds: Sequence[str] = (self._requests.operation,)
        self.body_count = self._requests.body_count

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return seeded statements, ready to send; of a TPC-B its four numbers."""
        bodies, operation = self._requests.bodies(count, seed), self._requests.operation
        if operation == "tpcb":
            return bodies
        if operation == "insert_batch":
            return [Body(content=_insert(body.content)) for body in bodies]
        return [Body(content=f"execute {operation}{_texts(body.content)}".encode()) for body in bodies]

    def session(self) -> Session:
        """Connect and prepare the statements."""
        return _TransactionSession(self._target, self._requests)

    def failure(self, error: Exception) -> Failure:
        """Classify an exception of psycopg2, by its SQLSTATE if it has one."""
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
        if requests.operation != "tpcb":
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
