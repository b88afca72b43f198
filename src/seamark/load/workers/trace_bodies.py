"""Request bodies that the rows of a recorded trace describe, made one by one for a worker's share of the rows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, islice, takewhile

from seamark.errors import UserError
from seamark.load.driver import Body, Driver
from seamark.model.service import Value
from seamark.patterns.trace_file import Row, recorded_rows

LARGEST_BYTES = 1 << 30
"""Most memory that the requests of one worker's rows may take: none of them is sent twice."""


@dataclass(frozen=True, kw_only=True)
class RowBodies:
    """The bodies of the rows that a load sends, made one by one; None for those of other workers."""

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
        """Return the bodies of all rows, those of other workers too."""
        return [self.row_body(number, row, self.seed) for number, row in enumerate(self._rows())]

    def _rows(self) -> Iterator[Row]:
        scale = float(self.settings.get("time_scale") or 1.0)
        rows = recorded_rows(str(self.settings["trace"]))
        sent = islice(takewhile(lambda row: row.at_s * scale < self.until_s, rows), self.requests)
        if self.settings.get("trace_lengths") is not False:
            return sent
        return (replace(row, prompt_tokens=None, output_tokens=None, blocks=()) for row in sent)

    @property
    def tell_more(self) -> bool:
        """Whether the first row says more than its time; so whether these are what the load is to send."""
        first = next(self._rows(), None)
        return first is not None and (first.has_lengths or first.request_class is not None)

    def too_large(self, rows: int) -> UserError:
        """Return what to say when the first so many rows take more than LARGEST_BYTES."""
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
    """Return the bodies that the rows of a trace ask for; None for another pattern, a trace that gives arrivals only,
    and a driver that makes no requests of recorded lengths."""
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
    return bodies if bodies.tell_more else None
