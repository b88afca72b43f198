"""Request bodies described by the rows of a recorded trace, made one by one for a worker's share of the rows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, islice, takewhile

from seamark.errors import UserError
from seamark.load.driver import Body, Driver
from seamark.model.service import Value
from seamark.patterns.trace_file import Row, recorded_rows

LARGEST_BYTES = 1 << 30
"""Memory limit for the requests of one worker's rows: none of them is sent twice."""


@dataclass(frozen=True, kw_only=True)
class RowBodies:
    """Bodies of the rows that a load sends, made one by one; None for rows of other workers."""

    row_body: Callable[[int, Row, int], Body]
    settings: Mapping[str, Value]
    seed: int
    until_s: float
    requests: int | None
    worker: int
    workers: int

    def __iter__(self) -> Iterator[Body | None]:
        for number, row in zip(count(), self._rows(), strict=False):
            own = number % self.workers == self.worker
            yield self.row_body(number, row, self.seed) if own else None

    def whole(self) -> list[Body]:
        """Return the bodies of all rows, those of other workers included."""
        return [self.row_body(number, row, self.seed) for number, row in enumerate(self._rows())]

    def _rows(self) -> Iterator[Row]:
        scale = float(self.settings.get("time_scale") or 1.0)
        rows = recorded_rows(str(self.settings["trace"]))
        sent = islice(takewhile(lambda row: row.at_s * scale < self.until_s, rows), self.requests)
        if self.settings.get("trace_lengths") is not False:
            return sent
        return (replace(row, prompt_tokens=None, output_tokens=None, blocks=()) for row in sent)

    @property
    def describe_requests(self) -> bool:
        """Whether the first row describes its request, not only its time: then the load sends these bodies."""
        first = next(self._rows(), None)
        return first is not None and (first.has_lengths or first.request_class is not None)

    def too_large(self, rows: int) -> UserError:
        """Return the error for the first `rows` rows exceeding LARGEST_BYTES."""
        return UserError(
            f"trace: the requests of its first {rows:,} rows take more than {LARGEST_BYTES >> 20} MiB of a worker's "
            "memory, and the load sends more. Raise shards, shorten duration_s, or set trace_lengths to false."
        )


def row_bodies(
    driver: Driver,
    settings: Mapping[str, Value],
    *,
    seed: int,
    until_s: float,
    requests: int | None = None,
    worker: int = 0,
    workers: int = 1,
) -> RowBodies | None:
    """Return the bodies that the rows of a trace describe; None for another pattern, a trace of arrivals only, or a
    driver that makes no requests of recorded lengths."""
    if settings.get("pattern") != "trace" or driver.row_body is None:
        return None
    bodies = RowBodies(
        row_body=driver.row_body,
        settings=settings,
        seed=seed,
        until_s=until_s,
        requests=requests,
        worker=worker,
        workers=workers,
    )
    return bodies if bodies.describe_requests else None
