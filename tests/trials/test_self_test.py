"""The load generator against the truth: what it counts is exact, what it times is never shorter."""

import io
import json
import subprocess
import sys

import pytest
from rich.console import Console
from service_environment import environment

from seamark.cli.doctor import loads_table
from seamark.trials.self_test import LOADS, FigureErrors, self_test
from seamark_evaluate.evaluation.reader_self_test import METHODS, QUESTIONS, reader_self_test

pytestmark = [pytest.mark.services, pytest.mark.covers("E-FR09", "E-CLI02")]


@pytest.mark.parametrize("load", LOADS)
def test_every_token_and_chunk_is_counted_and_no_time_is_shorter_than_the_truth(load):
    (errors,) = self_test(1.5, [load])
    assert errors.right, errors
    assert errors.requests > 30
    assert 0 < errors.ttft_p50_ms < 50
    assert 0 < errors.end_p50_ms < 50
    assert errors.ttft_p50_ms <= errors.ttft_p99_ms


@pytest.mark.sweep
def test_doctor_prints_what_the_self_test_saw():
    done = subprocess.run(
        [sys.executable, "-m", "seamark.cli.main", "doctor", "--self-test", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [load["load"] for load in document["loads"]] == list(LOADS)
    if document["known_reader"] is not None:  # the environment is built by the tests of its server
        assert {each["method"]: each["right"] for each in document["known_reader"]}["dense"] == QUESTIONS


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_verdict_of_the_self_test_fits_into_a_terminal(width: int) -> None:
    errors = FigureErrors(
        load="1,000/s, one token",
        requests=123_456,
        ttft_p50_ms=1234.5,
        ttft_p99_ms=98765.4,
        end_p50_ms=1234.5,
        end_p99_ms=98765.4,
        wrong_tokens=1,
        wrong_chunks=0,
        failed=0,
        lag_p99_us=1e6,
    )
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(loads_table([errors]))
    assert "wrong " in console.export_text().splitlines()[1]


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.covers("B13")
def test_an_answer_of_the_known_reader_that_is_not_the_known_one_is_seen(monkeypatch):
    environment("evaluation")
    assert [(each.method, each.all_known) for each in reader_self_test()] == [(name, True) for name in METHODS]
    monkeypatch.setattr("seamark_evaluate.evaluation.reader_self_test.expected_right", lambda *_: True)
    wrong = {each.method: each.questions - each.as_known for each in reader_self_test()}
    assert wrong["dense"] == 0
    assert wrong["streaming"] > 0
