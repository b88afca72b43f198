"""The trace of a trial's events: entries of the Trace Event Format, named, nested on threads, part by part."""

import gzip
import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from in_process import bench

from seamark.analysis.perfetto import write_perfetto
from seamark.load.workers.events import EventFile
from seamark.load.workers.segments import gather_events
from seamark.model.sample import EventKind
from seamark.planning.study import Study

MS = 1_000_000
STAGES = ('fetch "now"', "gené")


@pytest.fixture
def events(tmp_path: Path) -> Path:
    path = tmp_path / "w.events"
    with EventFile(path, worker=2) as file:
        file.started(lambda: 0)()
        one, two = file.track(), file.track()
        for query in range(100):
            at = query * 10 * MS
            one.add(query, 0, EventKind.WAIT, at - 15 * MS, at)
            one.add(query, 0, EventKind.RUN, at, at + 4 * MS)
            one.add(query, 0, EventKind.STEP, at + MS, at + 2 * MS)
            two.add(query, 1, EventKind.RUN, at + 4 * MS, at + 9 * MS, visit=3)
            two.add(query, 1, EventKind.FIRST_UNIT, at + 5 * MS, at + 5 * MS)
        file.flush()
    gather_events([path], tmp_path / "events.parquet", STAGES)
    return tmp_path / "events.parquet"


def entries(path: Path) -> list[dict[str, Any]]:
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    found: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return found


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_each_event_has_its_entries_with_times_in_us(events: Path, tmp_path: Path, name: str) -> None:
    assert write_perfetto(events, tmp_path / name) == 500
    found = entries(tmp_path / name)
    phases = [entry["ph"] for entry in found]
    assert {phase: phases.count(phase) for phase in "XbeiM"} == {"X": 300, "b": 100, "e": 100, "i": 100, "M": 5}
    run = next(entry for entry in found if entry["name"] == "gené" and entry["args"]["query"] == 7)
    assert run == {
        "name": "gené",
        "ph": "X",
        "ts": 74_000.0,
        "dur": 5_000.0,
        "cat": "run",
        "pid": 2,
        "tid": 1,
        "args": {"query": 7, "visit": 3},
    }
    named = {(entry["pid"], entry["tid"]): entry["args"]["name"] for entry in found if entry["name"] == "thread_name"}
    assert named == {(2, 0): "thread 0", (2, 1): "thread 1"}
    assert {entry["name"] for entry in found if entry["ph"] == "b"} == {'fetch "now": wait'}


def test_waits_are_pairs_with_an_id_and_what_lies_on_a_thread_nests(events: Path, tmp_path: Path) -> None:
    write_perfetto(events, tmp_path / "t.json")
    found = entries(tmp_path / "t.json")
    begins = {entry["id"]: entry["ts"] for entry in found if entry["ph"] == "b"}
    ends = {entry["id"]: entry["ts"] for entry in found if entry["ph"] == "e"}
    assert len(begins) == 100
    assert {ends[name] - begin for name, begin in begins.items()} == {15_000}
    for thread in (0, 1):
        runs = [entry for entry in found if entry["ph"] == "X" and entry["tid"] == thread]
        spans = sorted(
            ((entry["ts"], entry["ts"] + entry["dur"]) for entry in runs), key=lambda span: (span[0], -span[1])
        )
        for (_, end), (later, its_end) in pairwise(spans):
            assert later >= end or its_end <= end, "it begins after the other or lies inside of it"


def test_a_part_has_the_events_that_touch_it(events: Path, tmp_path: Path) -> None:
    write_perfetto(events, tmp_path / "t.json", from_s=0.2, to_s=0.21)
    queries = {entry["args"]["query"] for entry in entries(tmp_path / "t.json") if entry["ph"] == "X"}
    assert queries == {20}
    assert write_perfetto(events, tmp_path / "t.json", from_s=99) == 0
    assert [entry["ph"] for entry in entries(tmp_path / "t.json")] == ["M"]


def test_damaged_events_are_said_to_be(events: Path, tmp_path: Path) -> None:
    events.write_bytes(events.read_bytes()[:-60])
    with pytest.raises(ValueError, match=r"events\.parquet: is damaged"):
        write_perfetto(events, tmp_path / "t.json")
    assert not (tmp_path / "t.json").exists()


def test_a_trial_with_parties_has_a_trace_for_each_party_that_has_events(events: Path, tmp_path: Path) -> None:
    (tmp_path / "co.yaml").write_text(
        "scenario: co\nrepetitions: 1\nworkload:\n  duration_s: 1\n  parties:\n"
        "    search: {service: known, concurrency: 2}\n    ingest: {service: 'null', concurrency: 2}\n"
    )
    (tmp_path / "config").mkdir()
    study = Study.at(tmp_path, scenario="co.yaml")
    whole = max(study.plan.trials, key=lambda trial: len(trial.parties))
    for party in whole.parties:
        folder = study.folder("co").trial(party.id)
        folder.root.mkdir(parents=True)
        shutil.copy(events, folder.events)
    done = bench("export", "perfetto", "-c", "co.yaml", whole.id, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.glob("*.gz")) == sorted(
        f"{p.id}.trace.json.gz" for p in whole.parties
    )
    refused = bench("export", "perfetto", "-c", "co.yaml", whole.id, "-o", "one.json", cwd=tmp_path)
    assert refused.returncode == 2
    assert not (tmp_path / "one.json").exists()
