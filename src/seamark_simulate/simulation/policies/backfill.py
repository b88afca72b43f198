"""Backfill: nodes may start before those ahead of them where that delays no reservation, by estimated times."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from seamark_simulate.simulation.cluster import Cluster
from seamark_simulate.simulation.engine import Dispatch, View

DEPTH = 64
"""Nodes at the head of the queue that conservative backfill reserves for; those behind wait."""
ROUNDING = 1e-12
"""Of a time: two sums of the same times in another order may differ by that much."""


def easy(view: View) -> Dispatch:
    """EASY backfill (Lifka 1995): the first node that does not fit gets a reservation, and later ones start only
    where they end before it or leave its GPUs alone."""
    cluster, ready, model, need, start = view.cluster, view.ready, view.model, view.need, view.start
    queue: list[int] = []

    def dispatch() -> None:
        queue.extend(ready)
        ready.clear()
        while queue and cluster.free:
            gpu = cluster.place(model[queue[0]], need[queue[0]])
            if gpu < 0:
                break
            start(queue.pop(0), gpu)
        if not queue or not cluster.free:
            return
        reserved, begin_s = _reservation(view, queue[0])
        kept = [queue[0]]
        for position, node in enumerate(queue[1:], 1):
            if not cluster.free:
                kept.extend(queue[position:])
                break
            gpu = cluster.place(model[node], need[node])
            if gpu >= 0 and _end_s(view, node, gpu) > begin_s and cluster.mask_of(gpu, need[node]) & reserved:
                gpu = cluster.place_among(model[node], need[node], ~reserved)
            if gpu >= 0:
                start(node, gpu)
            else:
                kept.append(node)
        queue[:] = kept

    return dispatch


def _end_s(view: View, node: int, gpu: int) -> float:
    """Return the estimated end of a node that starts now on a GPU."""
    fetch_s = view.cluster.fetch_to_s(view.model[node], gpu)
    return view.now_s + fetch_s + view.run_s(node, gpu) + view.input_s(node, gpu, view.now_s, None)


def _free_from_s(view: View) -> list[float]:
    """Return by GPU when it should be free, inf for one that is not there; a node that takes longer than estimated
    should end now."""
    now_s, free = view.now_s, view.cluster.free
    return [now_s if free >> gpu & 1 else max(now_s, end_s) for gpu, end_s in enumerate(view.expected_end_s())]


def _reservation(view: View, node: int) -> tuple[int, float]:
    """Return the mask of the window for a node that should be free first, and when; of equals the lowest."""
    cluster, free_s, count = view.cluster, _free_from_s(view), view.need[node]
    windows = cluster.windows(view.model[node], count, free_s)
    begins = [(max(map(free_s.__getitem__, cluster.gpus_of(window, count))), window) for window in windows]
    if not begins:
        return 0, inf
    begin_s, place = min(begins)
    return cluster.mask_of(place, count), begin_s


class Held:
    """Which GPUs are used or reserved over time: the mask of the free ones in each stretch between two times at
    which some are taken or given back. Operations on masks do not cost the number of GPUs."""

    def __init__(self, gpus: int) -> None:
        self._all = (1 << gpus) - 1
        self._times_s: list[float] = []
        self._free: list[int] = []
        self._intervals: list[tuple[float, float, int]] = []
        self._moments: list[tuple[float, int]] = []

    def hold(self, mask: int, begin_s: float, end_s: float) -> None:
        """Hold the GPUs of a mask over an interval."""
        self._intervals.append((begin_s, end_s, mask))
        if begin_s == end_s:
            self._moments.append((begin_s, mask))
        self._split(begin_s)
        self._split(end_s)
        self._mark(begin_s, end_s, mask, free=False)

    def release(self, mask: int, begin_s: float, end_s: float) -> None:
        """Take back what was held over an interval."""
        self._intervals.remove((begin_s, end_s, mask))
        if begin_s == end_s:
            self._moments.remove((begin_s, mask))
        self._mark(begin_s, end_s, mask, free=True)
        for other_s, until_s, other in self._intervals:  # by rounding, one may end after the next has begun
            if other & mask and other_s < end_s and until_s > begin_s:
                self._mark(other_s, until_s, other, free=False)

    def begun_before(self, end_s: float) -> int:
        """Return the mask of GPUs that are held from a time before `end_s` on."""
        free = self._all
        for begin_s, mask in zip(self._times_s, self._free, strict=True):
            if _by(end_s, begin_s):
                break
            free &= mask
        for at_s, mask in self._moments:
            if not _by(end_s, at_s):
                free &= ~mask
        return self._all & ~free

    def earliest(self, view: View, node: int, length_s: float) -> tuple[float, int]:
        """Return the earliest time at which a place for a node is not held for a length of time, and that place."""
        need, times_s, free_in = view.need[node], self._times_s, self._free
        full_until_s = -inf
        for begin_s in sorted({view.now_s, *[end_s for _, end_s, _ in self._intervals]}):
            by_s, from_s = begin_s * (1 + ROUNDING), (begin_s + length_s) * (1 - ROUNDING)
            if by_s < full_until_s:
                continue
            free = self._all
            if from_s > by_s:
                first = max(0, bisect_right(times_s, by_s) - 1)
                for stretch in range(first, bisect_left(times_s, from_s)):
                    free &= free_in[stretch]
                    if free.bit_count() < need:
                        if free_in[stretch].bit_count() < need:
                            full_until_s = times_s[stretch + 1]
                        break
                for at_s, mask in self._moments:
                    free &= ~mask if by_s < at_s < from_s else -1
            else:  # shorter than any stretch
                for other_s, end_s, mask in self._intervals:
                    free &= ~mask if end_s > by_s and other_s < from_s else -1
            place = view.cluster.window_in(free, view.model[node], need) if free.bit_count() >= need else -1
            if place >= 0:
                return begin_s, place
        raise AssertionError("after the last reservation every window is free")

    def _mark(self, begin_s: float, end_s: float, mask: int, *, free: bool) -> None:
        for stretch in range(bisect_left(self._times_s, begin_s), bisect_left(self._times_s, end_s)):
            self._free[stretch] = self._free[stretch] | mask if free else self._free[stretch] & ~mask

    def _split(self, at_s: float) -> None:
        """Let a stretch begin at a time."""
        place = bisect_left(self._times_s, at_s)
        if place == len(self._times_s) or self._times_s[place] != at_s:
            self._times_s.insert(place, at_s)
            self._free.insert(place, self._free[place - 1] if place else self._all)


@dataclass(frozen=True, kw_only=True)
class _Reservation:
    """The mask of the GPUs that a node gets at `begin_s` for `length_s`, at the latest."""

    begin_s: float
    length_s: float
    gpus: int

    @property
    def interval(self) -> tuple[int, float, float]:
        """Its GPUs, begin and end."""
        return self.gpus, self.begin_s, self.begin_s + self.length_s


def conservative(view: View) -> Dispatch:
    """Conservative backfill (Mu'alem and Feitelson 2001): every node has a reservation, made in the order of the
    queue, and starts at its time or before.

    A reservation is kept until an earlier one is found that leaves all others alone, so a node starts no later than
    first promised, unless another takes longer than estimated or GPUs leave: then all are made anew. Before a start
    they assume the costliest fetch and the slowest place.
    """
    cluster, ready, need, start = view.cluster, view.ready, view.need, view.start
    queue: list[int] = []
    reserved: dict[int, _Reservation] = {}

    def reserve(node: int, held: Held) -> None:
        length_s = reserved[node].length_s if node in reserved else _longest_s(view, node)
        begin_s, place = held.earliest(view, node, length_s)
        reserved[node] = _Reservation(begin_s=begin_s, length_s=length_s, gpus=cluster.mask_of(place, need[node]))
        held.hold(*reserved[node].interval)

    def dispatch() -> None:
        queue.extend(ready)
        ready.clear()
        if not (queue and cluster.free) or go_through():
            return
        if all(cluster.free >> gpu & 1 or at_s == inf for gpu, at_s in enumerate(_free_from_s(view))):
            reserved.clear()  # a node takes longer now than it may hold its place, and nothing runs that could end
            go_through()

    def go_through() -> int:
        held = _held(view, reserved)
        kept: list[int] = []
        waiting = len(queue)
        for position, node in enumerate(queue):
            if len(kept) >= DEPTH or not cluster.free:
                kept.extend(queue[position:])
                break
            if (reservation := reserved.get(node)) is not None:
                held.release(*reservation.interval)
            gpu = _start_now(view, node, held)
            if gpu >= 0:
                held.hold(cluster.mask_of(gpu, need[node]), view.now_s, _end_s(view, node, gpu))
                reserved.pop(node, None)
                start(node, gpu)
            else:
                reserve(node, held)
                kept.append(node)
        queue[:] = kept
        return waiting - len(kept)

    return dispatch


def _held(view: View, reserved: dict[int, _Reservation]) -> Held:
    """Return what runs and what is reserved by GPU. Reservations that cannot be kept any more are taken out, with all
    others: their order is that of the queue."""
    now_s, free_s = view.now_s, _free_from_s(view)
    running: dict[float, int] = {}
    for gpu, at_s in enumerate(free_s):
        if at_s > now_s:
            running[at_s] = running.get(at_s, 0) | 1 << gpu
    for reservation in reserved.values():
        if not _by(
            max([now_s, *(at_s for at_s, gpus in running.items() if gpus & reservation.gpus)]), reservation.begin_s
        ):
            reserved.clear()
            break
    held = Held(view.cluster.gpus)
    for at_s, gpus in running.items():
        held.hold(gpus, now_s, at_s)
    for reservation in reserved.values():
        held.hold(*reservation.interval)
    return held


def _longest_s(view: View, node: int) -> float:
    """Return how long a node may hold GPUs: with the costliest fetch, on the place where it takes longest."""
    cluster = view.cluster
    places: Sequence[int] = ()  # GPUs alike need no look at each
    if not isinstance(cluster, Cluster):
        places = cluster.windows(view.model[node], view.need[node], [0.0] * cluster.gpus)
    took_s = [view.input_s(node, place, view.now_s, None) + view.run_s(node, place) for place in places]
    return cluster.worst_fetch_s(view.model[node]) + max(took_s, default=view.estimate_s[node])


def _start_now(view: View, node: int, held: Held) -> int:
    """Return the first GPU on which a node can start now and end before every later reservation, -1 for none."""
    cluster, count = view.cluster, view.need[node]
    allowed = cluster.free
    while True:
        gpu = cluster.place_among(view.model[node], count, allowed)
        if gpu < 0:
            return -1
        blocked = cluster.mask_of(gpu, count) & held.begun_before(_end_s(view, node, gpu))
        if not blocked:
            return gpu
        allowed &= ~blocked


def _by(at_s: float, other_s: float) -> bool:
    """Return whether a time is not after another, but for the rounding of their sums."""
    return at_s <= other_s * (1 + ROUNDING)
