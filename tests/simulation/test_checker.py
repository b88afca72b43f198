"""The checker of execution logs finds each kind of mistake, and nothing in a clean log."""

import copy
import gzip
import json
from codecs import BOM_UTF8
from pathlib import Path

import pytest
from in_process import run, said_by

from seamark.storage.codec import encode
from seamark_simulate.config.workflow_files import read_files
from seamark_simulate.simulation.checker import check_log, check_rules
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.trials.quick_simulation import simulated_blocks

ROOT = Path(__file__).resolve().parents[2]
FILES = (ROOT / "config" / "clusters" / "system_config.yaml", ROOT / "config" / "clusters" / "workflow_requests.yaml")
[MADE] = next(simulated_blocks(*FILES, ["baseline"], Machine(gpus=1), "all-at-zero"))
CLEAN = encode(MADE.log)


def with_change(change):
    document = copy.deepcopy(CLEAN)
    change(document["executions"], document["summary"])
    return document


def twice(executions, _):
    executions.append(dict(executions[0]))


def secondary(executions, summary):
    """A second execution on GPU 1, which the first holds as one of two."""
    summary["gpus"] = 2
    executions[0] |= {"gpu_id": 0, "gpu_ids": [0, 1]}
    executions[1] |= {"gpu_id": 1, "gpu_ids": [1], "start_time": 31.0, "end_time": 36.2, "waiting_time": 31.0}


@pytest.mark.covers("C13")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (secondary, "GPU 1: req_B/generate and req_C/text_analysis overlap from 31 s to 36.2 s"),
        (lambda e, s: e[1].update(start_time=30.0, end_time=35.2, waiting_time=30.0), "GPU 0: req_B/generate and"),
        (lambda e, s: e[2].update(switch_time=9.0, waiting_time=-5.625), "waiting_time is -5.625, below 0"),
        (lambda e, s: e[0].update(execution_time=9.0), "execution_time is 9 s, but from start to end are 8.5 s"),
        (lambda e, s: e[0].update(execution_time=None), "execution_time is None, not a number of seconds"),
        (lambda e, s: e[0].update(end_time=20.0), "ends at 20 s, before its start at 30 s"),
        (lambda e, s: e[0].pop("end_time"), "executions[0]: the field 'end_time' is missing"),
        (lambda e, s: e[1].pop("model_name"), "executions[1]: the field 'model_name' is missing"),
        (lambda e, s: e[0].update(gpu_id=1), "gpu_id 1 is not the first of gpu_ids [0]"),
        (lambda e, s: e[0].update(gpu_id=4, gpu_ids=[4]), "there is no GPU 4 among 1"),
        (lambda e, s: e[0].update(gpu_ids=[0, 2]), "the GPUs [0, 2] are not consecutive"),
        (lambda e, s: e[0].update(gpu_ids=[]), "gpu_ids is not a list of GPU ids"),
        (lambda e, s: e[0].update(request_id=7), "request_id is not text"),
        (lambda e, s: e[2].update(waiting_time=3.0), "do not add up to start_time"),
        (twice, "the node was executed before, in executions[0]"),
        (lambda e, s: s.update(makespan=12.0), "makespan is 12 s, but the last execution ends at 62.875 s"),
        (lambda e, s: s.update(total_nodes_executed=12), "total_nodes_executed is 12, but the executions have 3"),
        (lambda e, s: s.pop("mode"), "summary: the field 'mode' is missing"),
        (lambda e, s: e.append("x"), "executions[3]: is not an object"),
    ],
)
def test_a_mistake_in_a_log_is_named_with_its_place(change, says):
    result = check_log(with_change(change))
    lines = [*(each.text for each in result.conflicts), *result.problems]
    assert any(says in line for line in lines), lines


def early(executions, _):
    """The last node begins before its predecessor has ended."""
    executions[2] |= {"start_time": 40.0, "end_time": 55.8, "ready_time": 36.625}


