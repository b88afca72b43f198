"""Work list of a finite load: the seeded order of its items, those that are done, and the share of one worker."""

import base64
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from seamark.errors import UserError
from seamark.load.driver import Body, Driver
from seamark.load.workers.assignment import WorkerAssignment, seed_for
from seamark.load.workers.records import read_segment
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


def work_list(assignment: WorkerAssignment, driver: Driver) -> tuple[WorkerAssignment, WorkList]:
    """Return the assignment with the items of its worker, and the bodies of all items.

    Items are in an order seeded by the trial. The workers take turns in it, over those that are not done. Raises
    UserError for a driver without a work list, and ValueError for one that makes other bodies than it counts.
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
    order = np.random.Generator(np.random.PCG64(seed_for(seed, "order"))).permutation(count)
    left = order[~done_items(assignment.job.done, count)[order]]
    items: list[int] = left[assignment.worker :: assignment.workers].tolist()
    return replace(assignment, items=items), WorkList(bodies=bodies, own=frozenset(items))


def items_in(segment: Path, count: int | None = None) -> npt.NDArray[np.bool_]:
    """Return which items have ended in a segment, of `count` or up to the last of them. A cancelled one has not.
    Raises ValueError for a file that is no segment."""
    done = np.zeros(count or 0, dtype=np.bool_)
    for records in read_segment(segment):
        ended = records["index"][(records["sent_ns"] != MISSING_NS) & (records["failure"] != Failure.CANCELLED)]
        done = np.pad(done, (0, max(0, int(ended.max(initial=-1)) + 1 - done.size)))
        done[ended] = True
    return done


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
