"""Each check fires on its fault and on nothing else; notes change no verdict."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from seamark.analysis.checks import CHECKS, CheckInputs, Connections, Processors, judge, worst
from seamark.model.failure_categories import FAILURE_CATEGORIES

ROOT = Path(__file__).parents[2]
CLOSED = CheckInputs(
    requests=5000,
    ok=5000,
    error_rate=0.0,
    workers=1,
    service_tail_s=0.01,
    stay_mean_s=0.01,
    window_s=10.0,
    worker_cpu_ratio=0.3,
    machine_cpu_ratio=0.4,
    achieved_rps=500.0,
    ended_per_s=500.0,
    requested_concurrency=5,
    concurrency_mean=5.0,
)
OPEN = replace(
    CLOSED,
    open_loop=True,
    lag_p99_s=0.0002,
    loop_lag_p99_s=0.0002,
    requested_rps=500.0,
    offered_rps=500.0,
    sent_rps=500.0,
)

FAULTS = [
    ("server_died", "invalid", CLOSED, {"status": "failed", "category": "server_died", "ok": 0}),
    ("no_replies", "invalid", CLOSED, {"ok": 0}),
    ("too_few_samples", "suspect", CLOSED, {"ok": 19}),
    ("timestamp_order", "invalid", CLOSED, {"disordered": 1}),
    ("error_rate", "suspect", CLOSED, {"error_rate": 0.02}),
    ("error_rate", "invalid", CLOSED, {"error_rate": 0.6}),
    ("incomplete_work", "invalid", CLOSED, {"kind": "finite", "items": 10, "items_left": 1}),
    ("resumed", "note", CLOSED, {"kind": "finite", "sessions": 2}),
    ("unfinished", "suspect", CLOSED, {"unfinished": 300}),
    ("shard_lost", "suspect", CLOSED, {"workers": 4, "workers_lost": 1}),
    ("shard_lost", "invalid", CLOSED, {"workers": 4, "workers_lost": 3}),
    ("saturated", "suspect", OPEN, {"saturated": True, "achieved_rps": 300.0}),
    ("over_saturated", "suspect", OPEN, {"over_saturated_at_s": 3.1}),
    ("rate_not_sent", "suspect", OPEN, {"sent_rps": 400.0}),
    ("offered_rate_mismatch", "suspect", OPEN, {"requested_rps": 700.0}),
    ("schedule_lag", "suspect", OPEN, {"lag_p99_s": 0.005}),
    ("loop_lag", "suspect", OPEN, {"loop_lag_p99_s": 0.005}),
    ("clock_offset", "suspect", OPEN, {"clock_error_s": 0.0011}),
    ("clock_offset", "note", CLOSED, {"clock_error_s": 0.0011}),
    ("client_stalled", "suspect", CLOSED, {"stalled_s": 0.5, "longest_stall_s": 0.5}),
    ("client_stalled", "note", CLOSED, {"stalled_s": 0.12, "longest_stall_s": 0.12, "window_s": 60.0}),
    ("client_cpu", "suspect", CLOSED, {"worker_cpu_ratio": 0.85}),
    ("client_bound", "suspect", CLOSED, {"ceiling_rps": 600.0}),
    ("host_cpu_saturated", "note", CLOSED, {"machine_cpu_ratio": 0.97}),
    ("busy_elsewhere", "suspect", CLOSED, {"processors": [Processors(node=None, busy=0.86, others=0.76)]}),
    ("busy_elsewhere", "suspect", CLOSED, {"processors": [Processors(node=None, busy=0.95, others=0.11)]}),
    ("busy_elsewhere", "suspect", CLOSED, {"processors": [Processors(node=None, busy=0.3, others=0.1, crowded=0.1)]}),
    ("busy_elsewhere", "suspect", CLOSED, {"processors": [Processors(node=None, busy=0.3, others=None, steal=0.05)]}),
    ("busy_elsewhere", "suspect", CLOSED, {"others_before": 0.2}),
    ("others_unknown", "note", CLOSED, {"others_unknown": "2 readings in the window, fewer than 3"}),
    (
        "memory_pressure",
        "suspect",
        CLOSED,
        {"processors": [Processors(node=None, busy=0.3, others=None, waiting_memory=0.1)]},
    ),
    ("busy_elsewhere", "suspect", OPEN, {"processors": [Processors(node="n2", busy=0.2, others=0.0, steal=0.08)]}),
    ("answers_incomplete", "suspect", CLOSED, {"unanswered": 3, "items": 500}),
    ("answers_not_scored", "suspect", CLOSED, {"not_scored": "scorers:exact failed: NameError\nand more"}),
    ("device_shared", "suspect", CLOSED, {"shared_device": "gpu 1"}),
    ("party_ended_early", "note", CLOSED, {"ended_early": "ingest", "early_ratio": 0.9}),
    ("party_ended_early", "suspect", CLOSED, {"ended_early": "ingest", "early_ratio": 0.4}),
    ("idle_member_busy", "suspect", CLOSED, {"idle_cores": {"search": 0.01, "ingest": 0.4}}),
    ("littles_law", "suspect", CLOSED, {"ended_per_s": 400.0}),
    ("littles_law", "suspect", CLOSED, {"ended_per_s": 400.0, "error_rate": 0.002}),
    ("few_local_ports", "note", CLOSED, {"connections": Connections(asked=900, ports_free=1000)}),
    (
        "connection_churn",
        "suspect",
        CLOSED,
        {"connections": Connections(asked=10, churn_per_s_limit=470.0, anew=2000, anew_per_s=450.0)},
    ),
    ("connected_anew", "note", CLOSED, {"connections": Connections(asked=10, anew=4000, anew_per_s=450.0)}),
    ("listen_queue_full", "suspect", OPEN, {"connections": Connections(asked=1000, backlog=128, overflows=3)}),
    ("client_underdriven", "suspect", CLOSED, {"concurrency_mean": 3.0, "ended_per_s": 300.0}),
    ("client_underdriven", "suspect", CLOSED, {"concurrency_mean": 3.0, "ended_per_s": 300.0, "held_open": 0.5}),
    (
        "streams_held_open",
        "note",
        CLOSED,
        {"concurrency_mean": 3.0, "ended_per_s": 300.0, "held_open": 1.9, "held_open_mean_s": 0.006},
    ),
    ("no_steady_state", "suspect", CLOSED, {"steady": False}),
    ("warmup_cut", "note", CLOSED, {"cut": "warmup_s: auto cut off the first 2.4 s"}),
    ("outage", "suspect", CLOSED, {"steady": False, "outages": ["no good reply came from 6 s to 8 s"]}),
    ("outage", "note", CLOSED, {"steady": False, "outages": ["no good reply came from 6 s to 8 s"] * 6}),
    ("no_steady_state", "note", OPEN, {"steady": None, "changing": True}),
    ("gpu_throttled", "suspect", CLOSED, {"gpu_clock_ratio": 0.7, "gpu_util_ratio": 0.9}),
    ("served_from_page_cache", "suspect", CLOSED, {"page_cache_ratio": 0.9}),
    ("served_from_page_cache", "note", CLOSED, {"page_cache_ratio": 0.9, "wants_cache": True}),
    ("speed_not_of_method", "note", CLOSED, {"speed_not_of_method": True}),
    ("extrapolated", "suspect", CLOSED, {"extrapolated": ("utilisation 1.2 (0.2 to 0.8)",)}),
    ("suspect_sources", "suspect", CLOSED, {"suspect_sources": ("busy_elsewhere 6",)}),
    ("server_restarted", "suspect", CLOSED, {"server_restarted": "the server had ended before this trial (lease)"}),
    ("wrong_answers", "invalid", CLOSED, {"wrong_answers": ["right_ratio is 0.98"]}),
    ("quality_floor", "suspect", CLOSED, {"quality_missed": ["recall_at_10 >= 0.95, is 0.7"]}),
    ("slo_missed", "note", CLOSED, {"slos_missed": ["latency_p99_s <= 0.1, is 0.2"]}),
    ("replies_short", "suspect", CLOSED, {"replies": 5000, "counted_units": 640_000, "asked_units": 1_280_000}),
    ("tokens_not_counted", "suspect", CLOSED, {"uncounted": 5000, "replies": 5000, "counts_units": False}),
    ("tokens_not_counted", "note", CLOSED, {"uncounted": 5, "replies": 5000}),
    ("first_chunk_not_counted", "suspect", CLOSED, {"first_chunk_tokens": 5.0, "tpot_low_ratio": 0.17}),
    ("first_chunk_not_counted", "note", CLOSED, {"first_chunk_tokens": 1.4, "tpot_low_ratio": 0.02}),
    ("percentile_lower_bound", "note", CLOSED, {"ranges": ["latency_ms p999 at least 9"], "timeouts": 9}),
    ("percentile_withheld", "note", CLOSED, {"withheld": {"p999": 10_000}}),
]
VERDICT = {"invalid": "INVALID", "suspect": "SUSPECT", "note": "VALID"}


@pytest.mark.parametrize("sound", [CLOSED, OPEN, CheckInputs()])
def test_a_sound_trial_and_one_of_which_nothing_is_known_have_nothing_against_them(sound):
    verdict, reasons = judge(replace(sound, ok=sound.ok or 5000, requests=5000))
    assert (verdict, reasons) == ("VALID", ())


@pytest.mark.covers("E-FR09")
@pytest.mark.parametrize(("code", "severity", "sound", "fault"), FAULTS)
def test_each_fault_gives_its_own_code_severity_and_remedy_and_no_other(code, severity, sound, fault):
    verdict, reasons = judge(replace(sound, **fault))
    assert [(reason.code, reason.severity) for reason in reasons] == [(code, severity)]
    assert verdict == VERDICT[severity]
    assert reasons[0].text
    assert reasons[0].remedy.endswith(".")


def test_every_check_has_a_fault_that_shows_it():
    fired = {check for check in CHECKS for _, _, sound, fault in FAULTS if check(replace(sound, **fault))}
    assert fired == set(CHECKS)


@pytest.mark.parametrize(
    ("sound", "almost"),
    [
        (CLOSED, {"error_rate": 0.009}),
        (CLOSED, {"unfinished": 200}),
        (CLOSED, {"worker_cpu_ratio": 0.79}),
        (CLOSED, {"worker_cpu_ratio": 1.0, "client_is_server": True}),
        (CLOSED, {"concurrency_mean": 3.0, "ended_per_s": 300.0, "think_time_s": 0.007}),
        (CLOSED, {"concurrency_mean": 5.2}),
        (CLOSED, {"stalled_s": 0.09, "longest_stall_s": 0.09, "window_s": 1.0}),
        (CLOSED, {"stalled_s": 0.5, "longest_stall_s": 0.5, "client_is_server": True}),
        (CLOSED, {"gpu_clock_ratio": 0.5, "gpu_util_ratio": 0.1}),
        (CLOSED, {"processors": [Processors(node=None, busy=0.8, others=0.19, steal=0.049)]}),
        (CLOSED, {"processors": [Processors(node=None, busy=0.99, others=0.09, load=0.5, server=0.4)]}),
        (CLOSED, {"processors": [Processors(node=None, busy=0.5, others=0.1, crowded=0.09)]}),
        (CLOSED, {"processors": [Processors(node=None, busy=0.9, others=None, waiting=0.9, waiting_io=0.9)]}),
        (CLOSED, {"processors": [Processors(node=None, busy=0.5, others=0.0, waiting_memory=0.09)]}),
        (CLOSED, {"ceiling_rps": 700.0}),
        (CLOSED, {"replies": 5000, "counted_units": 900_000, "asked_units": 1_000_000}),
        (CLOSED, {"replies": 5000, "counted_units": 900_000}),
        (OPEN, {"lag_p99_s": 0.0009, "service_tail_s": 0.0001}),
        (OPEN, {"offered_rps": 520.0}),
        (OPEN, {"sent_rps": 480.0}),
    ],
)
def test_just_below_a_limit_nothing_is_said(sound, almost):
    assert judge(replace(sound, **almost)) == ("VALID", ())


def test_the_sentences_on_a_busy_machine_say_what_was_seen_and_blame_nobody_for_it():
    seen = Processors(
        node=None, busy=0.97, others=0.86, load=0.06, server=0.045, waiting=0.93, load_average=23.1, count=2
    )
    _, reasons = judge(replace(CLOSED, machine_cpu_ratio=0.97, processors=[seen]))
    texts = {reason.code: reason.text for reason in reasons}
    assert texts["busy_elsewhere"] == (
        "others used 86 % of the processors of the machine during the window, the load 6 %, the server 4 %; "
        "some task waited for a processor 93 % of the time; the load average was 23.1 on 2 processors"
    )
    assert texts["host_cpu_saturated"] == "the machine's processors were 97 % busy, the load 6 %, the server 4 %"


def test_what_others_did_in_a_part_of_the_window_and_what_the_kernel_does_not_tell_is_said():
    seen = Processors(node="n2", busy=0.4, others=0.12, crowded=0.2, waiting_io=0.3, load_average=2.0)
    _, (reason,) = judge(replace(CLOSED, processors=[seen]))
    assert reason.text == (
        "others used 40 % or more of the processors of n2 in 20 % of the window, 12 % over all of it; "
        "how long tasks waited is not known (no PSI); for a disk 30 %; the load average was 2"
    )


def test_a_saturated_trial_is_not_blamed_for_the_lag_that_follows_from_it():
    fault = {"saturated": True, "achieved_rps": 300.0, "sent_rps": 300.0, "lag_p99_s": 5.0, "unfinished": 2000}
    _, reasons = judge(replace(OPEN, **fault))
    assert [reason.code for reason in reasons] == ["saturated"]


def test_the_gravest_reason_comes_first_and_gives_the_verdict():
    fault = {"machine_cpu_ratio": 0.99, "disordered": 3, "worker_cpu_ratio": 0.99}
    verdict, reasons = judge(replace(CLOSED, **fault))
    assert verdict == "INVALID"
    assert [reason.severity for reason in reasons] == ["invalid", "suspect", "note"]


@pytest.mark.parametrize("category", [*FAILURE_CATEGORIES, "something new", None])
def test_a_failed_trial_is_invalid_whatever_its_category(category):
    verdict, reasons = judge(CheckInputs(status="failed", category=category, failure="why"))
    assert verdict == "INVALID"
    assert reasons[0].code == (category or "failed")
    assert reasons[0].text == "why"


def test_the_worst_of_some_verdicts_is_the_gravest():
    assert worst(["VALID", "INVALID", "SUSPECT"]) == "INVALID"
    assert worst([]) == "VALID"


def test_every_category_that_the_code_gives_is_in_the_table():
    given = re.compile(
        r"""(?:FailedError|TaskFailure)\(\s*"(\w+)"|category="(\w+)"|_FAILED = "(\w+)"|_TRIED = "(\w+)\""""
    )
    elsewhere = {"report", "servers"}  # pages; servers, whose recipes have categories of their own
    paths = [path for path in (ROOT / "src" / "seamark").rglob("*.py") if not elsewhere & set(path.parts)]
    sources = [path.read_text() for path in paths]
    found = {name for text in sources for names in given.findall(text) for name in names if name}
    without_load = {"damaged_file", "missing_file"}  # of a trial whose files say nothing
    assert found - without_load <= set(FAILURE_CATEGORIES)
    assert {"server_died", "setup_failed", "not_tried", "party_failed", "program_failed"} <= found
