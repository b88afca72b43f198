"""What test_postgres.py asks in the environment of PostgreSQL. Every answer is JSON."""

import threading
import time
from pathlib import Path
from typing import Any

import psycopg2

from seamark.drivers.postgres import pgbench, tables
from seamark.drivers.postgres.calls import PostgresCalls
from seamark.load.driver import Body, Reply, Target


def target(where: dict[str, Any]) -> Target:
    return Target(settings=where["settings"], data=Path(where["data"]), ports=where["ports"])


def sums(where: dict[str, Any]) -> Any:
    return tables.sums(target(where))


def judged(where: dict[str, Any]) -> Any:
    return dict(pgbench.quality(target(where), 1))


def query(where: dict[str, Any], statement: str) -> Any:
    """Run one statement; give its rows as text."""
    connection = tables.connect(target(where))
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [[str(value) for value in row] for row in cursor.fetchall()] if cursor.description else []


def category(where: dict[str, Any], trouble: str) -> Any:
    """Get a session into trouble; give the category of what it raised and whether it can go on."""
    driver = PostgresCalls(target(where))
    good = driver.bodies(1, 1)[0]
    if trouble == "refused":
        nobody = Target(settings=where["settings"], data=Path(where["data"]), ports={"main": 1})
        return [_failure(driver, lambda: PostgresCalls(nobody).session()), False]
    session = driver.session()
    session.call(good)
    if trouble == "statement":
        failed = _failure(driver, lambda: session.call(Body(content=b"select wrong")))
    elif trouble == "slow":
        failed = _failure(driver, lambda: session.call(Body(content=b"select pg_sleep(30)")))
    elif trouble == "terminated":
        query(where, "select pg_terminate_backend(pid) from pg_stat_activity where query like 'execute%'")
        failed = _failure(driver, lambda: session.call(good))
    else:
        failed = _deadlock(driver, where)
    return [failed, _failure(driver, lambda: session.call(good)) is None]


def trouble(where: dict[str, Any], trouble: str) -> Any:
    """Disturb the connections of a load, for half a second where that takes time."""
    if trouble == "terminated":
        return query(
            where,
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'seamark' and pid <> pg_backend_pid()",
        )
    if trouble == "deadlock":
        return _deadlock_of_load(where)
    with tables.connect(target(where)).cursor() as cursor:
        cursor.execute("begin")
        if trouble == "locked":
            cursor.execute("lock table pgbench_accounts")
        else:
            cursor.execute("alter table pgbench_accounts rename to elsewhere; commit; begin")
        time.sleep(0.5)
        if trouble == "renamed":
            cursor.execute("alter table elsewhere rename to pgbench_accounts")
        cursor.execute("commit")
    return None


def _deadlock_of_load(where: dict[str, Any]) -> None:
    """Hold all branches until a transaction of a load, which has changed an account, waits for one; then ask for the
    accounts. As this side never looks for a deadlock, PostgreSQL ends the load's transaction."""
    with tables.connect(target(where)).cursor() as cursor:
        cursor.execute("set deadlock_timeout = '1h'; begin; select from pgbench_branches for update")
        until_s, waits = time.monotonic() + 10.0, False
        while not waits and time.monotonic() < until_s:
            cursor.execute("select exists (select from pg_locks where not granted)")
            waits = cursor.fetchone()[0]
        cursor.execute("lock table pgbench_accounts; commit")


def _deadlock(driver: PostgresCalls, where: dict[str, Any]) -> str | None:
    """Let two sessions wait for each other; PostgreSQL ends one of them with a deadlock error."""
    sessions = [driver.session(), driver.session()]
    seen: list[str] = []
    both = threading.Barrier(2)

    def run(number: int) -> None:
        row = "update pgbench_accounts set filler = '' where aid = %d"
        cursor = sessions[number]._cursor
        cursor.execute("begin")
        cursor.execute(row % (number + 1))
        both.wait()
        failed = _failure(driver, lambda: sessions[number].call(Body(content=(row % (2 - number)).encode())))
        seen.extend([failed] if failed else [])
        sessions[number].close()

    threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen[0] if len(seen) == 1 else f"{len(seen)} failures"


def _failure(driver: PostgresCalls, does: Any) -> str | None:
    try:
        reply = does()
    except Exception as error:
        return driver.failure(error).name
    return reply.failure.name if isinstance(reply, Reply) and reply.failure else None


def with_password(where: dict[str, Any], password: str) -> Any:
    """Log in with that password; give the server's answer."""
    try:
        psycopg2.connect(
            host="127.0.0.1", port=where["ports"]["main"], user="bench", dbname="postgres", password=password
        )
    except psycopg2.OperationalError as error:
        return str(error)
    return "welcome"


def bodies(where: dict[str, Any], count: int, seed: int) -> Any:
    return [str(body.content) for body in pgbench.driver(target(where)).bodies(count, seed)]
