"""A query as stages see it, and its ticket: what the flow knows of it."""

import uuid
from dataclasses import dataclass, field
from threading import Lock, RLock
from time import monotonic_ns
from typing import Any


@dataclass(eq=False)
class Query:
    """What goes through a pipeline: a batch of a split, with `data` and `context` that stages read and assign.

    `query_submitted_timestamp` is in seconds since 1970; `epoch` counts from 1, `batch` from 0.
    """

    split: str
    batch: int
    query_submitted_timestamp: float
    epoch: int = 0
    query_id: Any = field(default_factory=uuid.uuid4)
    data: Any = None
    context: dict[Any, Any] = field(default_factory=dict)
    out_flow_id: Any = None
    ticket: "Ticket | None" = field(default=None, repr=False)


class Ticket:
    """One query on its way: how many copies of it are in queues and stages, and how it ended.

    `copies` counts those that move, `parked` those that wait in merges, by stage and source. `done` is free once the
    query has ended. `units` and `first_ns` are what stages say of it, `answers` how many outputs it met, `spent` the
    retries of each router.
    """

    __slots__ = (
        *("answers", "copies", "done", "ended", "error", "first_ns", "index", "lock", "parked"),
        *("query", "spent", "submitted_ns", "units", "visits"),
    )

    def __init__(self, query: Query, index: int, copies: int) -> None:
        self.query = query
        self.index = index
        self.copies = copies
        self.submitted_ns = monotonic_ns()
        self.lock = RLock()
        self.done = Lock()
        self.done.acquire()
        self.ended = False
        self.error: str | None = None
        self.parked: dict[int, dict[int, Query]] = {}
        self.visits: dict[int, int] = {}
        self.spent: dict[int, int] = {}
        self.units = 0
        self.first_ns: int | None = None
        self.answers = 0

    def end(self, error: str | None = None) -> bool:
        """End the query, well or with an error; return whether it had not ended before."""
        with self.lock:
            if self.ended:
                return False
            self.ended, self.error = True, error
        self.done.release()
        return True
