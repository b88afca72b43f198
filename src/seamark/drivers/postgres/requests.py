"""Seeded parameters of transactions on PostgreSQL's pgbench tables, independent of any client."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt

from seamark.errors import UserError
from seamark.load.driver import Body, whole
from seamark.model.service import Value

ACCOUNTS, TELLERS = 100_000, 10
"""Rows per unit of scale; one branch each."""
MAX_BODIES = 1 << 17
MAX_BODIES_BYTES = 1 << 26
PAYLOAD = "seamark " * 10
IN_ROWS = ("insert_copy", "insert_values")
"""Operations that are counted in rows; others are counted in transactions."""
INSERTS = ("insert_batch", *IN_ROWS)
STEP = 618_033
"""Distance of the rows of two successive ranks of a Zipf distribution, so that they lie on different pages."""


PREPARED: Mapping[str, str] = {
    "lookup": "prepare lookup(bigint) as select abalance from pgbench_accounts where aid = $1",
    "range": "prepare range(bigint, bigint) as select * from pgbench_accounts where aid between $1 and $2",
    "update": "prepare update(bigint) as update pgbench_accounts set filler = 'updated' where aid = $1",
}
"""Statements that the server parses and plans once, by operation. An update does not change balances, so TPC-B's sums
still hold."""


@dataclass(frozen=True, kw_only=True)
class TableRequests:
    """The requests of one operation on tables of a scale. Accounts are drawn uniformly, as pgbench draws them, or
    with the exponent `zipf`. `page` is the number of rows of one statement of insert_values."""

    operation: str
    scale: int
    batch: int
    page: int
    zipf: float | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Value]) -> "TableRequests":
        """Return those that a trial's settings ask for. Raises UserError for a range larger than its table."""
        batch, zipf = whole(settings, "batch"), settings.get("zipf")
        found = cls(
            operation=str(settings["operation"]),
            scale=whole(settings, "scale"),
            batch=batch,
            page=min(batch, whole(settings, "rows_per_statement", batch)),
            zipf=None if zipf is None else float(zipf),
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
        return self.batch if self.operation in ("range", *INSERTS) else 1

    @property
    def unit(self) -> str:
        """Unit in which the operation is counted."""
        return "row" if self.operation in IN_ROWS else "transaction"

    @property
    def body_count(self) -> int:
        """Different bodies worth making: enough to touch the whole table, in bounded memory."""
        if self.operation in INSERTS:
            return max(16, min(1024, MAX_BODIES_BYTES // (self.batch * (len(PAYLOAD) + 26))))
        return min(MAX_BODIES, self.accounts)

    def bodies(self, count: int, seed: int) -> Sequence[Body]:
        """Return seeded numbers: the parameters of a prepared statement, the keys of rows to insert, or the values of
        a TPC-B transaction (aid, bid, tid, delta)."""
        random = np.random.default_rng(seed)
        if self.operation in INSERTS:
            return [Body(content=keys) for keys in random.integers(0, 1 << 62, (count, self.batch)).tolist()]
        if self.operation == "tpcb":
            columns = (
                self._drawn(random, self.accounts, count),
                random.integers(1, self.scale, count, endpoint=True).tolist(),
                random.integers(1, self.scale * TELLERS, count, endpoint=True).tolist(),
                random.integers(-5000, 5000, count, endpoint=True).tolist(),
            )
            return [Body(content=numbers) for numbers in zip(*columns, strict=True)]
        if self.operation == "range":
            firsts = self._drawn(random, self.accounts - self.batch + 1, count)
            return [Body(content=(aid, aid + self.batch - 1)) for aid in firsts]
        return [Body(content=(aid,)) for aid in self._drawn(random, self.accounts, count)]

    def _drawn(self, random: np.random.Generator, rows: int, count: int) -> list[int]:
        """Return row numbers from 1 to `rows`."""
        if self.zipf is None:
            drawn: list[int] = random.integers(1, rows, count, endpoint=True).tolist()
            return drawn
        step = STEP
        while gcd(step, rows) > 1:
            step += 1
        return [(rank - 1) * step % rows + 1 for rank in zipf_ranks(random, rows, self.zipf, count).tolist()]


def zipf_ranks(random: np.random.Generator, many: int, exponent: float, count: int) -> npt.NDArray[np.int64]:
    """Return `count` ranks from 1 to `many`, rank k with a probability proportional to k**-exponent (exponent > 0).

    Rejection-inversion: W. Hörmann, G. Derflinger, ACM TOMACS 6(3), 1996. No table of the ranks is made.
    """
    gap = 1 - exponent
    near_one = abs(gap) < 1e-6
    ends = sorted((0.5**gap, (many + 0.5) ** gap))

    def area(x: float | npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(np.log(x) if near_one else (x**gap - 1) / gap)

    def inverse(y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        # the clip takes back what rounding adds: a base of 0 has no negative power
        return np.asarray(np.exp(y) if near_one else np.clip(1 + gap * y, *ends) ** (1 / gap))

    surely = 2 - inverse(area(2.5) - 2**-exponent)
    ranks = np.empty(0, dtype=np.int64)
    while len(ranks) < count:
        at = random.uniform(area(1.5) - 1, area(many + 0.5), count)
        x = inverse(at)
        rank = np.clip(np.rint(x), 1, many)
        accepted = (rank - x <= surely) | (at >= area(rank + 0.5) - rank**-exponent)
        ranks = np.concatenate([ranks, rank[accepted].astype(np.int64)])
    return ranks[:count]
