"""PostgreSQL: pgbench's tables and transactions."""

from seamark.drivers.postgres.pgbench import HOOKS, driver

__all__ = ["HOOKS", "driver"]
