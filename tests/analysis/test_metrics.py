"""From samples whose truth is known to metrics.json: golden numbers, the measured window, and damaged files."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from samples import a_load, a_trial, codes, metrics_of, samples_of, write_samples, write_telemetry

from seamark.analysis.metrics import distribution
from seamark.analysis.metrics.document import derive_metrics
from seamark.analysis.metrics.samples import open_samples
from seamark.analysis.metrics.telemetry import summarise_telemetry
from seamark.model.digest import seed_for
from seamark.model.load_profile import LoadProfile
from seamark.model.sample import Failure
from seamark.model.scenario import Search, Slo
from seamark.patterns.table import pattern_of, schedule

approx = pytest.approx


def measured(folder, rows, settings=None, load=None, **trial):
    """Write samples and return their metrics.json document."""
    write_samples(folder.samples, rows)
    return metrics_of(a_trial(settings, **trial), load or a_load(), folder, scenario="s")


def one_user(reply_s, think_s=0.0):
    """A closed loop of one user: start and end of each request."""
    ends = np.cumsum(np.asarray(reply_s) + think_s)
    return ends - reply_s, ends


# Golden numbers


@pytest.mark.covers("E-FR09", "E-CLI02")
def test_a_stall_counts_for_every_request_that_was_due_in_it(folder):
    due = np.arange(20_000) / 100.0
    ended = np.where(due < 100, due + 0.001, 200.0)
    settings = {"pattern": "constant", "rate_rps": 100.0, "duration_s": 200.0}
    document = measured(folder, samples_of(due, np.minimum(due, ended), ended), settings)
    right = document["latency_ms"]
    assert right["mean"] == approx(25_000, rel=0.001)
    assert right["p99"] == approx(98_000, rel=0.001)
    assert right["max"] == approx(100_000, rel=0.001)
    assert document["verdict"] == "SUSPECT"
    assert "outage" in codes(document)


@pytest.mark.covers("E-FR09")
def test_a_client_that_waits_for_replies_would_have_seen_a_hundredth_of_the_truth(folder):
    naive_due = np.concatenate([np.arange(10_000) / 100.0, [100.0]])
    naive = measured(
        folder,
        samples_of(naive_due, None, naive_due + np.where(naive_due < 100, 0.001, 100.0)),
        {"duration_s": 200.0},
    )
    assert naive["latency_ms"]["mean"] == approx(10.9, rel=0.01)


@pytest.mark.covers("E-FR09")
def test_response_time_counts_from_the_intended_send_and_service_time_from_the_actual_one(folder):
    due = np.arange(2000) / 200.0
    late = np.where(np.arange(2000) % 10 == 0, 0.1, 0.0)
    document = measured(
        folder,
        samples_of(due, due + late, due + late + 0.004, first_s=due + late + 0.001),
        {"pattern": "constant", "rate_rps": 200.0},
    )
    assert document["latency_ms"]["p50"] == approx(4)
    assert document["latency_ms"]["p99"] == approx(104)
    assert document["service_time_ms"]["p99"] == approx(4)
    assert document["ttft_ms"]["p99"] == approx(1)
    assert document["schedule_lag_ms"] == {"ranges": {}, "p50": 0.0, "p99": approx(100), "max": approx(100)}
    assert "schedule_lag" in codes(document)


@pytest.mark.slow
@pytest.mark.covers("E-FR09")
def test_an_m_m_1_queue_at_half_its_capacity_has_the_times_of_the_textbook(folder):
    rng = np.random.default_rng(11)
    size = 400_000
    due, work = np.cumsum(rng.exponential(2.0, size)) / 1000, rng.exponential(1.0, size) / 1000
    waited = np.zeros(size)
    for i in range(1, size):  # Lindley's recursion
        waited[i] = max(0.0, waited[i - 1] + work[i - 1] - (due[i] - due[i - 1]))
    settings = {"pattern": "poisson", "rate_rps": 500.0, "warmup_s": 20.0, "duration_s": 700.0}
    document = measured(folder, samples_of(due, None, due + waited + work), settings)
    times = document["latency_ms"]
    assert times["mean"] == approx(2.0, rel=0.03)
    assert times["p50"] == approx(1.386, rel=0.03)
    assert times["p99"] == approx(9.21, rel=0.04)
    assert document["concurrency_mean"] == approx(1.0, rel=0.03), "Little's law: rho / (1 - rho)"
    assert document["throughput"]["value"] == approx(500, rel=0.01)
    assert document["verdict"] == "VALID"
    assert not document["saturated"]


@pytest.mark.covers("E-FR09")
def test_a_closed_loop_of_one_on_the_same_server_has_mean_one(folder):
    work = np.random.default_rng(4).exponential(0.001, 40_000)
    sent, ended = one_user(work)
    document = measured(folder, samples_of(sent, None, ended), {"duration_s": 30.0})
    assert document["latency_ms"]["mean"] == approx(1.0, rel=0.02)
    assert document["concurrency_mean"] == approx(1.0, abs=0.001)
    assert document["schedule_lag_ms"] is None
    assert document["verdict"] == "VALID"


# The measured window


@pytest.mark.covers("E-FR09")
def test_warm_up_is_in_no_figure_but_the_whole_run(folder):
    slow, fast = one_user(np.full(20, 0.099)), one_user(np.full(9000, 0.001))
    sent, ended = np.concatenate([slow[0], fast[0] + 2]), np.concatenate([slow[1], fast[1] + 2])
    document = measured(folder, samples_of(sent, None, ended, units=3), {"warmup_s": 2.0, "duration_s": 8.0})
    assert document["latency_ms"]["max"] == approx(1)
    assert document["throughput"]["value"] == approx(3000, rel=0.001)
    assert document["throughput"]["whole_run_value"] == approx(9020 * 3 / 11, rel=0.001)
    assert document["counts"]["warmup"] == 20
    assert document["window"] == {"start_s": 2.0, "end_s": 10.0, "rule": "all due after the warm-up"}
    assert document["steady_state"]["steady"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("duration_s", "parts"), [(0.5, 50), (2.0, 100), (30.0, 100), pytest.param(600.0, 100, marks=pytest.mark.sweep)]
)
def test_steady_state_is_judged_over_equal_parts_and_the_rule_says_so(folder, duration_s, parts):
    sent, ended = one_user(np.full(int(duration_s * 1000), 0.001))
    state = measured(folder, samples_of(sent, None, ended), {"duration_s": duration_s})["steady_state"]
    assert state["rule"] == f"change test at 0.01 and MSER-5, {parts} parts of {duration_s / parts:.3g} s"
    assert state["steady"]


def test_a_load_that_is_too_short_is_suspect_and_one_of_too_few_requests_is_only_told(folder):
    sent, ended = one_user(np.full(300, 0.001))
    short = measured(folder, samples_of(sent, None, ended), {"duration_s": 0.3})
    sent, ended = one_user(np.full(150, 0.2))
    few = measured(folder, samples_of(sent, None, ended), {"duration_s": 30.0})
    assert short["steady_state"]["steady"] is False
    assert short["steady_state"]["reason"] == "0.3 s is too short to tell"
    assert few["steady_state"]["steady"] is None
    assert few["steady_state"]["reason"] == "150 requests are too few to tell: it takes 200"
    assert few["verdict"] == "VALID"


def test_a_start_up_after_the_warm_up_stays_in_the_figures_and_the_steady_part_stands_beside(folder):
    reply = np.where(np.arange(20_000) < 100, 0.02, 0.001) * np.random.default_rng(2).uniform(0.8, 1.2, 20_000)
    sent, ended = one_user(reply)
    document = measured(folder, samples_of(sent, None, ended), {"duration_s": 20.0})
    assert document["window"]["start_s"] == 0.0
    assert document["latency_ms"]["max"] > 20
    state = document["steady_state"]
    assert state["steady"] is False
    assert 2.0 <= state["advised_warmup_s"] <= 6.0
    assert state["part"]["start_s"] == state["advised_warmup_s"]
    assert state["part"]["latency_ms"]["p99"] < 2
    remedies = [reason["remedy"] for reason in document["reasons"] if reason["code"] == "no_steady_state"]
    assert remedies == [f"Raise warmup_s to {state['advised_warmup_s']:.3g}."]
    (said,) = [reason["text"] for reason in document["reasons"] if reason["code"] == "no_steady_state"]
    assert f"after it {state['part']['requests']:,} requests, 0 failed, " in said


def test_a_load_that_never_settles_is_suspect_and_measured_whole(folder):
    sent, ended = one_user(np.linspace(0.001, 0.003, 5000))
    document = measured(folder, samples_of(sent, None, ended), {"duration_s": 10.0})
    assert (document["window"]["start_s"], document["window"]["end_s"]) == (0.0, 10.0)
    assert document["steady_state"]["steady"] is False
    assert document["steady_state"]["part"] is None
    assert document["verdict"] == "SUSPECT"
    assert "no_steady_state" in codes(document)


def test_a_ramp_is_not_blamed_for_not_being_steady(folder):
    due = np.sqrt(np.arange(5000) / 50.0)
    settings = {"pattern": "ramp", "rate_rps": 1.0, "ramp_to_rps": 1000.0}
    document = measured(folder, samples_of(due, None, due + 0.0001), settings)
    assert document["verdict"] == "VALID"
    assert [reason["severity"] for reason in document["reasons"] if reason["code"] == "no_steady_state"] == ["note"]


def test_a_load_that_runs_out_of_requests_is_measured_up_to_its_last_send(folder):
    sent, ended = one_user(np.full(500, 0.01))
    document = measured(folder, samples_of(sent, None, ended), {"duration_s": 60.0, "requests": 500})
    assert document["window"]["end_s"] == approx(4.99)
    assert document["throughput"]["value"] == approx(100, rel=0.01)


def test_a_trace_that_ends_before_the_load_is_measured_up_to_its_last_send(folder):
    due = np.arange(500) / 100
    rows = samples_of(due, None, due + 0.002)
    settings = {"pattern": "trace", "trace": "t", "duration_s": 60.0}
    ended = a_load(workers=[{"ok": True, "ran_out": True}] * 2, scheduled=500)
    assert measured(folder, rows, settings, load=ended)["window"]["end_s"] == approx(4.99)
    assert measured(folder, rows, settings, load=ended)["offered_rps"] == approx(100, rel=0.01)
    for load in (
        a_load(workers=[{"ok": True, "ran_out": False}], scheduled=500),
        a_load(workers=[{"ok": True, "ran_out": True}], scheduled=501),
        a_load(workers=[{"ok": True, "ran_out": True}, {"ok": False}], scheduled=500),
    ):
        assert measured(folder, rows, settings, load=load)["window"]["end_s"] == 60


# Rates, errors and objectives


def test_a_load_that_was_ended_for_over_saturation_is_measured_up_to_there_and_says_so(folder):
    due = np.arange(4000) / 1000.0
    ended = np.arange(4000) / 500.0
    kept = ended < 4.0
    rows = samples_of(due, due, np.where(kept, ended, np.nan), failure=np.where(kept, 0, Failure.CANCELLED))
    settings = {"pattern": "constant", "rate_rps": 1000.0, "warmup_s": 1.0, "duration_s": 60.0, "concurrency": 9999}
    document = measured(folder, rows, settings, load=a_load(warmup_s=1.0, duration_s=60.0, over_saturated_at_s=4.0))
    assert document["over_saturated_at_s"] == 4.0
    assert document["window"]["end_s"] == 4.0
    assert document["offered_rps"] == approx(1000, rel=0.01)
    assert document["achieved_rps"] == approx(500, rel=0.01)
    assert document["saturated"]
    assert "over_saturated" in codes(document)
    assert "unfinished" not in codes(document)
    assert document["verdict"] == "SUSPECT"


@pytest.mark.covers("E-FR09", "E-CLI02")
def test_more_offered_than_served_is_said_to_be_saturated(folder):
    due = np.arange(10_000) / 1000.0
    sent = np.arange(10_000) / 500.0
    ended = sent + 0.002
    kept = ended < 10.5
    rows = samples_of(
        due,
        np.where(kept, sent, np.nan),
        np.where(kept, ended, np.nan),
        failure=np.where(kept, 0, int(Failure.CANCELLED)),
    )
    document = measured(folder, rows, {"pattern": "constant", "rate_rps": 1000.0})
    assert document["saturated"]
    assert document["offered_rps"] == approx(1000)
    assert document["achieved_rps"] == approx(500, rel=0.01)
    assert document["counts"]["unfinished"] > 4000
    assert "saturated" in codes(document)
    assert document["errors"]["rate"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_a_stable_queue_near_its_capacity_is_not_called_saturated(folder, seed):
    rng = np.random.default_rng(seed)
    due, work = np.cumsum(rng.exponential(1 / 700, 7000)), rng.exponential(1 / 1000, 7000)
    ended = np.zeros(7000)
    for i in range(7000):
        ended[i] = max(due[i], ended[i - 1]) + work[i]
    document = measured(folder, samples_of(due, None, ended), {"pattern": "poisson", "rate_rps": 700.0})
    assert not document["saturated"]


@pytest.mark.covers("E-FR09")
def test_failures_are_counted_by_category_and_have_no_latency_but_time_outs_a_lower_bound(folder):
    sent, ended = one_user(np.full(1000, 0.01))
    failure = np.zeros(1000, dtype=int)
    failure[::50], failure[1::100] = int(Failure.TIMEOUT), int(Failure.SERVER_ERROR)
    ended = np.where(failure == Failure.TIMEOUT, ended + 5, ended)
    document = measured(folder, samples_of(sent, None, ended, failure=failure))
    assert document["counts"]["ok"] == 970
    assert document["counts"]["failed"] == 30
    assert document["errors"]["rate"] == approx(0.03)
    assert document["errors"]["timeouts"] == document["counts"]["timeouts"] == 20
    assert document["errors"]["by_category"]["timeout"] == 20
    assert document["errors"]["by_category"]["server_error"] == 10
    assert (document["latency_ms"]["p95"], document["latency_ms"]["mean"]) == (approx(10), approx(10))
    assert (document["latency_ms"]["max"], document["latency_ms"]["censored"]) == (approx(5010), 20)
    assert "error_rate" in codes(document)


@pytest.mark.covers("E-FR09")
def test_conflicts_and_retries_of_the_window_are_counted_where_a_load_has_them(folder):
    sent, ended = one_user(np.full(1000, 0.01))
    failure, retries = np.zeros(1000, dtype=int), np.zeros(1000, dtype=int)
    failure[500:510], failure[0] = int(Failure.SERIALIZATION_FAILURE), int(Failure.DEADLOCK_DETECTED)
    retries[:520] = 2
    rows, seen = samples_of(sent, None, ended, failure=failure, retries=retries), {"warmup_s": 5.0, "max_tries": 3}
    document = measured(folder, rows, seen)
    assert (document["counts"]["retried"], document["counts"]["retries"]) == (20, 40)
    assert document["errors"]["by_category"]["serialization_failure"] == 10
    assert "deadlock_detected" not in document["errors"]["by_category"], "it is of the warm-up"
    assert "retries" not in measured(folder, rows, {"warmup_s": 5.0})["counts"]


@pytest.mark.covers("E-FR09")
def test_the_words_of_most_errors_stand_beside_their_rate(folder):
    sent, ended = one_user(np.full(1000, 0.01))
    failure = np.zeros(1000, dtype=int)
    failure[::20] = int(Failure.CLIENT_ERROR)
    rare, most = ({"category": "client_error", "count": many, "words": f"words of {many}"} for many in (1, 49))
    errors = {"42703 undefined_column": rare, "42P01 undefined_table": most}
    document = measured(folder, samples_of(sent, None, ended, failure=failure), load=a_load(errors=errors))
    assert document["errors"]["own"] == errors
    [text] = [reason["text"] for reason in document["reasons"] if reason["code"] == "error_rate"]
    assert "'42P01 undefined_table: words of 49'" in text


@pytest.mark.covers("E-FR09")
def test_goodput_counts_failed_and_slow_requests_as_missed(folder):
    sent, ended = one_user(np.full(1000, 0.01))
    ended[::10] += 1.0
    failure = np.zeros(1000, dtype=int)
    failure[5::20] = int(Failure.RESET)
    slos = (
        Slo(metric="latency_s", op="<=", limit=0.5),
        Slo(metric="latency_p50_s", op="<=", limit=0.02),
        Slo(metric="error_rate", op="<=", limit=0.01),
    )
    document = measured(folder, samples_of(sent, None, ended, failure=failure), slos=slos)
    assert document["goodput"] == {"ranges": {}, "per_s": approx(85), "ratio": approx(0.85)}
    assert [slo["met"] for slo in document["slos"]] == [False, True, False]
    assert document["slos"][0]["value"] == approx(1.01), "too few for a p99: the slowest stands for it"
    assert {"slo_missed", "error_rate"} <= codes(document)


def test_a_missing_first_reply_does_not_meet_an_objective_on_it(folder):
    sent, ended = one_user(np.full(1000, 0.01))
    first = np.where(np.arange(1000) < 900, sent + 0.001, np.nan)
    slos = (Slo(metric="ttft_s", op="<=", limit=0.5),)
    document = measured(folder, samples_of(sent, None, ended, first_s=first), slos=slos)
    assert document["goodput"]["ratio"] == approx(0.9)
    assert document["ttft_ms"]["p50"] == approx(1)


def test_no_objective_on_a_single_request_means_no_goodput(folder):
    sent, ended = one_user(np.full(1000, 0.01))
    document = measured(folder, samples_of(sent, None, ended))
    assert document["goodput"] is None
    assert document["bandwidth"] is None
    assert document["energy"] is None


@pytest.mark.covers("E-FR16")
def test_bandwidth_is_given_in_megabytes_and_in_mebibytes(folder):
    sent, ended = one_user(np.full(1000, 0.01))
    document = measured(folder, samples_of(sent, None, ended, bytes_received=2**20))
    assert document["bandwidth"] == {"mb_per_s": approx(104.8576), "mib_per_s": approx(100.0)}


def test_concurrency_is_weighted_by_time_and_cut_at_the_window(folder):
    due = np.arange(0, 20, 0.1)
    document = measured(
        folder, samples_of(due, None, due + 3.0), {"concurrency": 30, "warmup_s": 5.0, "duration_s": 10.0}
    )
    assert document["concurrency_mean"] == approx(30, rel=0.02)


def test_littles_law_is_held_over_all_requests_that_occupied_the_server(folder):
    """Four users; every 50th request fails after 50 ms."""
    rows = []
    for user in range(4):
        failed = np.arange(700) % 50 == 10 * user
        sent, ended = one_user(np.where(failed, 0.05, 0.0144))
        rows.append(samples_of(sent, None, ended, failure=np.where(failed, Failure.SERVER_ERROR, 0)))
    settings = {"concurrency": 4}
    assert "littles_law" not in codes(measured(folder, np.concatenate(rows), settings))
    late = np.concatenate(rows)
    late["last_ns"] += np.where(late["due_ns"] > 8.5e9, 10**9, 0)
    assert "littles_law" in codes(measured(folder, late, settings)), "requests pile up at the end"


def test_each_kind_of_request_has_its_own_percentiles(folder):
    sent, ended = one_user(np.where(np.arange(2000) % 2, 0.008, 0.002))
    rows = samples_of(sent, None, ended, kind=np.arange(2000) % 2)
    document = measured(folder, rows, load=a_load(kinds=["get", "put"]))
    assert document["by_kind"]["get"]["latency_ms"]["p50"] == approx(2)
    assert document["by_kind"]["put"]["latency_ms"]["p50"] == approx(8)
    assert document["by_kind"]["put"]["requests"] == 1000
    assert document["by_kind"]["put"]["ttft_ms"] is None


def test_sessions_are_counted_beside_requests(folder):
    """100 sessions of 3 turns, one begun every 0.1 s; of every tenth the second turn fails and no third follows."""
    index = np.arange(300)
    session, turn = index // 3, index % 3
    due = session * 0.1 + turn * 0.02
    failed = (session % 10 == 0) & (turn == 1)
    rows = samples_of(due, None, due + 0.01, failure=np.where(failed, Failure.SERVER_ERROR, Failure.NONE))
    rows = rows[~((session % 10 == 0) & (turn == 2))]
    settings = {"pattern": "constant", "rate_rps": 10.0, "turns": 3}
    document = measured(folder, rows, settings)
    assert document["sessions"] == {"per_s": approx(9, abs=0.2), "begun_per_s": approx(10), "broken": 10}
    assert document["requests_per_s"] == approx(28, abs=0.2)
    assert document["counts"]["requests"] == 290
    assert "offered_rate_mismatch" not in codes(document)
    assert measured(folder, rows, {**settings, "turns": None})["sessions"] is None


@pytest.mark.covers("E-FR15")
def test_each_kind_of_a_stream_has_its_own_failures_and_token_times(folder):
    sent, ended = one_user(np.full(2000, 0.005))
    kind = np.arange(2000) % 2
    failure = np.where(np.arange(2000) % 10 == 1, Failure.SERVER_ERROR, Failure.NONE)
    first = np.where(failure == 0, sent + np.where(kind, 0.004, 0.002), np.nan)
    rows = samples_of(sent, None, ended, first_s=first, kind=kind, units=5, failure=failure)
    found = measured(folder, rows, load=a_load(kinds=["chat", "search"]))["by_kind"]
    assert {name: (each["requests"], each["ok"], each["failed"]) for name, each in found.items()} == {
        "chat": (1000, 1000, 0),
        "search": (1000, 800, 200),
    }
    assert found["search"]["units"] == 4000
    assert (found["chat"]["ttft_ms"]["p50"], found["search"]["ttft_ms"]["p50"]) == (approx(2), approx(4))
    assert (found["chat"]["tpot_ms"]["p90"], found["search"]["tpot_ms"]["mean"]) == (approx(0.75), approx(0.25))


# Percentiles and samples


@pytest.mark.covers("E-FR09")
@pytest.mark.parametrize(
    ("count", "given"),
    [(10, []), (20, ["p50"]), (999, ["p50", "p90", "p95"]), (1000, ["p50", "p90", "p95", "p99"])],
)
def test_a_percentile_with_too_few_samples_is_null_and_a_note_says_why(folder, count, given):
    sent, ended = one_user(np.full(count, 10 / count - 1e-6))
    document = measured(folder, samples_of(sent, None, ended))
    known = [name for name in ("p50", "p90", "p95", "p99", "p999") if document["latency_ms"][name] is not None]
    assert known == given
    assert "percentile_withheld" in codes(document)
    assert document["verdict"] == ("SUSPECT" if count < 20 else "VALID")


def test_percentiles_of_very_many_samples_come_from_the_histogram_and_say_so(folder, monkeypatch):
    monkeypatch.setattr(distribution, "EXACT_LIMIT", 5000)
    work = np.random.default_rng(4).exponential(0.001, 20_000)
    sent, ended = one_user(work)
    document = measured(folder, samples_of(sent, None, ended))
    assert document["percentiles"] == {"method": "histogram", "relative_error": 0.005}
    inside = np.sort(work[sent < 10])
    for name, q in (("p50", 0.5), ("p99", 0.99)):
        exact = inside[int(np.ceil(q * len(inside))) - 1] * 1e3
        assert document["latency_ms"][name] == approx(exact, rel=0.005)
        assert document["latency_ms"][name] != approx(exact, rel=1e-9)


@pytest.mark.slow
def test_row_groups_and_batches_do_not_change_a_figure(folder):
    sent, ended = one_user(np.random.default_rng(4).exponential(0.002, 6000))
    rows = samples_of(sent, None, ended)
    trial = a_trial()
    write_samples(folder.samples, rows)
    one = derive_metrics(trial, a_load(), folder, scenario="s")
    write_samples(folder.samples, np.random.default_rng(1).permutation(rows), row_group=77)
    assert derive_metrics(trial, a_load(), folder, scenario="s") == one


@pytest.mark.covers("E-CLI04")
def test_the_series_has_a_row_each_second_with_what_arrived_in_it(folder):
    due = np.arange(0, 10, 0.01)
    rows = samples_of(due, None, due + 1.5, units=2, failure=np.where(due < 1, int(Failure.RESET), 0))
    write_samples(folder.samples, rows)
    series = derive_metrics(a_trial({"concurrency": 200}), a_load(), folder, scenario="s").series
    assert [row.second for row in series] == list(range(12))
    assert [row.requests for row in series] == [0, 0, 50, *[100] * 8, 50]
    assert [row.failures for row in series] == [0, 50, 50, *[0] * 9]
    assert series[5].units == series[5].throughput == 200
    assert series[5].in_flight == approx(150, abs=1)
    assert series[0].in_flight == approx(50, abs=1)
    assert series[5].latency_p50_s == approx(1.5, rel=0.01)
    assert series[0].latency_p99_s is None


@pytest.mark.covers("E-CLI04")
def test_each_second_has_p90_and_the_histogram_of_its_replies_and_histograms_add_up(folder):
    due = np.arange(0, 10, 0.01)
    write_samples(
        folder.samples, samples_of(due, None, due + np.tile([*[0.001] * 85, *[0.004] * 10, *[0.02] * 5], 10))
    )
    series = derive_metrics(a_trial({"concurrency": 200}), a_load(), folder, scenario="s").series
    assert [series[5].latency_p50_s, series[5].latency_p90_s] == approx([0.001, 0.004], rel=0.01)
    whole = Counter()
    for row in series:
        counts = {
            float(value): int(count) for value, count in (bar.split(":") for bar in row.latency_histogram.split())
        }
        assert sum(counts.values()) == row.requests
        whole.update(counts)
    assert sorted(whole) == approx([0.001, 0.004, 0.02], rel=0.01)
    assert [whole[value] for value in sorted(whole)] == [850, 100, 50]


@pytest.mark.covers("E-CLI02")
@pytest.mark.parametrize(
    "settings",
    [
        {"pattern": "gamma", "rate_rps": 100.0, "burstiness": 0.1},
        {"pattern": "ramp", "rate_rps": 50.0, "ramp_to_rps": 150.0},
        {"pattern": "steps", "step_rates": "50, 200"},
        {"pattern": "bursts", "rate_rps": 50.0, "burst_rps": 500.0, "burst_s": 1.0, "burst_every_s": 4.0},
        {"pattern": "diurnal", "rate_rps": 100.0, "amplitude": 0.9, "period_s": 10.0},
    ],
    ids=lambda settings: settings["pattern"],
)
@pytest.mark.parametrize("sent_ratio", [1.0, 0.4], ids=["as-asked", "too-few"])
def test_a_load_is_held_against_the_rate_of_its_own_pattern(folder, settings, sent_ratio):
    settings = settings | {"warmup_s": 2.0, "duration_s": 20.0}
    pattern = pattern_of(LoadProfile.of(settings))
    assert pattern is not None
    due = np.concatenate(list(schedule(pattern, seed=3, until_s=22.0))) / 1e9
    due = due[np.random.default_rng(1).random(len(due)) < sent_ratio]
    document = measured(folder, samples_of(due, None, due + 0.001), settings)
    assert ("offered_rate_mismatch" in codes(document)) == (sent_ratio < 1)
    steady = [reason for reason in document["reasons"] if reason["code"] == "no_steady_state"]
    assert {reason["severity"] for reason in steady} <= ({"suspect"} if settings["pattern"] == "gamma" else {"note"})


# Telemetry


@pytest.mark.covers("E-FR09", "E-MON02")
def test_resources_are_those_of_the_measured_window(folder):
    sent, ended = one_user(np.full(1000, 0.01))
    rows = [(t, "host", "cpu_ratio", 0.9 if t < 2 else 0.25, "ratio") for t in np.arange(0, 10, 0.5)]
    rows += [(t, "server", "rss_bytes", 1e6 * t, "bytes") for t in np.arange(0, 10, 0.5)]
    rows += [(t, "host", "read_bytes", 5e6 * t, "bytes") for t in np.arange(0, 10.5, 0.7)]
    rows += [(t, f"gpu{i}", "util_ratio", 0.5 + i / 10, "ratio") for t in range(10) for i in (0, 1)]
    rows += [(t, f"gpu{i}", "energy_j", 100.0 * t, "J") for t in range(11) for i in (0, 1)]
    rows += [(t, "host", "broken", float("nan"), "ratio") for t in range(3)]
    write_telemetry(folder.telemetry, rows)
    document = measured(folder, samples_of(sent, None, ended), {"warmup_s": 2.0, "duration_s": 8.0})
    assert document["resource"]["cpu_util"] == approx(0.25)
    assert document["resource"]["server_rss_mb"] == approx(9.5)
    assert document["resource"]["disk_read_mb_per_s"] == approx(5.0)
    assert document["resource"]["gpu_util"] == approx(0.55)
    assert document["resource"]["client_cpu_util"] is None
    assert document["energy"]["value_j"] == approx(1600)
    assert document["energy"]["power_w"] == approx(200)
    assert document["energy"]["per_unit_j"] == approx(2.0)


@pytest.mark.covers("E-FR09", "E-MON02")
def test_a_counter_by_its_unit_or_of_a_control_group_is_a_rate_and_not_a_mean(folder):
    rows = [(t, "service", "nv_inference_request_success", 3.0 * t, "total") for t in range(11)]
    rows += [(t, "service", "nv_inference_request_duration_us", 700.0 * t, "us total") for t in range(11)]
    rows += [(t, "service", "queue_us", 700.0 * t, "us") for t in range(11)]
    rows += [(t, "server", "cgroup_cpu_s", 0.5 * t, "s") for t in range(11)]
    write_telemetry(folder.telemetry, rows)
    seen = summarise_telemetry(folder.telemetry, 2.0, 8.0)
    assert {name: (one.increase is not None, one.unit, one.mean) for (_, name), one in seen.items()} == {
        "nv_inference_request_success": (True, "/s", approx(3)),
        "nv_inference_request_duration_us": (True, "us/s", approx(700)),
        "queue_us": (False, "us", approx(3500)),
        "cgroup_cpu_s": (True, "s/s", approx(0.5)),
    }


def test_a_mean_of_telemetry_is_over_time_and_not_over_readings(folder):
    """The sampler has no turn in the 4 s in which the machine is full."""
    at_s = [*np.arange(0.5, 6.5, 0.5), 10.0]
    rows = [(t, "host", "cpu_ratio", 0.1 if t < 10 else 1.0, "ratio") for t in at_s]
    rows += [(t, "host", "load_average", 1.0 if t < 10 else 9.0, "tasks") for t in at_s]
    write_telemetry(folder.telemetry, rows)
    sent, ended = one_user(np.full(1000, 0.01))
    resource = measured(folder, samples_of(sent, None, ended))["resource"]
    assert resource["cpu_util"] == approx(0.6 * 0.1 + 0.4 * 1.0), "a share of the time since the last reading"
    assert resource["load_average"] == approx(0.8 * 1.0 + 0.2 * 9.0, rel=0.02), "of the moments around the reading"


def test_a_reading_counts_for_the_part_of_its_time_that_lies_in_the_window(folder):
    rows = [(float(t), "host", "cpu_ratio", value, "ratio") for t, value in ((0, 0.5), (3, 1.0), (9, 0.0), (12, 1.0))]
    write_telemetry(folder.telemetry, rows)
    assert summarise_telemetry(folder.telemetry, 2.0, 10.0)[("host", "cpu_ratio")].mean == approx((1 + 6 * 0 + 1) / 8)
    assert summarise_telemetry(folder.telemetry, 9.0, 9.5)[("host", "cpu_ratio")].mean == approx(1.0)


@pytest.mark.parametrize("content", [None, b"", b"PAR1 not really"])
def test_no_telemetry_leaves_resources_unknown_and_the_trial_good(folder, content):
    if content is not None:
        folder.telemetry.write_bytes(content)
    sent, ended = one_user(np.full(1000, 0.01))
    document = measured(folder, samples_of(sent, None, ended))
    assert set(document["resource"].values()) == {None}
    assert document["status"] == "ok"


@pytest.mark.covers("E-MON02")
@pytest.mark.parametrize(("seen_mb_per_s", "told"), [(5.2, 5.2), (0.4, None)], ids=["most-seen", "most-missed"])
def test_the_network_use_of_connections_that_come_and_go_between_two_looks_is_unknown_and_not_small(
    folder, seen_mb_per_s, told
):
    sent, ended = one_user(np.full(1000, 0.01))
    rows = [(t, "client", "net_received_bytes", seen_mb_per_s * 1e6 * t, "bytes") for t in np.arange(0, 10.5, 0.5)]
    rows += [(t, "client", "net_sent_bytes", 0.0, "bytes") for t in np.arange(0, 10.5, 0.5)]
    write_telemetry(folder.telemetry, rows)
    document = measured(folder, samples_of(sent, None, ended, bytes_received=50_000))
    told = None if told is None else approx(told, rel=0.01)
    assert document["resource"]["client_net_received_mb_per_s"] == told


# Failures


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    match how:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "cut off":
            path.write_bytes(content[: len(content) // 2])
        case "rewritten":
            middle = len(content) // 2
            path.write_bytes(content[:middle] + b"\x00" * 300 + content[middle + 300 :])
        case "text":
            path.write_text("no parquet at all")


@pytest.mark.covers("E-NFR04")
@pytest.mark.parametrize("how", ["missing", "empty", "cut off", "rewritten", "text"])
def test_damaged_samples_give_a_failed_document_and_no_exception(folder, how):
    sent, ended = one_user(np.random.default_rng(1).exponential(0.01, 1000))
    write_samples(folder.samples, samples_of(sent, None, ended))
    damage(folder.samples, how)
    document = metrics_of(a_trial(), a_load(), folder, scenario="s")
    assert document["status"] == "failed"
    assert document["category"] == "no_samples"
    assert "samples.parquet" in document["reason"]
    assert document["verdict"] == "INVALID"
    assert document["throughput"]["value"] is None
    assert document["latency_ms"]["p50"] is None


@pytest.mark.covers("E-NFR04")
def test_samples_of_another_configuration_are_not_taken_for_ours(folder):
    sent, ended = one_user(np.full(1000, 0.01))
    write_samples(folder.samples, samples_of(sent, None, ended), config_hash="beef")
    document = metrics_of(a_trial(), a_load(), folder, scenario="s")
    assert document["status"] == "failed"
    assert "another configuration" in document["reason"]


@pytest.mark.covers("E-NFR04", "E-FR09")
@pytest.mark.parametrize(
    ("load", "category"),
    [
        ({"status": "failed", "category": "server_died", "reason": "it died"}, "server_died"),
        ({"status": "timeout", "category": None, "reason": None}, "timeout"),
        ({"status": "failed"}, "client_died"),
    ],
)
def test_a_failed_load_keeps_its_category_and_its_series(folder, load, category):
    sent, ended = one_user(np.full(300, 0.01))
    write_samples(folder.samples, samples_of(sent, None, ended))
    found = derive_metrics(a_trial(), a_load(**load), folder, scenario="s")
    assert found.metrics.status == "failed"
    assert found.metrics.category == category
    assert found.metrics.reasons[0].code == category
    assert found.metrics.latency_ms.p50 is None
    assert sum(row.requests for row in found.series) == 300
    assert found.histograms == {}


def test_a_load_without_one_good_reply_is_invalid_with_null_times(folder):
    sent, ended = one_user(np.full(1000, 0.01))
    document = measured(folder, samples_of(sent, None, ended, failure=int(Failure.CONNECT)))
    assert document["verdict"] == "INVALID"
    assert codes(document) >= {"no_replies"}
    assert document["latency_ms"]["mean"] is None
    assert document["errors"]["rate"] == 1.0


def test_an_empty_samples_file_is_a_failed_trial(folder):
    document = measured(folder, samples_of([]))
    assert document["status"] == "failed"
    assert document["category"] == "no_samples"


def test_what_a_lost_worker_never_sent_is_in_the_failure_rate(folder):
    due = np.arange(0, 10, 0.02)
    rows = samples_of(due, None, due + 0.001)
    load = a_load(scheduled=1000, workers=[{"worker": 0, "ok": True}, {"worker": 1, "ok": False}])
    document = measured(folder, rows, {"pattern": "constant", "rate_rps": 100.0}, load=load)
    assert document["counts"]["lost"] == 500
    assert document["errors"]["rate"] == approx(0.5)
    assert {"shard_lost", "error_rate"} <= codes(document)


@pytest.mark.parametrize("warmup_s", [0.0, 10.0, 16.0])
@pytest.mark.parametrize("pattern", ["constant", "poisson"])
def test_the_rates_of_a_window_count_what_a_lost_worker_had_to_send_in_it(folder, pattern, warmup_s):
    """Two workers send every second arrival of 20 s; one died at the start, and the other has no failures."""
    settings = {"pattern": pattern, "rate_rps": 200.0, "warmup_s": warmup_s, "duration_s": 20.0 - warmup_s}
    made = schedule(pattern_of(a_trial(settings).load), seed=seed_for(1, "arrivals"), until_s=20.0)
    whole_s = np.concatenate(list(made)) / 1e9
    due = whole_s[::2]
    load = a_load(scheduled=len(whole_s), workers=[{"worker": 0, "ok": True}, {"worker": 1, "ok": False}])
    slos = (Slo(metric="latency_s", op="<=", limit=1.0),)
    document = measured(folder, samples_of(due, None, due + 0.001), settings, load=load, slos=slos)
    assert document["counts"]["lost"] == len(whole_s) - len(due), "of the whole schedule"
    assert document["counts"]["lost_in_window"] == (whole_s >= warmup_s).sum() - (due >= warmup_s).sum()
    assert document["errors"]["rate"] == approx(0.5, abs=0.002)
    assert document["goodput"]["ratio"] == approx(0.5, abs=0.002)


@pytest.mark.parametrize(
    ("settings", "search"),
    [
        ({"pattern": "trace", "trace": "gone.csv"}, None),
        ({"pattern": "poisson", "rate_rps": 50.0, "turns": 4}, None),
        ({"pattern": "poisson", "rate_rps": 200.0}, Search(setting="rate_rps", from_level=10, to_level=400)),
    ],
    ids=["trace", "sessions", "search"],
)
def test_where_the_schedule_is_not_known_lost_requests_lie_in_the_window_as_the_recorded_ones_do(
    folder, settings, search
):
    due = np.arange(0, 20, 0.01)
    settings = {**settings, "warmup_s": 15.0, "duration_s": 5.0}
    load = a_load(scheduled=4000, workers=[{"worker": 0, "ok": True}, {"worker": 1, "ok": False}])
    document = measured(folder, samples_of(due, None, due + 0.001), settings, load=load, search=search)
    assert (document["counts"]["lost"], document["counts"]["lost_in_window"]) == (2000, 500)
    assert document["errors"]["rate"] == approx(0.5)


def test_the_document_is_plain_json_without_nan(folder):
    sent, ended = one_user(np.full(1000, 0.01))
    document = measured(folder, samples_of(sent, None, ended))
    assert json.loads(json.dumps(document, allow_nan=False)) == document


@pytest.mark.slow
def test_reading_holds_one_row_group_and_not_the_file(folder):
    due = np.arange(400_000) / 40_000
    write_samples(folder.samples, samples_of(due, None, due + 0.001), row_group=10_000)
    before, most = pa.total_allocated_bytes(), 0
    for batch in open_samples(folder.samples).batches():
        assert len(batch.due) <= 10_000
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 400_000 * 9 * 8 / 8


@pytest.mark.slow
@pytest.mark.parametrize(("rate_rps", "is_saturated"), [(0.5, True), (0.05, False)])
def test_a_simulated_cluster_that_is_offered_more_than_it_serves_is_saturated(folder, rate_rps, is_saturated):
    """One server of 10 s a request: it serves 0.1 a second, whatever arrives."""
    due = np.arange(200) / rate_rps
    last = np.empty(200)
    for number, due_s in enumerate(due):
        last[number] = max(due_s, last[number - 1] if number else 0.0) + 10
    write_samples(folder.samples, samples_of(due, None, last))
    settings = {"arrivals": "timestamps", "arrivals_rps": rate_rps, "warmup_s": None}
    load = a_load(origin="simulated", kind="program")
    document = metrics_of(a_trial(settings), load, folder, scenario="s")
    assert document["saturated"] == is_saturated
    assert document["offered_rps"] == pytest.approx(rate_rps)
    assert ("saturated" in codes(document), document["verdict"] == "SUSPECT") == (is_saturated, is_saturated)
    assert not {"outage", "no_steady_state"} & codes(document)
    at_once = metrics_of(a_trial(settings | {"arrivals": "all-at-zero"}), load, folder, scenario="s")
    assert not at_once["saturated"]
