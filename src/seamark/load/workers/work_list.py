"""Work list of a finite load: the seeded order of its items, those that are done, and the share of one worker.

The index of a request is its item. With `keep_busy` the items are sent again, pass after pass: then the index is item
plus pass times the number of items, so that indexes below that number are every item once.
"""

import base64
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count as counted_from
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

from seamark.errors import UserError
from seamark.load.driver import Body, Driver
from seamark.load.workers.assignment import ENDLESS, WorkerAssignment
from seamark.load.workers.records import read_segment
from seamark.model.digest import seed_for
from seamark.model.sample import MISSING_NS, Failure

LARGEST_BYTES = 1 << 30
"""Memory limit for the encoded items of one worker: none of them is sent twice."""


@dataclass(frozen=True, kw_only=True)
class WorkList:
    """Bodies of all items by their number; iteration yields None for items of other workers, or done before."""

    bodies: Sequence[Body]
    own: frozenset[int]

    def __iter__(self) -> Iterator[Body | None]:
        for number, body in enumerate(self.bodies):
            yield body if number in self.own else None

    def too_large(self, items: int) -> UserError:
        """Return the error for the first `items` items exceeding LARGEST_BYTES."""
        return UserError(
            f"the requests of the first {items:,} of {len(self.bodies):,} items take more than {LARGEST_BYTES >> 20} "
            "MiB of a worker's memory. Raise shards."
        )


class Passes(Sequence[int]):
    """Indexes of a worker's requests that keep the server busy: `first`, its part of the items to be done, then
    passes over `order`, its part of all `items`, until `end` is called. It has then the length of the first pass; an
    index beyond that may still be read, by a user that was about to.

    `on_second` is called once, in any thread, when the second pass begins.
    """

    def __init__(
        self, first: Sequence[int], order: Sequence[int], items: int, on_second: Callable[[], object]
    ) -> None:
        self._first, self._order, self._items = first, order, items
        self._on_second = on_second
        self._ended = not order

    def end(self) -> None:
        """Begin no further pass, and break off the present one unless it is the first."""
        self._ended = True

    def __len__(self) -> int:
        return len(self._first) if self._ended else ENDLESS

    @overload
    def __getitem__(self, number: int) -> int: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[int]: ...

    def __getitem__(self, number: int | slice) -> int | Sequence[int]:
        if isinstance(number, slice):
            return [self[index] for index in range(*number.indices(len(self)))]
        if number < len(self._first):
            return self._first[number]
        if number == len(self._first):
            self._on_second()
        turn, place = divmod(number - len(self._first), len(self._order))
        return self._order[place] + (turn + 1) * self._items

    def __iter__(self) -> Iterator[int]:
        return map(self._next, counted_from())  # threads share it: unlike a generator, it may be entered twice

    def _next(self, number: int) -> int:
        if number >= len(self):
            raise StopIteration
        return self[number]


def work_list(
    assignment: WorkerAssignment, driver: Driver, on_second: Callable[[], object] = lambda: None
) -> tuple[WorkerAssignment, WorkList]:
    """Return the assignment with the items of its worker, and the bodies of all items.

    Items are in an order seeded by the trial. The workers take turns in it, over those that are not done; in further
    passes, over all. With `work_groups` the groups are in a seeded order, and each belongs to one worker.
    `on_second`: see Passes, which the items of a load with `keep_busy` are. Raises UserError for a driver without a
    work list, and ValueError for one that makes other bodies, or names other groups, than it counts items.
    """
    count, seed = driver.work_count, assignment.job.seed
    if not count:
        text = "has no work list" if count is None else "has an empty work list"
        raise UserError(f"the driver {assignment.job.driver} {text} (`work_count`), so it cannot run a finite load")
    if assignment.load.warmup_items >= count:
        raise UserError(f"warmup_items: {assignment.load.warmup_items} leave none of {count} items. Lower it")
    bodies = driver.bodies(count, seed_for(seed, "bodies"))
    if len(bodies) != count:
        raise ValueError(f"the driver says that it has {count} items, and makes {len(bodies)}")
    groups = None if driver.work_groups is None else np.asarray(driver.work_groups)
    if groups is not None and len(groups) != count:
        raise ValueError(f"the driver says that it has {count} items, and names the groups of {len(groups)}")
    order = _order(count, seed_for(seed, "order"), groups)
    left = order[~done_items(assignment.job.done, count)[order]]
    items = _share(left, assignment.worker, assignment.workers, groups)
    if not assignment.job.keep_busy:
        return replace(assignment, items=items), WorkList(bodies=bodies, own=frozenset(items))
    again = _share(order, assignment.worker, assignment.workers, groups)
    passes = Passes(items, again, count, on_second)
    return replace(assignment, items=passes), WorkList(bodies=bodies, own=frozenset(items) | frozenset(again))


def _order(count: int, seed: int, groups: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64]:
    """Return the seeded order of `count` items; with groups, those of one in a row and as the driver numbers them."""
    order = np.random.Generator(np.random.PCG64(seed)).permutation(count)
    if groups is None:
        return order
    turn = {group: number for number, group in enumerate(dict.fromkeys(groups[order].tolist()))}
    return np.array(sorted(range(count), key=lambda item: (turn[int(groups[item])], item)), dtype=np.int64)


def _share(
    order: npt.NDArray[np.int64], worker: int, workers: int, groups: npt.NDArray[np.int64] | None
) -> list[int]:
    """Return a worker's part of some items in their order: every `workers`-th item, or group of items."""
    if groups is None:
        return order[worker::workers].tolist()  # type: ignore[no-any-return]
    own = set(list(dict.fromkeys(groups[order].tolist()))[worker::workers])
    return [item for item in order.tolist() if int(groups[item]) in own]


def items_in(
    segment: Path, count: int | None = None, *, unanswered: Collection[Failure] = ()
) -> npt.NDArray[np.bool_]:
    """Return which items have ended in a segment, of `count` or up to the last of them.

    A cancelled one has not, and neither has one with a failure that is `unanswered`. Without `count`, indexes of
    further passes count as items: `done_items` leaves them out. Raises ValueError for a file that is no segment.
    """
    unfinished = [Failure.CANCELLED, *unanswered]
    done = np.zeros(count or 0, dtype=np.bool_)
    for records in read_segment(segment):
        ended = records["index"][(records["sent_ns"] != MISSING_NS) & ~np.isin(records["failure"], unfinished)]
        done = np.pad(done, (0, max(0, int(ended.max(initial=-1)) + 1 - done.size)))
        done[ended] = True
    return done if count is None else done[:count]


def as_text(done: npt.NDArray[np.bool_]) -> str:
    """Return which items are done as text: a bit for each, compressed."""
    return base64.b64encode(zlib.compress(np.packbits(done).tobytes())).decode() if done.any() else ""


def done_items(text: str, count: int) -> npt.NDArray[np.bool_]:
    """Return which of `count` items are done, from the text that `as_text` made; none for an empty one."""
    if not text:
        return np.zeros(count, dtype=np.bool_)
    bits = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint8)
    done = np.zeros(count, dtype=np.bool_)
    known = np.unpackbits(bits)[:count].astype(np.bool_)
    done[: known.size] = known
    return done
