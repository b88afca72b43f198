"""A trace is a file of the user's: another content under the same name is another measurement."""

import json

import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.services, pytest.mark.e2e]


@pytest.mark.sweep
@pytest.mark.covers("E-FR14", "E-TRACE")
def test_trials_of_a_trace_that_changed_are_measured_anew_when_that_is_asked_for_and_no_other(study):
    trace = study.root / "rows.jsonl"
    trace.write_text("".join(json.dumps({"at_s": 0.01 * row}) + "\n" for row in range(10)))
    replay = {"name": "replay", "service": "null", "pattern": "trace", "trace": "rows.jsonl", "concurrency": 1}
    users = {"name": "users", "service": "null", "concurrency": 2}
    path = study.write()
    document = {"scenario": "try", "repetitions": 1, "defaults": {"duration_s": 0.25, "warmup_s": 0}}
    path.write_text(json.dumps(document | {"workloads": [replay, users]}))
    assert study.measure().returncode == 0
    [of_trace] = [trial for trial in study.trials() if "trace" in trial.name]
    assert pq.read_metadata(of_trace / "samples.parquet").num_rows == 10
    before = set(study.measurements())
    trace.write_text("".join(json.dumps({"at_s": 0.01 * row}) + "\n" for row in range(15)))
    refused = study.measure()
    assert (refused.returncode, "1 trial was measured with another configuration" in refused.stderr) == (2, True)
    assert study.bench("submit", "-c", "config/scenarios/try.yaml", "--measure-anew").returncode == 0
    assert pq.read_metadata(of_trace / "attempts/1/samples.parquet").num_rows == 10
    counts = study.measurements()
    assert set(counts) == before, "names stay"
    assert counts.pop(of_trace.name) == 2
    assert set(counts.values()) == {1}
    assert pq.read_metadata(of_trace / "samples.parquet").num_rows == 15
    window = json.loads((of_trace / "metrics.json").read_text())["window"]
    assert window["end_s"] < 0.2, "the load ran out of requests before its duration did"
