"""Requests in the formats of other tools: what each field becomes, what is left out, and what is refused."""

import bz2
import gzip
import json
import lzma
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

import in_process
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seamark.errors import UserError
from seamark_simulate.config.workloads.table import FORMATS, format_of, read_workload
from seamark_simulate.simulation.engine import simulate
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.policies.table import POLICIES
from seamark_simulate.simulation.workload import SOURCES, Workload, workload_of

SYSTEM = """\
models:
  chat: {memory_gb: 14, gpus_required: 1, load_time_seconds: 30, tokens_per_second: 50, token_mean: 100}
  draw: {memory_gb: 8, gpus_required: 1, load_time_seconds: 6, inference_time_mean: 3}
workflows:
  answer:
    nodes: [{id: reply, model: chat}, {id: picture, model: draw}]
    edges: [{from: reply, to: picture}]
"""
SWF = """\
; Version: 2.2
; UnixStartTime: 1704103200
  1   10  3  100  4 -1 -1  8  200 -1 1 1 1 1 1 1 -1 -1
  2   40 -1   50 -1 -1 -1  2   -1 -1 1 1 1 1 1 1 -1 -1

  3   50 -1   -1  4 -1 -1  4  100 -1 5 1 1 1 1 1 -1 -1
  4   60 -1   20 -1 -1 -1 -1  100 -1 0 1 1 1 1 1 -1 -1
"""
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
MOONCAKE = """\
{"timestamp": 2000, "input_length": 6758, "output_length": 500, "hash_ids": []}
{"timestamp": 3500, "input_length": 7322, "output_length": 490, "hash_ids": []}
"""


def instance(version: str = "1.5", **changes: Any) -> dict[str, Any]:
    """Return a diamond of four tasks with times of 1 to 4 s, the third one on two cores."""
    tasks = [
        {"name": "split", "id": "a", "parents": [], "children": ["b", "c"]},
        {"name": "left", "id": "b", "parents": ["a"], "children": ["d"]},
        {"name": "right", "id": "c", "parents": ["a"], "children": []},
        {"name": "join", "id": "d", "parents": ["b", "c"], "children": []},
    ]
    ran = [
        {"id": "a", "runtimeInSeconds": 1},
        {"id": "b", "runtimeInSeconds": 2.0, "coreCount": 1},
        {"id": "c", "runtimeInSeconds": 3.0, "coreCount": 2, "avgCPU": 150.0},
        {"id": "d", "runtimeInSeconds": 4.0},
    ]
    workflow = {"specification": {"tasks": tasks}, "execution": {"makespanInSeconds": 8, "tasks": ran}}
    return {"name": "diamond", "schemaVersion": version, "workflow": workflow, **changes}


def written(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1), encoding="utf-8")
    return path


def samples(path: Path, rows: list[tuple[int | None, int | None, int | None, int]]) -> Path:
    due, sent, last, failure = (pa.array(column) for column in zip(*rows, strict=True))
    pq.write_table(pa.table({"due_ns": due, "sent_ns": sent, "last_ns": last, "failure": failure}), path)
    return path


def work_of(system: Path | None, requests: Path) -> tuple[Workload, tuple[str, ...]]:
    found = read_workload(system, requests)
    return workload_of(found.system, found.requests, "timestamps"), found.notes


@pytest.mark.covers("C14")
@pytest.mark.parametrize("version", ["1.5", "1.6"])
def test_a_wfcommons_instance_is_one_request_with_the_times_and_cores_of_its_tasks(
    tmp_path: Path, version: str
) -> None:
    work, notes = work_of(None, written(tmp_path / "diamond.json", instance(version)))
    assert list(work.duration_s) == [1, 2, 3, 4]
    assert work.need == [1, 1, 2, 1]
    assert work.successors == [(1, 2), (2,), (1,), ()]
    assert (work.requests[0].id, list(work.arrival_s), notes) == ("diamond", [0.0], ())
    schedule = simulate(work, Machine(gpus=3), POLICIES["baseline"].make)
    assert schedule.ran.makespan_s == 8, "1, then 2 beside 3, then 4: nothing is loaded or switched"
    assert not schedule.ran.is_switch.any()
    assert not schedule.ran.is_cold.any()


