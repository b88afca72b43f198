"""PostgreSQL: indexed reads, writes, batches, and pgbench's TPC-B-like transaction; its tables and their check.

psycopg2 makes the connections. A prepared statement is then sent in the server's own protocol (prepared.py), because
psycopg2 would send text that the server parses each time. psycopg2 exists in the service's environment only, so it is
imported where it is used.
"""

from collections.abc import Mapping
from contextlib import closing

from seamark.load.driver import Call, Hooks, Target
from seamark.model.service import Value

ENCRYPTED = ("require", "verify-ca", "verify-full")
"""Values of `sslmode` with which there is no plain connection."""


def driver(target: Target) -> Call:
    """Return the driver for the trial's operation. What is encrypted, or one class of a mix, is psycopg2's."""
    from seamark.drivers.postgres.calls import PostgresCalls
    from seamark.drivers.postgres.prepared import PostgresPrepared
    from seamark.drivers.postgres.requests import PREPARED

    settings = target.settings
    if settings.get("server_statistics") and target.files is not None and target.worker == 0:
        from seamark.drivers.postgres import counters

        counters.before(target)
    if settings["operation"] not in PREPARED or target.load.mix or _encrypted(target):
        return PostgresCalls(target)
    return PostgresPrepared(target)


def populate(target: Target, seed: int) -> Mapping[str, Value]:
    """Make pgbench's tables; nothing in them is random."""
    from seamark.drivers.postgres.tables import make_tables

    return make_tables(target)


def quality(target: Target, seed: int) -> Mapping[str, float]:
    """What the server counted during the load, with `server_statistics`. After TPC-B: 1 when the sums of all balances
    and of history's deltas are equal, as committed transactions leave them, else 0."""
    from seamark.drivers.postgres.tables import sums

    found: dict[str, float] = {}
    if target.settings.get("server_statistics"):
        from seamark.drivers.postgres import counters

        found |= counters.after(target)
    if target.settings["operation"] == "tpcb":
        accounts, tellers, branches, history, _ = sums(target)
        found["tpcb_consistent"] = float(accounts == tellers == branches == history)
    return found


def _encrypted(target: Target) -> bool:
    import psycopg2

    from seamark.drivers.postgres.tables import connect

    if str(target.settings.get("sslmode")) in ENCRYPTED:
        return True  # also while the server does not answer
    try:
        connection = connect(target)
    except psycopg2.OperationalError:
        return False  # the load's own connection reports the error
    with closing(connection):
        return bool(connection.info.ssl_in_use)


HOOKS = Hooks(populate=populate, quality=quality)
