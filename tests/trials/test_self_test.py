"""The load generator against the truth: what it counts is exact, what it times is never shorter."""

import json
import subprocess
import sys

import pytest

from seamark.trials.self_test import LOADS, self_test

pytestmark = [pytest.mark.services, pytest.mark.covers("E-FR09", "E-CLI02")]


@pytest.mark.parametrize("load", LOADS)
def test_every_token_and_chunk_is_counted_and_no_time_is_shorter_than_the_truth(load):
    (errors,) = self_test(1.5, [load])
    assert errors.right, errors
    assert errors.requests > 30
    assert 0 < errors.ttft_p50_ms < 50
    assert 0 < errors.end_p50_ms < 50
    assert errors.ttft_p50_ms <= errors.ttft_p99_ms


def test_doctor_prints_what_the_self_test_saw():
    done = subprocess.run(
        [sys.executable, "-m", "seamark.cli.main", "doctor", "--self-test", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [load["load"] for load in json.loads(done.stdout)["loads"]] == list(LOADS)
