"""Seeded parameters of transactions on PostgreSQL's pgbench tables, independent of any client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seamark.drivers.postgres.tables import ACCOUNTS, TELLERS
from seamark.errors import UserError
from seamark.load.driver import Body, whole
from seamark.model.service import Value

MAX_BODIES = 1 << 17
MAX_BODIES_BYTES = 1 << 26
PAYLOAD = "seamark " * 10


PREPARED: Mapping[str, str] = {
    "lookup": "prepare lookup(bigint) as select abalance from pgbench_accounts where aid = $1",
    "range": "prepare range(bigint, bigint) as select * from pgbench_accounts where aid between $1 and $2",
    "update": "prepare update(bigint) as update pgbench_accounts set filler = 'updated' where aid = $1",
}
"""Statements that the server parses and plans once, by operation. An update does not change balances, so TPC-B's sums
still hold."""


@dataclass(frozen=True, kw_only=True)
class TableRequests:
    """The requests of one operation on tables of a scale. Rows are drawn as pgbench draws them: uniformly."""

    operation: str
    scale: int
    batch: int

    @classmethod
    def of(cls, settings: Mapping[str, Value]) -> "TableRequests":
        """Return those that a trial's settings ask for. Raises UserError for a range larger than its table."""
        found = cls(
            operation=str(settings["operation"]), scale=whole(settings, "scale"), batch=whole(settings, "batch")
        )
        if found.operation == "range" and found.batch > found.accounts:
            raise UserError(
                f"postgres: a range of {found.batch:,} rows is larger than the table ({found.accounts:,} rows). "
                "Lower `batch` or raise `scale`."
            )
        return found

    @property
    def accounts(self) -> int:
        """Rows of the largest table."""
        return self.scale * ACCOUNTS

    @property
    def rows(self) -> int:
        """Rows that each request finds, changes or adds."""
        return self.batch if self.operation in ("range", "insert_batch") else 1

    @property
    def body_count(self) -> int:
        """Different bodies worth making: enough to touch the whole table, in bounded memory."""
        if self.operation == "insert_batch":
            return max(16, min(1024, MAX_BODIES_BYTES // (self.batch * (len(PAYLOAD) + 26))))
        return min(MAX_BODIES, self.accounts)

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return seeded numbers: the parameters of a prepared statement, the keys of an insert_batch, or the values
        of a TPC-B transaction (aid, bid, tid, delta)."""
        random = np.random.default_rng(seed)
        if self.operation == "insert_batch":
            return [Body(content=keys) for keys in random.integers(0, 1 << 62, (count, self.batch)).tolist()]
        if self.operation == "tpcb":
            columns = (
                random.integers(1, self.accounts, count, endpoint=True).tolist(),
                random.integers(1, self.scale, count, endpoint=True).tolist(),
                random.integers(1, self.scale * TELLERS, count, endpoint=True).tolist(),
                random.integers(-5000, 5000, count, endpoint=True).tolist(),
            )
            return [Body(content=numbers) for numbers in zip(*columns, strict=True)]
        if self.operation == "range":
            firsts = random.integers(1, self.accounts - self.batch + 1, count, endpoint=True).tolist()
            return [Body(content=(aid, aid + self.batch - 1)) for aid in firsts]
        return [Body(content=(aid,)) for aid in random.integers(1, self.accounts, count, endpoint=True).tolist()]
