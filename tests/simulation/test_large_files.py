"""Requests and execution logs of any number need little more memory than the requests themselves."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from seamark.errors import UserError
from seamark.storage.codec import encode
from seamark.storage.documents import write_rows
from seamark_simulate.config.workflow_files import read_files
from seamark_simulate.simulation.execution_log import execution_log
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.schedule_metrics import schedule_metrics
from seamark_simulate.simulation.virtual_world import run_policy
from seamark_simulate.simulation.workload import workload_of

REQUESTS = 250
STAMP = "2024-01-01T10:00:00"
RIGHT = {
    "request_id": "r2",
    "workflow_id": "w",
    "timestamp": "2024-01-01T10:00:05",
    "node_execution_times": {"n0": 1, "n1": 2.5},
    "priority": 1,
    "deadline_seconds": 9,
    "node_configs": {"n0": {"steps": 3}, "n1": None},
    "input_data": {"prompt": ["a", {"b": [1, 2]}]},
}
VALUES = (
    None,
    True,
    -1,
    0,
    7,
    1.5,
    2 * 10**15,
    2**63,
    "",
    " ",
    "x",
    "w",
    "r1",
    STAMP,
    STAMP + "+01:00",
    "a\nb",
    [],
    ["x"],
)
INNER = (None, True, -1, 0, 2 * 10**15, 2**63, "5", {}, [], {"steps": 2}, {"stops": 2})


def test_a_file_of_requests_is_read_and_its_log_written_as_a_stream(tmp_path: Path) -> None:
    system, asked, log_file = (tmp_path / name for name in ("system.json", "requests.json", "log.json"))
    models = {"m": {"memory_gb": 8, "gpus_required": 1, "load_time_seconds": 5}}
    nodes = [{"id": f"n{place}", "model": "m"} for place in range(4)]
    system.write_text(json.dumps({"models": models, "workflows": {"w": {"nodes": nodes}}}))
    rows = [
        {
            "request_id": f"r{number}",
            "workflow_id": "w",
            "node_execution_times": {f"n{place}": 1.5 for place in range(4)},
        }
        for number in range(REQUESTS)
    ]
    asked.write_text(json.dumps({"requests": rows}))
    read_files(system, asked)
    tracemalloc.start()
    try:
        found = read_files(system, asked)
        kept, peak = tracemalloc.get_traced_memory()
        assert peak - asked.stat().st_size * 2 < 2 * kept, "bytes and text of the file, then what is kept of it"
        work = workload_of(found.system, found.requests, "all-at-zero")
        schedule = run_policy(
            work, Machine(gpus=2), POLICIES["baseline"].make, instants=POLICIES["baseline"].instants
        )
        log = execution_log(schedule, schedule_metrics(schedule), mode="offline", policy="baseline")
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        write_rows(log_file, log, "executions")
        assert tracemalloc.get_traced_memory()[1] - before < log_file.stat().st_size
    finally:
        tracemalloc.stop()
    document = json.loads(log_file.read_text())
    assert document == encode(log)
    assert len(document["executions"]) == 4 * REQUESTS


def changed() -> list[dict[str, Any]]:
    """Return requests that differ from a right one in one place; most are wrong."""
    rows: list[dict[str, Any]] = [RIGHT]
    for key in RIGHT:
        rows.append({name: value for name, value in RIGHT.items() if name != key})
        rows += [
            {**RIGHT, key: value} for value in (*VALUES, *({name: value} for name in ("n0", "m") for value in INNER))
        ]
    return [*rows, {**RIGHT, "priorty": 1}, {**RIGHT, "owner": "me"}, {**RIGHT, "input_data": nested(57)}]


def nested(levels: int) -> list[Any]:
    return [nested(levels - 1)] if levels else []


def read(folder: Path, row: str, before: str) -> set[str]:
    """Return the requests of a file, or the places and lines of its mistakes."""
    first = json.dumps({"request_id": "r1", "workflow_id": "w", "timestamp": STAMP})
    (folder / "requests.json").write_text(f'{before}{{"requests": [{first},\n{row}]}}')
    try:
        found = read_files(folder / "system.json", folder / "requests.json")
        return {*map(repr, found.requests), f"begin {found.begin}", repr(found.notes)}
    except UserError as error:
        return {f"{part.path} in line {part.line}" for part in error.mistakes}


@pytest.mark.slow
def test_requests_that_are_read_fast_are_those_that_are_read_with_their_lines(tmp_path: Path) -> None:
    nodes = [{"id": "n0", "model": "m", "config_options": ["steps"]}, {"id": "n1", "model": "m"}]
    models = {"m": {"memory_gb": 8, "gpus_required": 1, "load_time_seconds": 5}}
    (tmp_path / "system.json").write_text(json.dumps({"models": models, "workflows": {"w": {"nodes": nodes}}}))
    right = 0
    for row in map(json.dumps, changed()):
        slow = read(tmp_path, row, "--- ")  # YAML has no fast way
        assert read(tmp_path, row, "") == slow, row
        right += any(each.startswith("begin") for each in slow)
    assert 50 < right < 150