@pytest.mark.covers("C14")
def test_jobs_of_a_batch_system_keep_processors_times_and_what_was_asked_for(tmp_path: Path) -> None:
    work, notes = work_of(None, written(tmp_path / "jobs.swf", SWF))
    assert work.need == [4, 2], "allocated, else requested"
    assert list(work.duration_s) == [100, 50]
    assert list(work.estimate_s) == [200, 50], "a scheduler sees the requested time"
    assert list(work.arrival_s) == [0, 30]
    assert notes == ("1 of 4 jobs left out: without a run time.", "1 of 4 jobs left out: without processors.")
    found = read_workload(None, tmp_path / "jobs.swf")
    assert found.begin == "2024-01-01 10:00:10"


@pytest.mark.covers("C14")
@pytest.mark.parametrize(
    ("text", "arrivals", "tokens"),
    [
        (AZURE, [0, 4.314579], [44, 109]),
        (AZURE.lower().replace(",", ";"), [0, 4.314579], [44, 109]),
        (MOONCAKE, [0, 1.5], [500, 490]),
        ('"Timestamp","Request tokens","Response tokens"\n5,1,18\n45,1,230\n', [0, 40], [18, 230]),
    ],
)
def test_tokens_of_a_trace_are_the_times_of_models_with_a_rate(
    tmp_path: Path, text: str, arrivals: list[float], tokens: list[int]
) -> None:
    system = written(tmp_path / "system.yaml", SYSTEM)
    work, _ = work_of(system, written(tmp_path / "trace", text))
    assert list(work.arrival_s) == pytest.approx(arrivals)
    assert list(work.duration_s) == [tokens[0] / 50, 3, tokens[1] / 50, 3]
    assert {SOURCES[work.source[node]] for node in (0, 2)} == {"tokens_per_second"}


def test_a_trace_of_too_many_requests_is_refused_and_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seamark_simulate.config.workloads.token_trace.MOST_REQUESTS", 10)
    system = written(tmp_path / "system.yaml", SYSTEM)
    rows = [json.dumps({"at_s": number, "output_tokens": 10}) + "\n" for number in range(11)]
    work, _ = work_of(system, written(tmp_path / "ten.jsonl", "".join(rows[:10])))
    assert len(work.requests) == 10
    with pytest.raises(UserError, match=r"eleven\.jsonl: more than 10 requests\."):
        work_of(system, written(tmp_path / "eleven.jsonl", "".join(rows)))


@pytest.mark.covers("C14")
def test_samples_of_a_trial_give_arrivals_and_without_models_also_times(tmp_path: Path) -> None:
    second = 1_000_000_000
    rows = [
        (2 * second, 2 * second + 500, 4 * second + 500, 0),
        (1 * second, 1 * second, 1 * second + 250_000_000, 0),
        (3 * second, 3 * second, 4 * second, 2),
        (-1 * second, 0, 1 * second, 0),
        (5 * second, None, None, 0),
    ]
    path = samples(tmp_path / "samples.parquet", rows)
    work, notes = work_of(None, path)
    assert list(work.arrival_s) == [0, 1]
    assert list(work.duration_s) == [0.25, 2]
    assert notes == ("3 of 5 requests left out: they failed, or were due before the load.",)
    work, _ = work_of(written(tmp_path / "system.yaml", SYSTEM), path)
    assert list(work.duration_s) == [2, 3, 2, 3]


def changed(old: str, new: str) -> str:
    """Return the instance with a part of its text changed."""
    text = json.dumps(instance())
    assert old in text
    return text.replace(old, new, 1)


