"""Why nodes wait: for predecessors, for GPUs, for neighbouring GPUs, or held back though GPUs are free.

The cause is read from the schedule alone. At each moment of a node's wait for k GPUs, `lacking` holds while fewer
than k GPUs are free, `apart` while k are free but not k neighbours, or not k on one host where the machine asks for
that, and `held_back` the rest: the policy waits for another node or another GPU, or the free GPUs do not suit the
node. GPUs count as free unless they are gone or an execution holds them, loads and switches included.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamark.analysis.schedule.execution_rows import ExecutionRows, Floats, Gone
from seamark.analysis.schedule.occupation import counts_over_time

CELLS = 4_000_000
"""Most cells of a matrix of moments and GPUs that is held at a time."""

ROUNDING = 1e-12
"""Of the makespan: a shorter time is none, but the error of a sum of times."""


@dataclass(frozen=True, kw_only=True)
class WaitingCauses:
    """Seconds by execution, shape (executions,). `predecessors_s` passes from the arrival of the request until the
    node is ready, 0 for one that runs again; the other three add up to its wait for GPUs."""

    predecessors_s: Floats
    lacking_s: Floats
    apart_s: Floats
    held_back_s: Floats


def waiting_causes(rows: ExecutionRows) -> WaitingCauses:
    """Return the seconds that each execution waited, by cause."""
    away = _away(rows)
    moments, used = counts_over_time(away.begin_s, away.end_s)
    free = rows.gpus - used
    taken_s = np.maximum(rows.taken_s, rows.ready_s)
    lacking_s, apart_s = np.zeros(len(taken_s)), np.zeros(len(taken_s))
    for count in np.unique(rows.count).tolist():
        of_count = rows.count == count
        span = rows.ready_s[of_count], taken_s[of_count]
        lacking_s[of_count] = _time_in(free < count, moments, *span)
        if count > 1 and (rows.consecutive or rows.domain.any()):
            apart_s[of_count] = _time_in((free >= count) & ~_has_window(rows, away, moments, count), moments, *span)
    held_back_s = taken_s - rows.ready_s - lacking_s - apart_s
    return WaitingCauses(
        predecessors_s=np.where(rows.is_first, np.maximum(rows.ready_s - rows.arrival_s, 0.0), 0.0),
        lacking_s=lacking_s,
        apart_s=apart_s,
        held_back_s=np.where(held_back_s > ROUNDING * rows.makespan_s, held_back_s, 0.0),
    )


def _away(rows: ExecutionRows) -> Gone:
    """Return the intervals in which a GPU is not free: an execution holds it, or it is gone."""
    held = rows.held_row
    begin_s = np.concatenate([rows.taken_s[held], rows.gone.begin_s])
    end_s = np.concatenate([rows.end_s[held], np.minimum(rows.gone.end_s, rows.makespan_s)])
    there = end_s > begin_s
    gpu = np.concatenate([rows.held_gpu, rows.gone.gpu])
    return Gone(gpu=gpu[there], begin_s=begin_s[there], end_s=end_s[there])


def _time_in(holds: NDArray[np.bool_], moments: Floats, begin_s: Floats, end_s: Floats) -> Floats:
    """Return how long a condition, which `holds` from each moment to the next, held within intervals."""
    if len(moments) < 2:
        return np.zeros(len(begin_s))
    total_s = np.concatenate([[0.0], np.cumsum(np.diff(moments) * holds[:-1])])
    return np.asarray(np.interp(end_s, moments, total_s) - np.interp(begin_s, moments, total_s))


def _has_window(rows: ExecutionRows, away: Gone, moments: Floats, count: int) -> NDArray[np.bool_]:
    """Return whether a window of `count` GPUs is free after each moment, shape (moments,)."""
    place = np.searchsorted(moments, np.concatenate([away.begin_s, away.end_s]))
    order = np.argsort(place, kind="stable")
    place, gpus = place[order], np.concatenate([away.gpu, away.gpu])[order]
    change = np.repeat([1, -1], len(away.gpu))[order].astype(np.int32)
    before = np.zeros(rows.gpus, np.int32)
    is_free, chunk = np.zeros(len(moments), bool), max(1, CELLS // rows.gpus)
    for begin in range(0, len(moments), chunk):
        end = min(begin + chunk, len(moments))
        low, high = np.searchsorted(place, (begin, end))
        held_by = np.zeros((end - begin, rows.gpus), np.int32)
        np.add.at(held_by, (place[low:high] - begin, gpus[low:high]), change[low:high])
        held_by = held_by.cumsum(axis=0, dtype=np.int32) + before
        before = held_by[-1]
        is_free[begin:end] = _windows(held_by == 0, rows, count)
    return is_free


def _windows(free: NDArray[np.bool_], rows: ExecutionRows, count: int) -> NDArray[np.bool_]:
    """Return for each row of free GPUs, shape (moments, gpus), whether they have a window in one domain."""
    if not rows.consecutive:
        firsts = np.flatnonzero(np.diff(rows.domain, prepend=-1))
        return np.asarray((np.add.reduceat(free, firsts, axis=1, dtype=np.int32) >= count).any(axis=1))
    sums = np.zeros((len(free), rows.gpus + 1), np.int32)
    np.cumsum(free, axis=1, out=sums[:, 1:])
    whole = sums[:, count:] - sums[:, :-count] == count
    return np.asarray((whole & (rows.domain[count - 1 :] == rows.domain[: rows.gpus - count + 1])).any(axis=1))
