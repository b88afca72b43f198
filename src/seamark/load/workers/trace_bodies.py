"""Request bodies described by the rows of a recorded trace, made one by one for a worker's share of the rows."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice, takewhile

from seamark.errors import UserError
from seamark.load.driver import Body, Driver
from seamark.model.load_profile import LoadProfile
from seamark.patterns.patterns import Trace
from seamark.patterns.table import pattern_of
from seamark.patterns.trace_file import TraceRow, recorded_rows

LARGEST_BYTES = 1 << 30
"""Memory limit for the requests of one worker's rows: none of them is sent twice."""


@dataclass(frozen=True, kw_only=True)
class RowBodies:
    """Bodies of the rows that a load sends, made one by one; None for rows of other workers. In a replayed trace
    (`repeated`) every worker sends all rows, in one of the passes."""

    row_body: Callable[[int, TraceRow, int], Body]
    trace: Trace
    load: LoadProfile
    seed: int
    worker: int
    workers: int
    repeated: bool = False

    def __iter__(self) -> Iterator[Body | None]:
        for number, row in zip(count(), self.rows(), strict=False):
            own = self.repeated or number % self.workers == self.worker
            yield self.row_body(number, row, self.seed) if own else None

    def whole(self) -> list[Body]:
        """Return the bodies of all rows, those of other workers included."""
        return [self.row_body(number, row, self.seed) for number, row in enumerate(self.rows())]

    def rows(self) -> Iterator[TraceRow]:
        """Yield the rows that the load sends."""
        trace, until_s = self.trace, self.load.length_s
        rows = recorded_rows(trace.path, trace.block_tokens)
        rows = takewhile(lambda row: row.at_s * trace.time_scale < until_s, rows)
        sent = islice(rows, self.load.requests)
        if trace.lengths:
            return sent
        return (replace(row, prompt_tokens=None, output_tokens=None, blocks=()) for row in sent)

    def too_large(self, rows: int) -> UserError:
        """Return the error for the first `rows` rows exceeding LARGEST_BYTES."""
        return UserError(
            f"trace: the requests of its first {rows:,} rows take more than {LARGEST_BYTES >> 20} MiB of a worker's "
            "memory, and the load sends more. Raise shards, shorten duration_s, or set trace_lengths to false."
        )


def row_bodies(
    driver: Driver, load: LoadProfile, *, seed: int, worker: int = 0, workers: int = 1, repeated: bool = False
) -> RowBodies | None:
    """Return the bodies that the rows of a trace describe; None for another pattern, a trace of arrivals only, or a
    driver that makes no requests of recorded lengths. `repeated`: the trace is replayed, so row k is the request of
    all indexes that are k modulo the number of rows."""
    trace = pattern_of(load)
    if not isinstance(trace, Trace) or driver.row_body is None:
        return None
    bodies = RowBodies(
        row_body=driver.row_body,
        trace=trace,
        load=load,
        seed=seed,
        worker=worker,
        workers=workers,
        repeated=repeated,
    )
    describe_requests = any(row.has_lengths or row.request_class is not None for row in bodies.rows())
    return bodies if describe_requests else None