@pytest.mark.covers("C13", "C6", "C7")
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (early, "GPUs taken at 36.625 s, before text_analysis ended at 43.7 s"),
        (lambda e, s: e[2].update(switch_time=0.0, waiting_time=3.375), "the fetch from llm7b to stable_diffusion"),
        (lambda e, s: e[0].update(load_time=0.0, waiting_time=30.0), "the fetch of llm7b to an empty GPU takes 30 s"),
        (lambda e, s: e[0].update(model_name="llm30b"), "its model is llm7b, not llm30b"),
        (lambda e, s: e[0].update(request_id="req_X"), "no request has this id"),
        (lambda e, s: e[0].update(node_id="x"), "the workflow text_generation has no such node"),
        (lambda e, s: e[0].update(workflow_id="x"), "its workflow is text_generation, not x"),
        (lambda e, s: e[0].update(gpu_ids=[0, 1]), "it ran on 2 GPUs, but its model needs 1"),
        (lambda e, s: e.pop(), "request req_C: the node image_generation was not executed"),
        (lambda e, s: s.update(mode="online"), "before its request's arrival at 60 s"),
    ],
)
def test_with_its_inputs_a_log_is_checked_against_the_rules(change, says):
    asked = read_files(*FILES)
    document = with_change(change)
    result = check_log(document)
    check_rules(result, document, asked.system, asked.requests)
    assert any(says in line for line in result.problems), result.problems


def test_a_clean_log_has_no_mistake_and_one_without_the_extra_fields_neither():
    assert check_log(CLEAN).passed
    document = copy.deepcopy(CLEAN)
    for each in document["executions"]:
        for key in ("gpu_ids", "ready_time", "waiting_time", "switch_time", "load_time", "time_source"):
            del each[key]
    assert check_log(document).passed


ODD = (None, True, -1, 0, 1e300, 10**18, "", "x", [], [0, 0], ["0"], {}, [[]])


def test_whatever_stands_in_a_log_is_a_line_and_no_exception():
    asked = read_files(*FILES)
    places = [(part, key) for part in (CLEAN["summary"], *CLEAN["executions"]) for key in part]
    for number, (_, key) in enumerate(places):
        for odd in ODD:
            document = copy.deepcopy(CLEAN)
            parts = [document["summary"], *document["executions"]]
            [part] = [part for place, part in enumerate(part for part in parts for _ in part) if place == number]
            part[key] = odd
            result = check_log(document)
            check_rules(result, document, asked.system, asked.requests)
            json.dumps(encode(result.conflicts))
    for odd in ODD:
        for document in ({"executions": odd}, {"summary": odd, "executions": [odd]}, {}):
            assert not check_log(document).passed


@pytest.mark.covers("C13")
def test_the_command_has_exit_codes_a_quiet_form_and_a_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("log.json").write_text(json.dumps(with_change(secondary)), encoding="utf-8")
    code, said = run(["check", "log.json", "--quiet", "--save-report"])
    assert (code, said) == (1, "FAIL: 1 conflict, 0 other mistakes\n")
    report = json.loads(Path("log_conflicts_report.json").read_text(encoding="utf-8"))
    assert (report["source_file"], report["total_conflicts"], report["summary"]["passed"]) == ("log.json", 1, False)
    [conflict] = report["conflicts"]
    assert (conflict["gpu_id"], conflict["overlap_start"], conflict["overlap_end"]) == (1, 31.0, 36.2)
    assert conflict["execution1"]["request_id"] == "req_B"
    Path("clean.json").write_text(json.dumps(CLEAN), encoding="utf-8")
    assert run(["check", "clean.json", "--quiet"]) == (0, "PASS: 3 executions without conflicts\n")
    Path("packed.json").write_bytes(gzip.compress(BOM_UTF8 + Path("clean.json").read_bytes()))
    assert run(["check", "packed.json", "--quiet"]) == (0, "PASS: 3 executions without conflicts\n")


@pytest.mark.covers("C13")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "no such file"),
        ("{", "is no execution log: not valid JSON"),
        ("[]", "expected a JSON object"),
        ('{"a": NaN}', "which is no number"),
    ],
)
def test_a_file_that_cannot_be_read_is_exit_code_2(text, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("log.json").write_text(text, encoding="utf-8")
    said = said_by(["check", "log.json"], code=2)
    assert says in said
    assert len(said.strip().splitlines()) == 1