EMPTY = {"schemaVersion": "1.5", "workflow": {"specification": {"tasks": []}, "execution": {"tasks": []}}}
WRONG: dict[str, tuple[str | None, Any, str]] = {
    "a version": (None, instance("1.3"), "WfFormat 1.5, 1.6 can be read"),
    "no workflow": (None, {"schemaVersion": "1.5", "name": "a"}, "the key 'workflow' is missing"),
    "no tasks": (None, EMPTY, "'tasks' must be a list of one task or more"),
    "an unknown parent": (None, changed('"parents": ["b", "c"]', '"parents": ["bb"]'), "no task has the id 'bb'"),
    "a cycle": (None, changed('"id": "a", "parents": []', '"id": "a", "parents": ["d"]'), "a cycle: "),
    "a task twice": (None, changed('"id": "b", "parents"', '"id": "a", "parents"'), "is there already"),
    "no time": (None, changed('"runtimeInSeconds": 3.0, ', ""), "the key 'runtimeInSeconds' is missing"),
    "a negative time": (None, changed("3.0", "-3.0"), "no plausible 'runtimeInSeconds'"),
    "a task that did not run": (
        None,
        changed('{"id": "d", "runtimeInSeconds"', '{"id": "e", "runtimeInSeconds"'),
        "the execution has no task 'd'",
    ),
    "a line break in the name": (None, instance() | {"name": "a\nb"}, "an id has letters, and no line breaks"),
    "no numbers": (None, SWF + "5 six\n", ":8: a field is no number"),
    "too few columns": (None, SWF + "5 60 1 20\n", ":8: 4 columns; SWF has 18"),
    "too many columns": (None, SWF.replace("-1 -1\n", "-1 -1 7\n"), ":3: 19 columns; SWF has 18"),
    "a column too few": (None, SWF.replace("-1 -1\n", "-1\n"), ":3: 17 columns; SWF has 18"),
    "an older WfFormat": (None, json.dumps({"schemaVersion": "1.0", "workflow": {"jobs": []}}), "WfFormat 1.5, 1.6"),
    "a line that is cut": (None, SWF + "5 60 1", "The file ends in mid-line"),
    "a job twice": (None, SWF.replace("  2   40", "  1   40"), "job 1 is there already"),
    "no jobs": (None, "; Version: 2.2\n", "no job can be simulated"),
    "models beside jobs": (SYSTEM, SWF, "which has its own tasks"),
    "a trace without models": (None, AZURE, "a trace of tokens has no models"),
    "a trace of two workflows": (
        SYSTEM + "  other:\n    nodes: [{id: reply, model: chat}]\n",
        AZURE,
        "the system has 2: answer, other",
    ),
    "time that runs back": (SYSTEM, MOONCAKE.replace("3500", "1500"), "trace:2: "),
    "an empty trace": (SYSTEM, AZURE.splitlines()[0] + "\n", "the trace is empty"),
    "requests without workflows": (
        None,
        "requests:\n- {request_id: a, workflow_id: b}\n",
        "requests to workflows need",
    ),
    "no parquet": (None, "PAR1 is how it begins", "no samples.parquet of a trial"),
}


@pytest.mark.covers("C4", "C14")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_one_line_with_its_place_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    system, requests, expected = WRONG[name]
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "trace", requests)
    words = ["simulate", "--gpus", "8", "--requests", "trace"]
    if system is not None:
        written(tmp_path / "system.yaml", system)
        words += ["--config", "system.yaml"]
    before = sorted(tmp_path.iterdir())
    said = in_process.said_by(words, code=2)
    assert expected in said
    assert "Traceback" not in said
    assert sorted(tmp_path.iterdir()) == before


def test_every_format_has_its_own_beginning(tmp_path: Path) -> None:
    beginnings = {"samples.parquet": "PAR1", "log in SWF": SWF, "trace of tokens": AZURE}
    beginnings["WfCommons instance"] = json.dumps(instance())
    assert {each.name for each in FORMATS} == set(beginnings)
    for name, text in beginnings.items():
        found = format_of(written(tmp_path / "file", text))
        assert found is not None
        assert found.name == name
    ours = {"request_id": "a", "timestamp": "2024-01-01T10:00:00", "workflow_id": "b"}
    for text in (
        "requests: []\n",
        "requests: [{request_id: a, timestamp: 2024-01-01}]",
        json.dumps({"requests": [ours]}),
    ):
        assert format_of(written(tmp_path / "file", text)) is None
    assert format_of(tmp_path / "missing") is None
    with pytest.raises(UserError, match="missing"):
        read_workload(None, tmp_path / "missing")


def swf(*rows: str, comment: str = "") -> str:
    """Return a log of jobs, each by its first eleven fields."""
    return "".join([f"; Note: {comment}\n", *(f"{row} 1 1 1 1 1 -1 -1\n" for row in rows)])


@pytest.mark.covers("C14")
def test_every_status_and_a_run_time_of_zero_are_what_the_format_says(tmp_path: Path) -> None:
    rows = (
        "1 0 0 0 1 -1 -1 1 -1 -1 1",  # took less than half a second
        "2 1 0 9 1 -1 -1 1 -1 -1 0",  # failed
        "3 2 0 7 1 -1 -1 1 -1 -1 5",  # cancelled while it ran
        "4 3 5 0 -1 -1 -1 1 -1 -1 5",  # cancelled before its start
        "5 4 0 8 1 -1 -1 1 -1 -1 1",
        "5 4 0 3 1 -1 -1 1 -1 -1 2",  # two parts of job 5
        "5 9 0 5 1 -1 -1 1 -1 -1 3",
    )
    work, notes = work_of(None, written(tmp_path / "jobs.swf", swf(*rows)))
    assert list(work.duration_s) == [0, 9, 7, 8]
    assert [note.partition(" ")[0] for note in notes] == ["1", "2"]


