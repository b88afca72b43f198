"""Requests and execution logs of any number need little more memory than the requests themselves."""

import json
import tracemalloc
from pathlib import Path

from seamark.config.workflow_files import read_files
from seamark.simulation.execution_log import execution_log
from seamark.simulation.machine import Machine
from seamark.simulation.policies.table import POLICIES
from seamark.simulation.run_policy import run_policy
from seamark.simulation.schedule_metrics import schedule_metrics
from seamark.simulation.workload import workload_of
from seamark.storage.codec import encode
from seamark.storage.documents import write_rows

REQUESTS = 250


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
        found, requests, _ = read_files(system, asked)
        kept, peak = tracemalloc.get_traced_memory()
        assert peak - asked.stat().st_size * 2 < 2 * kept, "bytes and text of the file, then what is kept of it"
        work = workload_of(found, requests.requests, "all-at-zero")
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
