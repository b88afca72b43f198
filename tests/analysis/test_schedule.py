"""Schedules read from executions: bars, sums by slice, queues, causes of waiting, and the trace, by hand."""

import gzip
import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seamark.analysis.metrics.samples import DamagedError
from seamark.analysis.schedule.execution_rows import read_rows, rows_of
from seamark.analysis.schedule.occupation import bars_of, counts_over_time, mean_queue, occupation_of
from seamark.analysis.schedule.trace import write_schedule_trace
from seamark.analysis.schedule.waiting import waiting_causes


def table(rows, gpus=4, **more):
    """Return executions from (model, first GPU, GPUs, ready, taken, start, end, fetch); all arrive at zero."""
    names = ("model", "gpu", "gpus", "ready_s", "taken_s", "start_s", "end_s", "fetch")
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    columns |= {"request": list(range(len(rows))), "request_id": [f"r{at}" for at in range(len(rows))]}
    columns |= {"node": ["n"] * len(rows), "workflow": ["w"] * len(rows), "arrival_s": [0.0] * len(rows)}
    made = pa.table(columns | more)
    return made.replace_schema_metadata({b"seamark": json.dumps({"gpus": gpus, "policy": "easy"}).encode()})


LITTLE = [
    ("a", 0, 1, 0.0, 0.0, 2.0, 6.0, "load"),
    ("b", 1, 2, 0.0, 0.0, 0.0, 4.0, "none"),
    ("b", 0, 1, 1.0, 6.0, 7.0, 10.0, "switch"),
]
"""GPU 0: load 0-2, a 2-6, switch 6-7, b 7-10. GPUs 1 and 2: b 0-4. GPU 3 is idle."""


@pytest.mark.covers("C11")
def test_bars_are_loads_switches_and_runs_on_each_gpu():
    bars = bars_of(rows_of(table(LITTLE)))
    found = sorted(
        zip(bars.gpu.tolist(), bars.begin_s.tolist(), bars.end_s.tolist(), bars.kind.tolist(), strict=True)
    )
    load, switch = 2, 3
    assert found == [
        (0, 0.0, 2.0, load),
        (0, 2.0, 6.0, 0),
        (0, 6.0, 7.0, switch),
        (0, 7.0, 10.0, 1),
        (1, 0.0, 4.0, 1),
        (2, 0.0, 4.0, 1),
    ]