@pytest.mark.covers("C14")
def test_what_is_minus_one_in_a_log_is_left_out_by_its_reason_and_counted(tmp_path: Path) -> None:
    rows = (
        "1 0 0 10 2 -1 -1 -1 20 -1 1",
        "4 7 -1 -1 -1 -1 -1 -1 -1 -1 5",
        "5 -1 -1 10 1 -1 -1 -1 -1 -1 1",
        "6 8 1 10 -1 -1 -1 2 -1 -1 1",
        "7 9 1 10 0 -1 -1 -1 -1 -1 1",
    )
    work, notes = work_of(None, written(tmp_path / "jobs.swf", swf(*rows)))
    assert [request.id for request in work.requests] == ["job_1", "job_6"]
    assert work.need == [2, 2]
    whys = ("without a run time", "without a submit time", "without processors")
    assert notes == tuple(f"1 of 5 jobs left out: {why}." for why in whys)


@pytest.mark.covers("C14")
def test_a_packed_log_and_comments_in_latin_1_are_read(tmp_path: Path) -> None:
    text = swf("1 0 0 10 2 -1 -1 -1 20 -1 1", comment="Universit\xe9").encode("latin-1")
    packed = {"jobs.gz": gzip.compress(text), "jobs.bz2": bz2.compress(text), "jobs.xz": lzma.compress(text)}
    for name, content in {"jobs.swf": text, "marked": BOM_UTF8 + text, **packed}.items():
        (tmp_path / name).write_bytes(content)
        assert list(work_of(None, tmp_path / name)[0].duration_s) == [10], name
    (tmp_path / "cut.swf.gz").write_bytes(gzip.compress(text)[:-9])
    with pytest.raises(UserError) as refused:
        read_workload(None, tmp_path / "cut.swf.gz")
    assert "not whole" in str(refused.value)
    (tmp_path / "jobs.swf.Z").write_bytes(b"\x1f\x9d\x90....")
    with pytest.raises(UserError) as refused:
        read_workload(None, tmp_path / "jobs.swf.Z")
    assert "is packed by compress" in str(refused.value)


@pytest.mark.covers("C14")
def test_a_job_larger_than_the_machine_is_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = [f"{number} {number} 0 10 {gpus} -1 -1 -1 20 -1 1" for number, gpus in enumerate((2, 4, 64), 1)]
    written(tmp_path / "jobs.swf", swf(*jobs))
    said = in_process.said_by(["simulate", "--gpus", "8", "--requests", "jobs.swf", "--log", "log.json"])
    assert "1 of 3 jobs left out: larger than the machine of 8 GPUs." in said
    assert json.loads((tmp_path / "log.json").read_text())["summary"]["total_requests"] == 2
    assert in_process.run(["check", "log.json", "--requests", "jobs.swf"])[0] == 0
    assert in_process.run(["simulate", "--gpus", "1", "--requests", "jobs.swf"])[0] == 2, "none fits"


@pytest.mark.covers("C14")
@pytest.mark.parametrize("form", [instance("1.5"), {"requests": []}])
def test_a_byte_order_mark_before_json_changes_nothing(tmp_path: Path, form: dict[str, Any]) -> None:
    plain, marked = tmp_path / "plain.json", tmp_path / "marked.json"
    plain.write_bytes(json.dumps(form).encode())
    marked.write_bytes(BOM_UTF8 + json.dumps(form).encode())
    assert format_of(plain) == format_of(marked)
    if "workflow" in form:
        assert list(work_of(None, marked)[0].duration_s) == list(work_of(None, plain)[0].duration_s)


@pytest.mark.covers("C14", "C12")
def test_a_log_of_other_requests_passes_the_check_against_its_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content, gpus in (("diamond.json", instance(), "2"), ("jobs.swf", SWF, "4")):
        written(tmp_path / name, content)
        words = ["--arrivals", "timestamps", "--policy", "conservative", "--log", "log.json"]
        said = in_process.said_by(["simulate", "--gpus", gpus, "--requests", name, *words])
        assert in_process.run(["check", "log.json", "--requests", name])[0] == 0
    assert "1 of 4 jobs left out: without a run time." in said
    log = json.loads((tmp_path / "log.json").read_text())
    log["executions"][0]["switch_time"] = 2.0
    written(tmp_path / "log.json", log)
    assert in_process.run(["check", "log.json", "--requests", "jobs.swf"])[0] == 1
