"""What is sent to PostgreSQL, on which connection, and what the server counts of it."""

import threading
from collections import Counter
from contextlib import nullcontext

import numpy as np
import pytest

from seamark.drivers.postgres.counters import difference
from seamark.drivers.postgres.pool import Pool, PoolTimeoutError
from seamark.drivers.postgres.requests import TableRequests, zipf_ranks
from seamark.load.driver import Body, Reply
from seamark.model.sample import Failure

DRAWS = 200_000
ONE = Body(content=b"")


@pytest.mark.covers("E-FR17")
@pytest.mark.parametrize("exponent", [0.5, 0.99, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("many", [1, 2, 1000])
def test_ranks_have_the_probabilities_of_their_distribution(exponent: float, many: int) -> None:
    weights = np.arange(1, many + 1.0) ** -exponent
    expected = DRAWS * weights / weights.sum()
    counts = np.bincount(zipf_ranks(np.random.default_rng(1), many, exponent, DRAWS), minlength=many + 1)
    assert (counts[0], len(counts), counts.sum()) == (0, many + 1, DRAWS)
    for rank in (rank for rank in (1, 2, 3, 10, 100, 1000) if rank <= many):
        assert abs(counts[rank] - expected[rank - 1]) < 5 * np.sqrt(expected[rank - 1]) + 1


def test_a_skew_favours_a_few_rows_that_lie_far_from_each_other() -> None:
    def rows(zipf: float | None) -> list[int]:
        settings = {"operation": "lookup", "scale": 1, "batch": 1, "zipf": zipf}
        return [body.content[0] for body in TableRequests.of(settings).bodies(20_000, 7)]

    drawn = rows(1.2)
    assert (drawn, min(drawn) >= 1, max(drawn) <= 100_000) == (rows(1.2), True, True)
    popular = [row for row, _ in Counter(drawn).most_common(5)]
    assert drawn.count(popular[0]) > 0.1 * len(drawn)
    assert min(abs(one - other) for one in popular for other in popular if one != other) > 1000
    assert rows(None) == np.random.default_rng(7).integers(1, 100_000, 20_000, endpoint=True).tolist()


class Connection:
    """A connection whose next replies are given."""

    def __init__(self, *replies: Reply | Exception) -> None:
        self.replies = [*replies]
        self.closed = 0

    def call(self, body: Body) -> Reply:
        reply = self.replies.pop(0) if self.replies else Reply()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def close(self) -> None:
        self.closed += 1


@pytest.mark.covers("E-FR17")
def test_users_share_the_connections_of_a_pool_and_the_last_one_closes_them() -> None:
    made = [Connection(), Connection()]
    left = iter(made)
    pool = Pool(lambda: next(left), 2, 1.0)
    users = [pool.join() for _ in range(5)]
    assert all(user.call(ONE).units == 1 for user in users)
    users.pop().close()
    users.append(pool.join())  # as after a lost session; a third connection would be a StopIteration
    for user in users:
        assert [connection.closed for connection in made] == [0, 0]
        user.close()
    assert [connection.closed for connection in made] == [1, 1]


@pytest.mark.parametrize("trouble", [ConnectionResetError(), Reply(units=0, failure=Failure.RESET)])
def test_a_lost_connection_of_a_pool_is_replaced_by_the_next_request(trouble: Reply | Exception) -> None:
    refused = Reply(units=0, failure=Failure.CLIENT_ERROR)
    made = [Connection(refused, trouble), Connection()]
    left = iter(made)
    pool = Pool(lambda: next(left), 1, 1.0).join()
    assert pool.call(ONE) is refused
    with pytest.raises(ConnectionResetError) if isinstance(trouble, Exception) else nullcontext():
        assert pool.call(ONE) is trouble
    assert [connection.closed for connection in made] == [1, 0]
    assert pool.call(ONE) == Reply()


def test_a_request_waits_for_a_connection_no_longer_than_its_time_out() -> None:
    called, answered = threading.Event(), threading.Event()

    class Slow(Connection):
        def call(self, body: Body) -> Reply:
            called.set()
            answered.wait(10)
            return Reply()

    pool = Pool(Slow, 1, 0.05)
    busy = threading.Thread(target=pool.join().call, args=(ONE,))
    busy.start()
    assert called.wait(10)
    with pytest.raises(PoolTimeoutError):
        pool.join().call(ONE)
    answered.set()
    busy.join()
    assert pool.call(ONE) == Reply()


def test_statements_are_counted_from_before_the_load_or_from_0_when_they_are_new_or_began_again() -> None:
    def row(query: str, calls: int, time_ms: float, **more: float) -> dict[str, object]:
        return {"query": query, "calls": calls, "total_exec_time": time_ms, "rows": 2 * calls, **more}

    before = {"a": row("a", 10, 100.0), "b": row("b", 9, 9.0), "c": row("c", 1, 1.0)}
    after = {"a": row("a", 14, 120.0), "b": row("b", 2, 8.0), "c": row("c", 1, 1.0)}
    after["d"] = {"query": "d", "calls": 2, "total_time": 1.0, "rows": 4}
    totals = {"wal_bytes": 8.0, "io_wait_s": 1.0}
    first = {"totals": {"wal_bytes": 5.0}, "statements": before, "notes": []}
    found = difference(first, {"totals": totals, "statements": after, "notes": ["none"]})
    assert (found["totals"], found["notes"]) == ({"wal_bytes": 3.0}, ["none"])
    shown = [tuple(row[name] for name in ("query", "calls", "mean_ms", "rows")) for row in found["statements"]]
    assert shown == [("a", 4, 5.0, 8), ("b", 2, 4.0, 4), ("d", 2, 0.5, 4)]
