"""Metrics of streamed replies from their chunks: gaps between them, and arrivals inside the window."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from seamark.analysis.metrics.samples import BATCH_ROWS, DamagedError, Samples, Times
from seamark.analysis.metrics.window import Window
from seamark.storage.documents import regular


@dataclass(frozen=True, kw_only=True)
class FirstChunk:
    """Good replies without a token count of the first chunk, which counts as one."""

    replies: int
    tokens: int
    chunks: int

    @property
    def tokens_in_chunk(self) -> float:
        """Mean tokens of a chunk."""
        return self.tokens / self.chunks

    @property
    def too_low_ratio(self) -> float:
        """Ratio by which time per token is too low, if a first chunk has as many tokens as the others: of n tokens, m
        in the first, (e - t1) / (n - 1) is less than (e - t1) / (n - m) by (m - 1) / (n - 1)."""
        tokens = self.tokens / self.replies
        return max(0.0, (self.tokens_in_chunk - 1) / (tokens - 1)) if tokens > 1 else 0.0


@dataclass(frozen=True, kw_only=True)
class Stream:
    """The chunks of one trial. `units` are those of good replies that arrived inside the window: each reply's units
    spread evenly over its chunks, since a chunk does not say how many it carries. `gaps_ns` are inter-chunk times of
    the good replies that were due in the window, as TTFT and TPOT are. `reads` inside the window brought `chunks`
    chunks."""

    units: float
    gaps_ns: Times
    reads: int
    chunks: int
    first_chunk: FirstChunk | None = None


def read_stream(path: Path, samples: Samples, window: Window) -> Stream | None:
    """Return the stream of a trial's chunks, None for whole replies. Raises DamagedError for a damaged file."""
    if not path.exists():
        return None
    try:
        with pq.ParquetFile(regular(path), page_checksum_verification=True) as file:
            chunks = _Chunks(window, _good_and_due(samples, window))
            for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
                chunks.add(*(batch.column(name).to_numpy() for name in ("index", "at_ns", "events")))
    except (pa.ArrowException, OSError, KeyError) as cause:
        raise DamagedError.by(cause, path.name) from cause
    return Stream(
        units=chunks.units(samples),
        gaps_ns=chunks.gaps_ns(),
        reads=chunks.reads,
        chunks=chunks.chunks,
        first_chunk=chunks.first_chunk(samples),
    )


def _good_and_due(samples: Samples, window: Window) -> NDArray[np.bool_]:
    """Return by index which requests were due in the window and got a good reply."""
    chosen = np.zeros(0, dtype=np.bool_)
    for batch in samples.batches():
        index = batch.index[batch.good & window.holds(batch.due)]
        if index.size and int(index.max()) >= chosen.size:
            chosen = np.concatenate([chosen, np.zeros(int(index.max()) + 1 - chosen.size, dtype=np.bool_)])
        chosen[index] = True
    return chosen


class _Chunks:
    """Chunks counted by request. A request's rows come in the order of their times, among those of others."""

    def __init__(self, window: Window, with_gaps: NDArray[np.bool_]) -> None:
        self._window = window
        self._with_gaps = with_gaps
        self._all = np.zeros(0, dtype=np.int64)
        self._inside = np.zeros(0, dtype=np.int64)
        self._last_ns = np.zeros(0, dtype=np.int64)
        self._gaps: list[Times] = []
        self.reads = 0
        self.chunks = 0

    def add(self, index: Times, at_ns: Times, events: NDArray[np.int32]) -> None:
        """Add some rows of the file."""
        if not index.size:
            return
        self._reach(int(index.max()) + 1)
        inside = (at_ns > self._window.start_ns) & (at_ns <= self._window.end_ns)
        order = np.argsort(index, kind="stable")
        of, at, many, within = index[order], at_ns[order], events[order].astype(np.int64), inside[order]
        begins = np.concatenate([[True], of[1:] != of[:-1]])
        before = np.where(begins, self._last_ns[of], np.concatenate([[0], at[:-1]]))
        counts = np.zeros(of.size, dtype=np.bool_)
        counts[of < self._with_gaps.size] = self._with_gaps[of[of < self._with_gaps.size]]
        self._gaps.append((at - before)[(~begins | (self._all[of] > 0)) & counts])
        self._gaps.append(np.zeros(int((many - 1)[counts].sum()), dtype=np.int64))
        self.reads += int(within.sum())
        self.chunks += int(many[within].sum())
        np.add.at(self._all, of, many)
        np.add.at(self._inside, of[within], many[within])
        ends = np.concatenate([of[1:] != of[:-1], [True]])
        self._last_ns[of[ends]] = at[ends]

    def units(self, samples: Samples) -> float:
        """Return the units that arrived inside the window."""
        total = 0.0
        for batch in samples.batches():
            good = batch.good & (batch.index < self._all.size)
            index, units = batch.index[good], batch.units[good]
            chunks = self._all[index]
            some = chunks > 0
            total += float((units[some] * self._inside[index[some]] / chunks[some]).sum())
        return total

    def first_chunk(self, samples: Samples) -> FirstChunk | None:
        """Return the facts on replies with an unknown number of tokens in their first chunk; None without any."""
        replies = tokens = chunks = 0
        for batch in samples.batches():
            unknown = batch.good & (batch.first_units == 0) & (batch.uncounted == 0) & (batch.index < self._all.size)
            several = self._all[batch.index[unknown]]
            replies += int((several > 0).sum())
            tokens += int(batch.units[unknown][several > 0].sum())
            chunks += int(several.sum())
        return FirstChunk(replies=replies, tokens=tokens, chunks=chunks) if replies else None

    def gaps_ns(self) -> Times:
        """Return the time between each chunk of those replies and the previous one; 0 for two of one read."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self._gaps])

    def _reach(self, size: int) -> None:
        if size > self._all.size:
            more = max(size, 2 * self._all.size) - self._all.size
            self._all, self._inside, self._last_ns = (
                np.concatenate([column, np.zeros(more, dtype=np.int64)])
                for column in (self._all, self._inside, self._last_ns)
            )
