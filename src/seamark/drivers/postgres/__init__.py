"""PostgreSQL: pgbench's tables and transactions."""

from seamark.drivers.postgres.driver import HOOKS, driver

__all__ = ["HOOKS", "driver"]
