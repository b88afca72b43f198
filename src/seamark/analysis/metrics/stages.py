"""Figures of the stages that requests go through, from events.parquet, in passes of constant memory; critical paths.

Durations are of the requests that were due in the measured window and have a good reply. `busy_ratio` is of all
events in the window.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from seamark.analysis.metrics.distribution import TimeDistribution
from seamark.analysis.metrics.samples import DamagedError, Samples, Times
from seamark.analysis.metrics.window import Window
from seamark.model.results.stages import StageBar, StageFigures, Stages, StageTimes, TracedRequest
from seamark.model.sample import UNTIMED, WITHOUT_EVENTS, EventKind
from seamark.storage.documents import regular

EVENTS_OF_A_PASS = 400_000
"""Events in memory at a time, about: each pass reads those of a range of requests."""
TIMED = (EventKind.WAIT, EventKind.RUN, EventKind.BLOCKED, EventKind.PREPARE)
"""Kinds whose time is that of the request in the stage."""
EXAMPLES = {"p50": 0.5, "p99": 0.99}
"""Requests that the report draws: those whose response times are nearest to these quantiles."""
MOST_BARS = 120
KINDS = {int(kind): kind.name.lower() for kind in EventKind}


@dataclass(frozen=True, kw_only=True)
class Events:
    """Some events as columns; times in ns from the start of load, `track` identifies a thread of a worker."""

    query: Times
    begin: Times
    end: Times
    stage: Times
    what: Times
    track: Times

    def of(self, mask: NDArray[np.bool_]) -> "Events":
        """Return the events of a mask."""
        return Events(**{name: column[mask] for name, column in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class _Requests:
    """Requests due in the window with a good reply, by ascending number."""

    query: Times
    due: Times
    last: Times


@dataclass(kw_only=True)
class _Stage:
    """What was counted of one stage."""

    run: TimeDistribution = field(default_factory=TimeDistribution)
    wait: TimeDistribution = field(default_factory=TimeDistribution)
    blocked: TimeDistribution = field(default_factory=TimeDistribution)
    first: TimeDistribution = field(default_factory=TimeDistribution)
    tracks: set[int] = field(default_factory=set)
    busy_ns: int = 0
    total_ns: int = 0
    critical_ns: int = 0


def read_stages(path: Path, samples: Samples, window: Window, response: TimeDistribution) -> Stages | None:
    """Return the figures of all stages; None without a file of events. `response` has the response times of the
    window. Raises DamagedError for a file that cannot be read."""
    if not path.exists():
        return None
    try:
        with pq.ParquetFile(regular(path), buffer_size=1 << 20, page_checksum_verification=True) as file:
            names = json.loads((file.schema_arrow.metadata or {})[b"seamark"])["stages"]
            return _figures(file, [str(name) for name in names], samples, window, response)
    except (pa.ArrowException, OSError, ValueError, KeyError) as cause:
        if isinstance(cause, DamagedError):
            raise
        raise DamagedError.by(cause, path.name) from cause


def _figures(
    file: pq.ParquetFile, names: Sequence[str], samples: Samples, window: Window, response: TimeDistribution
) -> Stages:
    stages: dict[int, _Stage] = {number: _Stage() for number in range(len(names))}
    quantiles = {name: response.quantile(probability) for name, probability in EXAMPLES.items()}
    wanted_ns = {name: quantile.low for name, quantile in quantiles.items() if quantile is not None}
    nearest: dict[str, tuple[float, TracedRequest]] = {}
    traced = latency_ns = 0
    for low, high in _ranges(file):
        events, requests = _events(file, low, high), _requests(samples, window, low, high)
        _add_busy(stages, events, window)
        place = np.searchsorted(requests.query, events.query)
        place[place == len(requests.query)] = 0
        known = requests.query[place] == events.query if len(requests.query) else np.zeros(len(place), dtype=bool)
        events, place = events.of(known), place[known]
        seen = np.unique(place)
        traced += len(seen)
        latency_ns += int((requests.last[seen] - requests.due[seen]).sum())
        _add_times(stages, events, place, requests)
        times_ns = requests.last[seen] - requests.due[seen]
        for name, wanted in wanted_ns.items() if len(seen) else ():
            best = int(np.argmin(np.abs(times_ns - wanted)))
            off_ns = abs(int(times_ns[best]) - wanted)
            if name not in nearest or off_ns < nearest[name][0]:
                of_request = events.of(place == seen[best])
                nearest[name] = (
                    off_ns,
                    _traced(name, of_request, int(requests.due[seen[best]]), int(times_ns[best]), names),
                )
    critical = sum(stage.critical_ns for stage in stages.values())
    untimed = [number for number, name in enumerate(names) if name.endswith(UNTIMED)]
    hidden = sum(stages[number].critical_ns for number in untimed)
    return Stages(
        events=file.metadata.num_rows,
        requests=traced,
        outside_ratio=1 - critical / latency_ns if latency_ns else None,
        hidden_ratio=hidden / latency_ns if latency_ns and untimed else None,
        by_stage={
            _name(names, number): _stage(stage, latency_ns, window)
            for number, stage in sorted(stages.items())
            if stage.tracks
        },
        without_events=tuple(name.removesuffix(WITHOUT_EVENTS) for name in names if name.endswith(WITHOUT_EVENTS)),
        examples=tuple(nearest[name][1] for name in wanted_ns if name in nearest),
    )


def _name(names: Sequence[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else f"stage {number}"


def _stage(stage: _Stage, latency_ns: int, window: Window) -> StageFigures:
    capacity_ns = len(stage.tracks) * (window.end_ns - window.start_ns)
    return StageFigures(
        visits=stage.run.count,
        threads=len(stage.tracks),
        busy_ratio=stage.busy_ns / capacity_ns if capacity_ns > 0 else None,
        run_ms=_times(stage.run),
        wait_ms=_times(stage.wait) if stage.wait.count else None,
        blocked_ms=_times(stage.blocked) if stage.blocked.count else None,
        first_ms=_times(stage.first) if stage.first.count else None,
        latency_ratio=stage.total_ns / latency_ns if latency_ns else None,
        critical_ratio=stage.critical_ns / latency_ns if latency_ns else None,
    )


def _times(times: TimeDistribution) -> StageTimes:
    p50, p95, p99, mean = (times.statistic_ms(name) for name in ("p50", "p95", "p99", "mean"))
    return StageTimes(p50=p50, p95=p95, p99=p99, mean=mean)


def _ranges(file: pq.ParquetFile) -> Iterator[tuple[int, int]]:
    """Yield ranges [low, high) of requests that together are all, with about EVENTS_OF_A_PASS events each."""
    bounds = [_bounds(file, group) for group in range(file.num_row_groups)]
    if not bounds:
        return
    low, end = min(least for least, _ in bounds), max(most for _, most in bounds) + 1
    passes = max(1, -(-file.metadata.num_rows // EVENTS_OF_A_PASS))
    step = max(1, -(-(end - low) // passes))
    for start in range(low, end, step):
        yield start, min(start + step, end)


def _bounds(file: pq.ParquetFile, group: int) -> tuple[int, int]:
    statistics = file.metadata.row_group(group).column(file.schema_arrow.names.index("query")).statistics
    return int(statistics.min), int(statistics.max)


def _events(file: pq.ParquetFile, low: int, high: int) -> Events:
    columns = ["query", "begin_ns", "end_ns", "stage", "what", "thread", "worker"]
    by_column: dict[str, list[NDArray[np.int64]]] = {name: [np.zeros(0, dtype=np.int64)] for name in columns}
    for group in range(file.num_row_groups):
        least, most = _bounds(file, group)
        if least >= high or most < low:
            continue
        part = file.read_row_group(group, columns=columns, use_threads=False)
        query = part["query"].to_numpy()
        mask = (query >= low) & (query < high)
        for name in columns:
            kept = part[name].to_numpy()[mask]
            by_column[name].append(kept if name in ("query", "begin_ns", "end_ns") else kept.astype(np.int32))
    whole = {name: np.concatenate(parts[1:] or parts) for name, parts in by_column.items()}
    return Events(
        query=whole["query"],
        begin=whole["begin_ns"],
        end=whole["end_ns"],
        stage=whole["stage"],
        what=whole["what"],
        track=(whole["worker"].astype(np.int64) << 32) | whole["thread"].astype(np.int64),
    )


def _requests(samples: Samples, window: Window, low: int, high: int) -> _Requests:
    chosen = [np.zeros((3, 0), dtype=np.int64)]
    for batch in samples.batches():
        mask = (batch.index >= low) & (batch.index < high) & batch.good & window.holds(batch.due)
        chosen.append(np.stack([batch.index[mask], batch.due[mask], batch.last[mask]]))
    query, due, last = np.concatenate(chosen, axis=1)
    order = np.argsort(query)
    return _Requests(query=query[order], due=due[order], last=last[order])


def _add_busy(stages: dict[int, _Stage], events: Events, window: Window) -> None:
    """Add the time in the window in which threads ran each stage, and which threads these are."""
    for number in np.unique(events.stage).tolist():
        stage = stages.setdefault(number, _Stage())
        runs = events.of((events.stage == number) & (events.what == EventKind.RUN))
        spent = np.minimum(runs.end, window.end_ns) - np.maximum(runs.begin, window.start_ns)
        stage.busy_ns += int(spent[spent > 0].sum())
        stage.tracks.update(np.unique(runs.track).tolist())


def _add_times(stages: dict[int, _Stage], events: Events, place: Times, requests: _Requests) -> None:
    """Add the times of requests in each stage: `place` has the request of each event."""
    for number in np.unique(events.stage).tolist():
        stage = stages.setdefault(number, _Stage())
        blocked, first = (
            (events.stage == number) & (events.what == kind) for kind in (EventKind.BLOCKED, EventKind.FIRST_UNIT)
        )
        stage.blocked.add((events.end - events.begin)[blocked])
        stage.first.add((events.end - requests.due[place])[first])
    timed = np.isin(events.what, TIMED)
    events, place = events.of(timed), place[timed]
    critical = critical_ns(place, events.begin, events.end, requests.due, requests.last)
    for number in np.unique(events.stage).tolist():
        stage, mask = stages.setdefault(number, _Stage()), events.stage == number
        spent, what = (events.end - events.begin)[mask], events.what[mask]
        stage.run.add(spent[what == EventKind.RUN])
        stage.wait.add(spent[what == EventKind.WAIT])
        stage.total_ns += int(spent.sum())
        stage.critical_ns += int(critical[mask].sum())


def _traced(name: str, events: Events, due_ns: int, response_ns: int, names: Sequence[str]) -> TracedRequest:
    """Return the example of a quantile by its events, as bars, ascending by their beginning, MOST_BARS at most."""
    order = np.argsort(events.begin, kind="stable")[:MOST_BARS]
    return TracedRequest(
        quantile=name,
        query=int(events.query[0]),
        response_ms=response_ns / 1e6,
        events=len(events.query),
        bars=tuple(
            StageBar(
                stage=_name(names, int(events.stage[row])),
                what=KINDS.get(int(events.what[row]), str(events.what[row])),
                begin_ms=(int(events.begin[row]) - due_ns) / 1e6,
                end_ms=(int(events.end[row]) - due_ns) / 1e6,
            )
            for row in order.tolist()
        ),
    )


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