@pytest.mark.covers("C11")
def test_shares_of_slices_are_those_counted_by_hand():
    bars = bars_of(rows_of(table(LITTLE)))
    found = occupation_of(bars, gpus=4, kinds=5, span_s=10.0, slices=2, most_rows=8)
    assert found.slice_s == 5.0
    assert found.shares[0].tolist() == [[0.6, 0.2], [0.0, 0.6], [0.4, 0.0], [0.0, 0.2], [0.0, 0.0]]
    assert found.shares[1].tolist() == [[0.0, 0.0], [0.8, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert found.shares[3].sum() == 0.0
    pairs = occupation_of(bars, gpus=4, kinds=5, span_s=10.0, slices=2, most_rows=2)
    assert pairs.gpus_of_row.tolist() == [2, 2]
    assert pairs.shares[1].tolist() == [[0.0, 0.0], [0.4, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]


@pytest.mark.covers("C11")
@pytest.mark.parametrize("seed", range(20))
def test_summing_up_keeps_the_busy_time_of_every_gpu_and_kind(seed):
    rng = np.random.default_rng(seed)
    count, gpus = 6_000, int(rng.integers(1, 12))
    begin = rng.exponential(1.0, count).cumsum()
    load, run = rng.exponential(0.3, count) * (rng.random(count) < 0.4), rng.exponential(2.0, count)
    width = rng.integers(1, gpus + 1, count)
    first = rng.integers(0, gpus - width + 1)
    kind = np.where(rng.random(count) < 0.5, "load", "switch")
    columns = (rng.choice(["a", "b", "c"], count), first, width, begin, begin, begin + load, begin + load + run, kind)
    bars = bars_of(rows_of(table(list(zip(*(each.tolist() for each in columns), strict=True)), gpus)))
    assert len(bars) > 5_000
    span_s = float(bars.end_s.max())
    took_s = bars.end_s - bars.begin_s
    for slices in (1, 7, 160):
        found = occupation_of(bars, gpus=gpus, kinds=6, span_s=span_s, slices=slices, most_rows=64)
        cells = np.zeros((gpus, 6))
        np.add.at(cells, (bars.gpu, bars.kind), took_s)
        assert found.seconds.sum(axis=2) == pytest.approx(cells, rel=1e-9, abs=1e-6)
        assert found.seconds.min() > -1e-9
    fewer = occupation_of(bars, gpus=gpus, kinds=6, span_s=span_s, slices=50, most_rows=3)
    assert fewer.seconds.sum() == pytest.approx(took_s.sum(), rel=1e-9)
    assert fewer.gpus_of_row.sum() == gpus


@pytest.mark.covers("C11")
def test_the_queue_is_of_nodes_that_are_ready_and_have_no_gpu():
    rows = rows_of(table([*LITTLE, ("b", 3, 1, 4.0, 5.0, 5.0, 6.0, "none")]))
    assert mean_queue(rows, 10.0, 5).tolist() == [0.5, 1.0, 1.5, 0.0, 0.0]
    moments, waiting = counts_over_time(rows.ready_s, rows.taken_s)
    assert (moments.tolist(), waiting.tolist()) == ([1.0, 4.0, 5.0, 6.0], [1, 2, 1, 0])


@pytest.mark.covers("C11")
def test_waits_are_split_by_what_was_free_at_each_moment():
    """Of four GPUs: 0 and 2 are held until 4, 1 until 2, 3 until 1. A node of two GPUs waits from 0.5 to 6.

    Until 1 no GPU is free, from 1 to 2 one: too few. From 2 to 4 GPUs 1 and 3 are free, but not side by side. From 4
    to 6 all are free: the policy held it back.
    """
    rows = rows_of(
        table(
            [
                ("a", 0, 1, 0.0, 0.0, 0.0, 4.0, "none"),
                ("a", 1, 1, 0.0, 0.0, 0.0, 2.0, "none"),
                ("a", 2, 1, 0.0, 0.0, 0.0, 4.0, "none"),
                ("a", 3, 1, 0.0, 0.0, 0.0, 1.0, "none"),
                ("b", 0, 2, 0.5, 6.0, 6.0, 7.0, "none"),
                ("a", 3, 1, 0.5, 3.0, 3.0, 3.5, "none"),
            ]
        )
    )
    found = waiting_causes(rows)
    assert found.lacking_s.tolist() == [0, 0, 0, 0, 2.0, 0.5]
    assert found.apart_s.tolist() == [0, 0, 0, 0, 1.5, 0]
    assert found.held_back_s.tolist() == [0, 0, 0, 0, 2.0, 2.0]
    assert found.predecessors_s.tolist() == [0, 0, 0, 0, 0.5, 0.5]


@pytest.mark.covers("C11")
def test_causes_add_up_to_the_waits_and_agree_with_a_slow_count(monkeypatch):
    monkeypatch.setattr("seamark.analysis.schedule.waiting.CELLS", 40)
    rng = np.random.default_rng(3)
    free_s, rows = np.zeros(6), []
    for _ in range(120):
        width = int(rng.integers(1, 4))
        ready = float(rng.integers(0, 200)) / 2
        windows = [max(ready, *free_s[at : at + width]) for at in range(7 - width)]
        first = int(np.argmin(windows)) if rng.random() < 0.7 else int(rng.integers(0, 7 - width))
        taken = float(windows[first])
        free_s[first : first + width] = taken + float(rng.integers(1, 8))
        rows.append(("a", first, width, ready, taken, taken, float(free_s[first]), "none"))
    own = rows_of(table(rows, 6))
    found = waiting_causes(own)
    assert found.lacking_s + found.apart_s + found.held_back_s == pytest.approx(own.taken_s - own.ready_s)
    for place, (_, _, width, ready, taken, *_) in enumerate(rows):
        lacking = apart = 0.0
        for half in range(int(2 * ready), int(2 * taken)):
            at = half / 2 + 0.25
            held = {gpu for _, first, many, _, t, _, e, _ in rows if t < at < e for gpu in range(first, first + many)}
            free = [gpu not in held for gpu in range(6)]
            whole = any(all(free[gpu : gpu + width]) for gpu in range(7 - width))
            lacking += 0.5 * (sum(free) < width)
            apart += 0.5 * (sum(free) >= width and not whole)
        assert (found.lacking_s[place], found.apart_s[place]) == pytest.approx((lacking, apart)), place


@pytest.mark.covers("C11")
def test_gpus_that_a_file_lists_need_not_be_neighbours_and_unknown_columns_are_left():
    listed = {"gpu_ids": [[0], [1, 3], [0]], "attempts": [1, 2, 1]}
    rows = rows_of(table(LITTLE, **listed))
    assert rows.held_gpu.tolist() == [0, 1, 3, 0]
    assert rows.count.tolist() == [1, 2, 1]


@pytest.mark.covers("C11")
def test_transfers_of_data_are_apart_from_loads_and_windows_of_a_machine_file_may_be_any(tmp_path):
    own = table(LITTLE, transfer_s=[0.5, None, 0.0])
    facts = {"gpus": 4, "machine": {"windows": "any"}}
    own = own.replace_schema_metadata({b"seamark": json.dumps(facts).encode()})
    rows = rows_of(own)
    assert not rows.consecutive
    bars = bars_of(rows)
    first = [(bars.kind[at], bars.begin_s[at], bars.end_s[at]) for at in np.flatnonzero(bars.gpu == 0)]
    assert sorted(first)[2:] == [(2, 0.0, 1.5), (3, 6.0, 7.0), (4, 1.5, 2.0)]
    write_schedule_trace(own, tmp_path / "t.json")
    slices = {each["name"]: each["dur"] for each in events_of(tmp_path / "t.json") if each["ph"] == "X"}
    assert (slices["load a"], slices["transfer"]) == (1.5e6, 0.5e6)


def test_executions_that_never_held_a_gpu_are_left_out():
    lost = table(LITTLE)
    never = pa.array([0.0, None, float("nan")], pa.float64())
    rows = rows_of(lost.set_column(lost.column_names.index("taken_s"), "taken_s", never))
    assert rows.held_gpu.tolist() == [0]


@pytest.mark.covers("E-NFR04")
def test_files_that_cannot_be_are_damaged(tmp_path):
    path = tmp_path / "executions.parquet"
    with pytest.raises(DamagedError, match=r"executions\.parquet is missing"):
        read_rows(path)
    for rows, gpus, words in (
        (LITTLE, 2, "other GPUs than 0 to 1"),
        ([("a", 0, 1, 0.0, 3.0, 2.0, 6.0, "load")], 4, "end before they begin"),
    ):
        pq.write_table(table(rows, gpus), path)
        with pytest.raises(DamagedError, match=words):
            read_rows(path)
    pq.write_table(table(LITTLE).drop_columns(["ready_s"]), path)
    with pytest.raises(DamagedError, match="ready_s"):
        read_rows(path)
    path.write_text("PAR1")
    with pytest.raises(DamagedError, match="damaged"):
        read_rows(path)


def events_of(path):
    document = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_text())
    return document["traceEvents"]


@pytest.mark.covers("C12")
@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_has_a_track_a_gpu_whose_slices_are_the_schedule_and_counters(tmp_path, name):
    path = tmp_path / name
    assert write_schedule_trace(table(LITTLE), path) == 3
    events = events_of(path)
    tracks = {each["tid"]: each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert tracks == {1: "GPU 0", 2: "GPU 1", 3: "GPU 2", 4: "GPU 3"}
    slices = [each for each in events if each["ph"] == "X"]
    found = sorted((tracks[each["tid"]], each["cat"], each["name"], each["ts"], each["dur"]) for each in slices)
    assert found == [
        ("GPU 0", "execution", "a", 2e6, 4e6),
        ("GPU 0", "execution", "b", 7e6, 3e6),
        ("GPU 0", "load", "load a", 0.0, 2e6),
        ("GPU 0", "switch", "switch b", 6e6, 1e6),
        ("GPU 1", "execution", "b", 0.0, 4e6),
        ("GPU 2", "execution", "b", 0.0, 4e6),
    ]
    pair = {"request": "r1", "workflow": "w", "node": "n", "model": "b", "gpus": [1, 2]}
    assert next(each for each in slices if each["tid"] == 2)["args"] == pair
    counters = [(each["name"], each["ts"], *each["args"].items()) for each in events if each["ph"] == "C"]
    assert [each[1:] for each in counters if each[0] == "queue"] == [
        (0.0, ("nodes", 0)),
        (1e6, ("nodes", 1)),
        (6e6, ("nodes", 0)),
    ]
    used = [(at, count) for name, at, (_, count) in counters if name == "GPUs in use"]
    assert used == [(0.0, 3), (4e6, 1), (6e6, 1), (10e6, 0)]
    times = [each["ts"] for each in events if each["ph"] != "M"]
    assert times == sorted(times)


@pytest.mark.covers("C12")
def test_a_part_of_a_trace_has_the_executions_that_touch_it_and_counters_that_begin_with_their_values(tmp_path):
    path = tmp_path / "trace.json"
    assert write_schedule_trace(table(LITTLE), path, from_s=5.0, to_s=6.5) == 2
    events = events_of(path)
    assert {each["name"] for each in events if each["ph"] == "X"} == {"load a", "a", "switch b", "b"}
    assert next(each for each in events if each["name"] == "queue") == {
        "name": "queue",
        "ph": "C",
        "ts": 5e6,
        "pid": 1,
        "args": {"nodes": 1},
    }


def test_slices_of_a_track_never_overlap(tmp_path):
    ends = [0.0, *np.cumsum(np.full(300, 0.1)).tolist()]
    rows = [("a", 0, 1, 0.0, begin, (begin + end) / 2, end, "load") for begin, end in pairwise(ends)]
    write_schedule_trace(table(rows, 1), tmp_path / "trace.json")
    slices = [each for each in events_of(tmp_path / "trace.json") if each["ph"] == "X"]
    ns = [(round(each["ts"] * 1e3), round((each["ts"] + each["dur"]) * 1e3)) for each in slices]
    assert all(end == begin for (_, end), (begin, _) in pairwise(ns))
