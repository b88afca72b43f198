"""Figures of finite loads: the window is all items after the warm-up items, and no check asks for a steady state."""

import numpy as np
import pytest
from samples import a_load, a_trial, codes, metrics_of, samples_of, write_samples

from seamark.model.results.load_record import LoadSession
from seamark.model.sample import Failure

ITEM_S = 0.1


def measured(folder, rows, *, warmup_items=0, users=1, **load):
    """A finite load; its items are in an order of their own."""
    rows["index"] = np.random.default_rng(1).permutation(len(rows))
    write_samples(folder.samples, rows)
    settings = {"limit_s": 600.0, "warmup_items": warmup_items, "concurrency": users}
    record = a_load(kind="finite", **{"items": len(rows), "duration_s": float(rows["last_ns"].max()) / 1e9, **load})
    return metrics_of(a_trial(settings), record, folder, scenario="s")


def items(count, users=1):
    """Items of 0.1 s each, one after another for each user."""
    due = np.repeat(np.arange(-(-count // users)), users)[:count] * ITEM_S
    return samples_of(due, None, due + ITEM_S)


def test_figures_are_of_all_items_after_the_warm_up_items_wherever_they_stand_in_the_list(folder):
    rows = items(50)
    rows["last_ns"][:10] += 5_000_000  # within the pause before the next: the first ten are slower
    document = measured(folder, rows, warmup_items=10)
    assert document["window"]["start_s"] == pytest.approx(1.0)
    assert document["window"]["end_s"] == pytest.approx(5.0)
    assert document["window"]["rule"] == "all items after the warm-up items"
    assert document["counts"]["requests"] == 40
    assert document["counts"]["warmup"] == 10
    assert document["latency_ms"]["max"] == pytest.approx(100)
    assert document["throughput"]["value"] == pytest.approx(40 / 4.0)


def test_replies_of_warm_up_items_that_arrive_in_the_window_are_in_no_rate(folder):
    document = measured(folder, items(64, users=32), warmup_items=32, users=32)
    assert document["window"]["end_s"] - document["window"]["start_s"] == pytest.approx(0.1)
    assert document["requests_per_s"] == pytest.approx(320)
    assert document["throughput"]["value"] == pytest.approx(320)
    assert document["achieved_rps"] == pytest.approx(320)


@pytest.mark.parametrize("pattern", ["closed", "constant"])
def test_figures_of_a_load_that_is_its_requests_are_of_all_after_the_warm_up_items(folder, pattern):
    rows = items(50)
    rows["last_ns"][:2] -= 50_000_000
    rows["sent_ns"][2] += 1_000  # sent after it was due
    write_samples(folder.samples, rows)
    settings = {"pattern": pattern, "until_last_reply": True, "requests": 50, "warmup_items": 2, "duration_s": 600.0}
    document = metrics_of(a_trial(settings | {"rate_rps": 10.0}), a_load(), folder, scenario="s")
    assert (document["counts"]["requests"], document["counts"]["warmup"]) == (48, 2)
    assert document["latency_ms"]["min"] == pytest.approx(1e3 * ITEM_S)
    assert document["window"]["start_s"] == pytest.approx(2 * ITEM_S)


def test_the_whole_of_a_finite_load_counts_from_its_first_item_to_its_last_reply(folder):
    document = measured(folder, items(50))
    assert (document["counts"]["requests"], document["counts"]["ok"]) == (50, 50)
    assert document["throughput"]["value"] == pytest.approx(10.0)
    assert document["verdict"] == "VALID"
    assert codes(document) == {"percentile_withheld"}


def test_the_end_with_fewer_and_fewer_users_is_no_fault_of_the_client(folder):
    rows = items(32, users=16)
    rows["last_ns"][-1] += int(2e9)  # one item takes twenty times as long, and all users wait for it
    document = measured(folder, rows, users=16)
    assert document["concurrency_mean"] < 0.8 * 16
    assert document["verdict"] == "VALID"


def test_a_change_in_speed_is_the_nature_of_the_items(folder):
    due = np.concatenate([np.arange(1000) * 0.01, 10 + np.arange(1000) * 0.05])
    document = measured(folder, samples_of(due, None, due + np.repeat([0.01, 0.05], 1000)))
    assert document["verdict"] == "VALID"
    assert document["steady_state"]["steady"] is None


def test_an_outage_is_told_of_a_finite_load_too(folder):
    due = np.arange(2000) * 0.01
    due[1000:] += 5.0
    rows = samples_of(due, None, due + 0.01, failure=np.where(np.arange(2000) % 1999, 0, int(Failure.RESET)))
    assert "outage" in codes(measured(folder, rows))


def test_items_that_are_left_make_the_trial_invalid(folder):
    document = measured(folder, items(50), items=60)
    assert document["verdict"] == "INVALID"
    assert document["reasons"][0]["text"] == "10 of 60 items were not done"


def test_a_resumed_load_says_so(folder):
    session = {"epoch_unix_ns": 1, "offset_s": 0.0, "length_s": 2.5, "items": 25}
    document = measured(folder, items(50), sessions=[session, session | {"offset_s": 2.5}])
    assert "resumed" in codes(document)
    assert document["verdict"] == "VALID"
    assert LoadSession(**session).items == 25


def test_the_series_is_as_long_as_the_load_and_not_as_its_limit(folder):
    from seamark.analysis.metrics.samples import open_samples
    from seamark.analysis.metrics.timeline import series_of

    write_samples(folder.samples, items(50))
    assert len(list(series_of(open_samples(folder.samples, "cafe"), a_trial({"limit_s": 600.0}).load))) == 5
