"""What a PostgreSQL server counts itself, before and after a load: WAL, pages, waits for I/O, statements.

psycopg2 exists in the service's environment only, so it is imported where it is used.
"""

import json
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from seamark.load.driver import Target

BEFORE, FILE = "server_before.json", "server_statistics.json"
"""Files of a trial: what was counted before the load, and the difference after it."""
LONGEST_WAIT_S = 2.0
"""Wait for the load's connections to end: the server counts some figures only then."""
CONNECTED = """
select count(*) from pg_stat_activity where application_name = 'seamark' and pid <> pg_backend_pid()
"""
TOTALS: Mapping[str, str] = {
    "wal": "select jsonb_build_object('wal_bytes', pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0'))",
    "pages": """
        select jsonb_build_object('blocks_hit', blks_hit, 'blocks_read', blks_read)
        from pg_stat_database where datname = current_database()""",
    "io": """
        select jsonb_build_object('io_wait_s', sum(coalesce(read_time, 0) + coalesce(write_time, 0)
            + coalesce(writeback_time, 0) + coalesce(extend_time, 0) + coalesce(fsync_time, 0)) / 1000)
        from pg_stat_io where backend_type = 'client backend' and current_setting('track_io_timing')::bool""",
}
"""Questions, each answered by a JSON object of counters that only grow, or null."""
SCHEMA_OF_STATEMENTS = """
select quote_ident(nspname) from pg_extension join pg_namespace n on n.oid = extnamespace
where extname = 'pg_stat_statements'
"""
STATEMENTS = """
select to_jsonb(s) from {schema}.pg_stat_statements s join pg_database d on d.oid = s.dbid
where datname = current_database()
"""
MARK = "/* statistics of seamark */"
"""Comment in our own statements, which are not among those of the load."""
COUNTERS = ("calls", "rows", "shared_blks_hit", "shared_blks_read", "wal_bytes")
NOTES = {
    "io": "no waits for I/O: track_io_timing is off. Write `server_settings: {track_io_timing: on}`.",
    "statements": "no statements: the extension pg_stat_statements is not in this database. An embedded server has it"
    " with `server_settings: {shared_preload_libraries: pg_stat_statements}`.",
}
Counted = dict[str, Any]
"""`totals` by name; `statements` by their key, as rows of pg_stat_statements; `notes` on what is missing."""


def before(target: Target) -> None:
    """Keep what the server has counted until now in the files of the trial."""
    assert target.files is not None
    target.files.mkdir(parents=True, exist_ok=True)
    (target.files / BEFORE).write_text(json.dumps(counted(target)), encoding="utf-8")


def after(target: Target) -> Mapping[str, float]:
    """Write the difference since `before`, warm-up included, into the files of the trial; return its totals.

    `wal_bytes`, `blocks_hit` and `blocks_read` (8 KiB pages of the database in shared buffers, or not), `io_wait_s`
    (all clients together). A statement has `calls`, `mean_ms`, `rows`, `shared_blks_hit`, `shared_blks_read` and
    `wal_bytes`. Nothing, if `before` was not called.
    """
    if target.files is None or not (kept := target.files / BEFORE).exists():
        return {}
    found = difference(json.loads(kept.read_text(encoding="utf-8")), counted(target, LONGEST_WAIT_S))
    (target.files / FILE).write_text(json.dumps(found, indent=1), encoding="utf-8")
    totals: Mapping[str, float] = found["totals"]
    return totals


def counted(target: Target, wait_s: float = 0.0) -> Counted:
    """Ask the server, after `wait_s` at most for other connections of ours to end. A question that it refuses, such
    as that of WAL to a standby, is a note with its words."""
    import psycopg2

    from seamark.drivers.postgres.tables import connect

    found: Counted = {"totals": {}, "statements": {}, "notes": []}
    with closing(connect(target)) as connection, connection.cursor() as cursor:
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s and _first(cursor, CONNECTED):
            time.sleep(0.02)
        for name, question in TOTALS.items():
            try:
                totals = {key: value for key, value in (_first(cursor, question) or {}).items() if value is not None}
            except psycopg2.Error as error:
                found["notes"].append(f"{name}: {' '.join(str(error).split())}")
                continue
            found["totals"] |= totals
            if not totals and name in NOTES:
                found["notes"].append(NOTES[name])
        try:
            schema = _first(cursor, SCHEMA_OF_STATEMENTS)
            if schema is None:
                found["notes"].append(NOTES["statements"])
            else:
                cursor.execute(_marked(STATEMENTS.format(schema=schema)))
                keys = ("userid", "queryid", "toplevel")
                for (row,) in cursor.fetchall():
                    if row["queryid"] is not None and MARK not in (row["query"] or ""):  # null: another user's
                        found["statements"][str([row.get(key) for key in keys])] = row
        except psycopg2.Error as error:  # it is not preloaded, or not for this user
            found["notes"].append(f"statements: {' '.join(str(error).split())}")
    return found


def difference(first: Counted, last: Counted) -> Counted:
    """Return what was counted between two times; statements by their total time, the longest first. One that is new,
    or was forgotten in between and began again, counts from 0."""
    earliest = first["totals"]
    totals = {name: value - earliest[name] for name, value in last["totals"].items() if name in earliest}
    statements = []
    for key, row in last["statements"].items():
        earlier = first["statements"].get(key, {})
        if earlier.get("calls", 0) > row["calls"]:
            earlier = {}
        counts = {name: row.get(name, 0) - earlier.get(name, 0) for name in COUNTERS}
        time_ms = _time_ms(row) - _time_ms(earlier)
        if calls := counts["calls"]:
            times = {"mean_ms": time_ms / calls, "total_ms": time_ms}
            statements.append({"query": row["query"], **times, **counts})
    statements.sort(key=lambda statement: -statement["total_ms"])
    return {"totals": totals, "statements": statements, "notes": last["notes"]}


def _time_ms(row: Mapping[str, Any]) -> float:
    """Return the time of all executions; its column had another name before PostgreSQL 13."""
    return float(row.get("total_exec_time", row.get("total_time", 0.0)))


def _first(cursor: Any, question: str) -> Any:
    """Return the only value of a question's first row, None without one."""
    cursor.execute(_marked(question))
    row = cursor.fetchone()
    return row and row[0]


def _marked(question: str) -> str:
    return question.replace("select", f"select {MARK}", 1)
