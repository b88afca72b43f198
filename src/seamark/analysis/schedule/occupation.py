"""GPUs over time: bars of executions, their sums in slices of time, and the queue of nodes that wait."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamark.analysis.schedule.execution_rows import FETCHES, LOAD, SWITCH, TRANSFER, ExecutionRows, Floats, Ints


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Intervals in which a GPU is held, shape (bars,). `kind` is the model's place where it runs a node, and
    from the number of models on that of FETCHES."""

    gpu: Ints
    begin_s: Floats
    end_s: Floats
    kind: Ints

    def __len__(self) -> int:
        return len(self.gpu)


@dataclass(frozen=True, kw_only=True)
class Occupation:
    """Seconds by row, kind and slice of time, shape (rows, kinds, slices); kinds as those of Bars. A row has the GPUs
    from `first_gpu` on to that of the next row, and a slice takes `slice_s`."""

    seconds: Floats
    first_gpu: Ints
    gpus: int
    slice_s: float

    @property
    def gpus_of_row(self) -> Ints:
        """Number of GPUs of each row."""
        return np.diff(np.append(self.first_gpu, self.gpus))

    @property
    def shares(self) -> NDArray[np.float64]:
        """Shares of the time of a row's GPUs, from 0 to 1; the rest is idle."""
        return self.seconds / (self.slice_s * self.gpus_of_row[:, None, None])


def bars_of(rows: ExecutionRows) -> Bars:
    """Return the bars of all executions: on each GPU load or switch and transfer, if they took time, then the run."""
    of, models = rows.held_row, len(rows.models)
    fetch = models + np.where(rows.is_switch, FETCHES.index(SWITCH), FETCHES.index(LOAD))
    transfer = np.full(len(of), models + FETCHES.index(TRANSFER))
    fetched_s = rows.start_s - rows.transfer_s
    begin_s = np.concatenate([rows.taken_s[of], fetched_s[of], rows.start_s[of]])
    end_s = np.concatenate([fetched_s[of], rows.start_s[of], rows.end_s[of]])
    kind = np.concatenate([fetch[of], transfer, rows.model[of]])
    gpu = np.concatenate([rows.held_gpu] * 3)
    there = end_s > begin_s
    return Bars(gpu=gpu[there], begin_s=begin_s[there], end_s=end_s[there], kind=kind[there])


def occupation_of(bars: Bars, *, gpus: int, kinds: int, span_s: float, slices: int, most_rows: int) -> Occupation:
    """Sum bars up by GPU and slice of `span_s`; more GPUs than `most_rows` share rows, as evenly as can be."""
    rows = min(gpus, most_rows)
    first_gpu = np.arange(rows) * gpus // rows
    row = np.searchsorted(first_gpu, bars.gpu, side="right") - 1
    sums = seconds_in_slices(bars.begin_s, bars.end_s, row * kinds + bars.kind, rows * kinds, span_s, slices)
    return Occupation(
        seconds=sums.reshape(rows, kinds, slices), first_gpu=first_gpu, gpus=gpus, slice_s=span_s / slices
    )


def seconds_in_slices(
    begin_s: Floats, end_s: Floats, row: Ints, rows: int, span_s: float, slices: int
) -> NDArray[np.float64]:
    """Return the seconds of intervals by row and slice, shape (rows, slices). Their sum is that of the intervals."""
    width = span_s / slices
    if not len(begin_s) or width <= 0.0:
        return np.zeros((rows, slices))
    first, last = (np.clip((at / width).astype(np.int64), 0, slices - 1) for at in (begin_s, end_s))
    cells, alone = rows * slices, first == last
    sums = np.bincount((row * slices + first)[alone], (end_s - begin_s)[alone], cells)
    row, begin_s, end_s, first, last = (column[~alone] for column in (row, begin_s, end_s, first, last))
    sums = sums + np.bincount(row * slices + first, (first + 1) * width - begin_s, cells)
    sums = sums + np.bincount(row * slices + last, end_s - last * width, cells)
    stride = slices + 1
    steps = np.bincount(row * stride + first + 1, minlength=rows * stride).astype(np.int64)
    steps -= np.bincount(row * stride + last, minlength=rows * stride).astype(np.int64)
    whole = steps.reshape(rows, stride).cumsum(axis=1)[:, :slices]
    return np.asarray(sums.reshape(rows, slices) + whole * width)


def mean_queue(rows: ExecutionRows, span_s: float, slices: int) -> NDArray[np.float64]:
    """Return the mean number of nodes that are ready and have no GPUs in each slice, shape (slices,)."""
    alone = np.zeros(len(rows.ready_s), np.int64)
    waits = seconds_in_slices(rows.ready_s, np.maximum(rows.taken_s, rows.ready_s), alone, 1, span_s, slices)
    return np.asarray(waits[0] / (span_s / slices) if span_s > 0 else waits[0])


def counts_over_time(begin_s: Floats, end_s: Floats, weight: Ints | None = None) -> tuple[Floats, Ints]:
    """Return all moments at which the number of running intervals may change, and the number after each of them; an
    interval counts as its `weight`. Intervals of no length count nowhere."""
    weights = np.ones(len(begin_s), np.int64) if weight is None else weight
    there = end_s > begin_s
    moments, inverse = np.unique(np.concatenate([begin_s[there], end_s[there]]), return_inverse=True)
    change = np.concatenate([weights[there], -weights[there]])
    steps = np.zeros(len(moments), np.int64)
    np.add.at(steps, inverse.reshape(-1), change)
    return moments, steps.cumsum()
