"""A server that is left alone before its first request, so that idle power is known."""

import csv

import pytest
from server_bench import Bench


@pytest.mark.slow
@pytest.mark.covers("E-MON02")
def test_a_site_that_waits_has_telemetry_of_the_idle_server_in_a_window_that_is_told(bench: Bench):
    answer = bench.with_site(idle_s=0.6).serve()
    began_s, end_s = answer["idle_unix_s"]
    assert 0.6 <= end_s - began_s < 2
    assert answer["phases"]["idle_s"] >= 0.6
    with bench.folder().telemetry.open() as lines:
        inside = {row["at_unix_s"] for row in csv.DictReader(lines) if began_s <= float(row["at_unix_s"]) <= end_s}
    assert len(inside) >= 3


@pytest.mark.slow
def test_a_site_that_does_not_wait_knows_of_no_idle_time(bench: Bench):
    assert bench.serve()["idle_unix_s"] is None
