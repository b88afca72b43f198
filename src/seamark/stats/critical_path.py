"""Critical path of requests that consist of timed events: which of them the end of the request waited for. Pure."""

import numpy as np
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]

FEW = 64
"""Requests at which plain lists are faster than arrays of all requests."""


def critical_ns(
    request: NDArray[np.int64], begin_ns: Nanoseconds, end_ns: Nanoseconds, due_ns: Nanoseconds, last_ns: Nanoseconds
) -> Nanoseconds:
    """Return the time of each event that lies on the critical path of its request, in ns, 0 for the others.

    `request`, `begin_ns` and `end_ns` have the shape (events,); `request` indexes `due_ns` and `last_ns`, of the
    shape (requests,), between which the path lies. It is walked backwards from the end of the request: the event that
    ended last before it, of several the one that began last, then the same from the beginning of that event (Yang and
    Miller, Critical path analysis for the execution of parallel and distributed programs, 1988). Time in which no
    event of the path ran belongs to none.
    """
    times_ns = np.zeros(len(request), dtype=np.int64)
    whole = np.flatnonzero(end_ns > begin_ns)
    order = whole[np.lexsort((begin_ns[whole], end_ns[whole], request[whole]))]
    numbers = np.arange(len(due_ns))
    first = np.searchsorted(request[order], numbers, side="left")
    place = np.searchsorted(request[order], numbers, side="right") - 1
    at_ns = last_ns.copy()
    active = np.flatnonzero((place >= first) & (last_ns > due_ns))
    while len(active) > FEW:
        events = order[place[active]]
        on_path = end_ns[events] <= at_ns[active]
        events, requests = events[on_path], active[on_path]
        begins_ns = np.maximum(begin_ns[events], due_ns[requests])
        times_ns[events] = np.maximum(end_ns[events] - begins_ns, 0)
        at_ns[requests] = begins_ns
        place[active] -= 1
        active = active[(place[active] >= first[active]) & (at_ns[active] > due_ns[active])]
    for number in active.tolist():
        events = order[first[number] : place[number] + 1][::-1]
        times_ns[events] = _walk(
            begin_ns[events].tolist(), end_ns[events].tolist(), int(due_ns[number]), int(at_ns[number])
        )
    return times_ns


def _walk(begins_ns: list[int], ends_ns: list[int], due_ns: int, at_ns: int) -> list[int]:
    """Return the times on the path of one request's events, the one that ended last first."""
    times_ns = [0] * len(begins_ns)
    for index, (begin_ns, end_ns) in enumerate(zip(begins_ns, ends_ns, strict=True)):
        if at_ns <= due_ns:
            break
        if end_ns <= at_ns:
            at_ns = max(begin_ns, due_ns)
            times_ns[index] = max(end_ns - at_ns, 0)
    return times_ns
