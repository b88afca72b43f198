"""Each check fires on its fault and on nothing else; notes change no verdict."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from samples import a_checked_trial, a_metrics, changed
from shipped import SERVICES

from seamark.analysis.checks import CHECKS, judge, worst
from seamark.analysis.checks.result import trial_failed
from seamark.analysis.metrics.distribution import TimeDistribution
from seamark.model.failure_categories import FAILURE_CATEGORIES

ROOT = Path(__file__).parents[2]
CLOSED = a_checked_trial()
OPEN = changed(
    a_checked_trial(pattern="poisson", rate_rps=500.0),
    {"metrics.schedule_lag_ms": {"p99": 0.2}, "metrics.offered_rps": 500.0},
)
UNKNOWN = replace(CLOSED, metrics=a_metrics())
UNDERDRIVEN = {"metrics.concurrency_mean": 3.0, "counts.ended": 3000}
DOWN = {"start_s": 6.0, "end_s": 8.0, "missed": 900, "failed": 0}
PART = {"start_s": 0.0, "end_s": 2.4, "requests": 20, "ok": 20, "failed": 0, "requests_per_s": 8.0}
SESSION = {"epoch_unix_ns": None, "offset_s": 0.0, "length_s": 5.0, "items": 5}
MISSED = {"metrics.slos": [{"metric": "recall", "op": ">=", "limit": 0.95, "value": 0.7, "met": False}]}
CACHED = {"metrics.quality": {"page_cache_ratio": 0.9}}
REFUSED = {"metrics.quality": {"o_direct": 0.0}}
GOOD = {"counts.whole_good": 5000}
SIMULATED = {"load.origin": "simulated"}
SECOND = {"counts.window.end_ns": 10**9, "counts.ended": 500}
MINUTE = {"counts.window.end_ns": 60 * 10**9, "counts.ended": 30_000}
CENSORED = {"metrics.latency_ms": {"censored": 9, "ranges": {"p999": [9.0, None]}}, "counts.cancelled": 9}


def settings(**changes):
    return {"trial.settings": {"concurrency": 5, "warmup_s": 0.0} | changes}


def workers(*reports, **report):
    return {"load.workers": [*reports, report]}


def network(asked=10, anew=0, overflows=0, **limits):
    unknown = dict.fromkeys(("ports_free", "churn_per_s_limit", "connected_anew_per_s", "listen_backlog"))
    counts = {"connections": asked, "connected_anew": anew, "listen_overflows": overflows}
    return workers(network=unknown | counts | limits)


def processors(node=None, busy=0.3, others=None, **use):
    return {"processors": [{"node": node, "busy": busy, "others": others, **use}]}


def telemetry(**means):
    """Series named SOURCE__NAME of constant values; a clock has been at 1."""
    rest = {"unit": "", "n": 9, "min": 0.0, "p50": 0.0, "p95": 0.0, "max": 1.0}
    return {"metrics.telemetry": {name.replace("__", "."): {"mean": mean, **rest} for name, mean in means.items()}}


USED = {"requests": 40.0, "share": 0.9}
GATEWAY = {"cores": 2, "replicas": 2, "direct_per_s": 900.0}
CHUNKS_OF_GATEWAY = GATEWAY | {"requests_per_s": 1e6, "chunks_per_s": 6000.0}
SERVED_LESS = {"metrics.achieved_rps": 470.0}
DEPARTURE = {"role": "load", "what": "cores", "pid": 7, "asked": "1", "seen": "0-1"}
IN_STEP = {"autocorrelation": 0.6, "dispersion": 1.77}
IDLE = telemetry(host__processors=4.0, search__server__cpu_ratio=0.0025, ingest__server__cpu_ratio=0.1)
FAULTS = [
    ("no_replies", "invalid", CLOSED, {"counts.ok": 0}),
    ("too_few_samples", "suspect", CLOSED, {"counts.ok": 19}),
    ("timestamp_order", "invalid", CLOSED, {"counts.disordered": 1}),
    ("error_rate", "suspect", CLOSED, {"metrics.errors.rate": 0.02}),
    ("error_rate", "invalid", CLOSED, {"metrics.errors.rate": 0.6}),
    ("incomplete_work", "invalid", CLOSED, {"load.kind": "finite", "load.items": 10, "counts.rows": 9}),
    ("resumed", "note", CLOSED, {"load.kind": "finite", "load.sessions": [SESSION, SESSION]}),
    ("unfinished", "suspect", CLOSED, {"counts.cancelled": 200, "counts.unsent": 100}),
    ("shard_lost", "suspect", CLOSED, workers({}, {}, {}, ok=False)),
    ("shard_lost", "invalid", CLOSED, workers({"ok": False}, {"ok": False}, {}, ok=False)),
    ("saturated", "suspect", OPEN, {"metrics.saturated": True, "metrics.achieved_rps": 300.0}),
    ("over_saturated", "suspect", OPEN, {"load.over_saturated_at_s": 3.1}),
    ("rate_not_sent", "suspect", OPEN, {"counts.sent": 4000}),
    ("offered_rate_mismatch", "suspect", OPEN, settings(pattern="poisson", rate_rps=700.0)),
    ("schedule_lag", "suspect", OPEN, {"metrics.schedule_lag_ms.p99": 5.0}),
    ("loop_lag", "suspect", OPEN, workers({"loop_lag_ns": {"p99": 200_000.0}}, loop_lag_ns={"p99": 5_000_000.0})),
    ("clock_offset", "suspect", OPEN, workers(offset_error_ns=800_000.0, offset_drift_ns=-300_000.0)),
    ("clock_offset", "note", CLOSED, workers(offset_error_ns=1_100_000.0)),
    ("client_stalled", "suspect", CLOSED, workers(stalls_ns=[[0, 500_000_000]])),
    ("client_stalled", "note", CLOSED, MINUTE | workers(stalls_ns=[[0, 120_000_000]])),
    ("client_cpu", "suspect", CLOSED, workers(cpu_s=9.5, spin_s=1.0, wall_s=10.0)),
    ("client_bound", "suspect", CLOSED, {"ceiling": {"requests_per_s": 600.0}}),
    ("gateway_bound", "suspect", CLOSED, {"load.gateway": GATEWAY | {"requests_per_s": 600.0}}),
    ("gateway_bound", "suspect", OPEN, {"load.gateway": GATEWAY | {"requests_per_s": 600.0}, **SERVED_LESS}),
    ("gateway_bound", "suspect", CLOSED, {"load.gateway": CHUNKS_OF_GATEWAY, "counts.chunks": 50_000}),
    ("host_cpu_saturated", "note", CLOSED, {"metrics.resource": {"cpu_util": 0.97}}),
    ("busy_elsewhere", "suspect", CLOSED, processors(busy=0.86, others=0.76)),
    ("busy_elsewhere", "suspect", CLOSED, processors(busy=0.95, others=0.11)),
    ("busy_elsewhere", "suspect", CLOSED, processors(others=0.1, crowded=0.1)),
    ("busy_elsewhere", "suspect", CLOSED, processors(steal=0.05)),
    ("busy_elsewhere", "suspect", CLOSED, {"load.others_before": 0.2}),
    ("others_unknown", "note", CLOSED, {"others_unknown": "2 readings in the window, fewer than 3"}),
    ("memory_pressure", "suspect", CLOSED, processors(waiting_memory=0.1)),
    ("busy_elsewhere", "suspect", OPEN, processors("n2", busy=0.2, others=0.0, steal=0.08)),
    ("answers_incomplete", "suspect", CLOSED, {"answers": {"status": "ok", "answers": 497}, "load.items": 500}),
    ("answers_not_scored", "suspect", CLOSED, {"answers": {"status": "failed", "reason": "NameError\nand more"}}),
    ("device_shared", "suspect", CLOSED, {"load.device": {"kind": "gpu", "id": "1", "slot": 0, "shared": True}}),
    ("party_ended_early", "note", CLOSED, {"load.ended_early": "ingest"} | settings(duration_s=11.1)),
    ("party_ended_early", "suspect", CLOSED, {"load.ended_early": "ingest"} | settings(duration_s=12.6)),
    ("party_silent", "suspect", CLOSED, {"load.silent": ["ingest"]}),
    ("placement_not_kept", "suspect", CLOSED, {"load.place": {"departures": [DEPARTURE]}}),
    ("placement_not_kept", "suspect", CLOSED, {"load.moved": ["other"]}),
    ("threads_over_cores", "suspect", CLOSED, {"load.place": {"all_threads": 5, "all_cores": 4}}),
    ("idle_member_busy", "suspect", CLOSED, IDLE),
    ("replica_idle", "suspect", CLOSED, {"metrics.replicas": {"by_replica": {"a": USED, "b": {"requests": 5}}}}),
    ("replica_idle", "suspect", CLOSED, {"metrics.replicas": {"by_replica": {"a": USED, "b": {}}}}),
    ("littles_law", "suspect", CLOSED, {"counts.ended": 4000}),
    ("littles_law", "suspect", CLOSED, {"counts.ended": 4000, "metrics.errors.rate": 0.002}),
    ("few_local_ports", "note", CLOSED, network(asked=900, ports_free=1000)),
    ("connection_churn", "suspect", CLOSED, network(anew=2000, connected_anew_per_s=450.0, churn_per_s_limit=470.0)),
    ("connected_anew", "note", CLOSED, network(anew=4000, connected_anew_per_s=450.0)),
    ("listen_queue_full", "suspect", OPEN, network(asked=1000, listen_backlog=128, overflows=3)),
    ("client_underdriven", "suspect", CLOSED, UNDERDRIVEN),
    ("client_underdriven", "suspect", CLOSED, UNDERDRIVEN | workers(held_open_s=5.0, wall_s=10.0)),
    ("waves", "suspect", CLOSED, {"counts.waves": IN_STEP | {"behind_ratio": 0.05, "behind_errors": 3.0}}),
    ("waves", "suspect", CLOSED, {"counts.waves": IN_STEP | {"behind_ratio": -0.2, "behind_errors": 9.0}}),
    ("waves", "note", CLOSED, {"counts.waves": IN_STEP | {"behind_ratio": 0.049, "behind_errors": 9.0}}),
    ("waves", "note", CLOSED, {"counts.waves": IN_STEP | {"behind_ratio": 0.2, "behind_errors": 2.9}}),
    ("waves", "note", CLOSED, {"counts.waves": IN_STEP}),
    ("streams_held_open", "note", CLOSED, UNDERDRIVEN | workers(held_open_s=19.0, wall_s=10.0, completed=3167)),
    ("no_steady_state", "suspect", CLOSED, {"metrics.steady_state.steady": False}),
    ("warmup_cut", "note", CLOSED, {"metrics.warmup_auto": {"limit_s": 5, "cut_s": 2.4, "reason": "", "part": PART}}),
    ("outage", "suspect", CLOSED, {"metrics.steady_state": {"steady": False, "outages": [DOWN]}}),
    ("outage", "note", CLOSED, {"metrics.steady_state": {"steady": False, "outages": [DOWN] * 6}}),
    ("no_steady_state", "note", OPEN, {"metrics.steady_state.steady": None, "trial.settings": {"pattern": "trace"}}),
    ("gpu_throttled", "suspect", CLOSED, telemetry(gpu0__clock_hz=0.7, gpu0__util_ratio=0.9)),
    ("served_from_page_cache", "suspect", CLOSED, CACHED),
    ("served_from_page_cache", "note", CLOSED, CACHED | settings(direct="cached")),
    ("o_direct_refused", "note", CLOSED, REFUSED | settings(direct="auto", operation="read")),
    ("o_direct_refused", "suspect", CLOSED, REFUSED | settings(direct="auto", operation="write", fsync="end")),
    ("o_direct_refused", "suspect", CLOSED, REFUSED | settings(direct="auto", operation="read", harness="fio")),
    ("speed_not_of_method", "note", CLOSED, {"metrics.quality": {"speed_not_of_method": 1.0}}),
    ("extrapolated", "suspect", CLOSED, SIMULATED | {"load.quality": {"extrapolated_utilisation": 1.2}}),
    ("suspect_sources", "suspect", CLOSED, SIMULATED | {"load.quality": {"suspect_sources_busy_elsewhere": 6}}),
    ("server_restarted", "suspect", CLOSED, {"load.server_restarted": "the server had ended before this trial"}),
    ("wrong_answers", "invalid", CLOSED, {"metrics.quality": {"right_ratio": 0.98}}),
    ("quality_floor", "suspect", CLOSED, MISSED | {"metrics.quality": {"recall": 0.7}}),
    ("slo_missed", "note", CLOSED, MISSED),
    ("replies_short", "suspect", CLOSED, GOOD | {"counts.counted_units": 640_000} | workers(asked_units=1_280_000)),
    ("tokens_not_counted", "suspect", CLOSED, GOOD | {"counts.uncounted": 5000}),
    ("tokens_not_counted", "note", CLOSED, GOOD | {"counts.uncounted": 5}),
    ("first_chunk_not_counted", "suspect", CLOSED, {"counts.first_chunk": {"replies": 1, "tokens": 25, "chunks": 5}}),
    ("first_chunk_not_counted", "note", CLOSED, {"counts.first_chunk": {"replies": 5, "tokens": 105, "chunks": 75}}),
    ("percentile_lower_bound", "note", CLOSED, CENSORED),
    ("percentile_withheld", "note", CLOSED, {"counts.response": TimeDistribution()}),
]
VERDICT = {"invalid": "INVALID", "suspect": "SUSPECT", "note": "VALID"}


@pytest.mark.parametrize("sound", [CLOSED, OPEN, UNKNOWN])
def test_a_sound_trial_and_one_of_which_nothing_is_known_have_nothing_against_them(sound):
    assert judge(sound) == ("VALID", ())


@pytest.mark.covers("E-FR09")
@pytest.mark.parametrize(("code", "severity", "sound", "fault"), FAULTS)
def test_each_fault_gives_its_own_code_severity_and_remedy_and_no_other(code, severity, sound, fault):
    verdict, reasons = judge(changed(sound, fault))
    assert [(reason.code, reason.severity) for reason in reasons] == [(code, severity)]
    assert verdict == VERDICT[severity]
    assert reasons[0].text
    assert reasons[0].remedy.endswith(".")


def test_every_check_has_a_fault_that_shows_it():
    fired = {check for check in CHECKS for _, _, sound, fault in FAULTS if check(changed(sound, fault))}
    assert fired == set(CHECKS)


@pytest.mark.parametrize(
    ("sound", "almost"),
    [
        (CLOSED, {"metrics.errors.rate": 0.009}),
        (CLOSED, {"counts.cancelled": 200}),
        (CLOSED, workers(cpu_s=7.9, wall_s=10.0)),
        (CLOSED, {"client_is_server": True} | workers(cpu_s=10.0, wall_s=10.0)),
        (CLOSED, UNDERDRIVEN | settings(think_time_s=0.007)),
        (CLOSED, {"metrics.concurrency_mean": 5.2}),
        (CLOSED, SECOND | workers(stalls_ns=[[0, 90_000_000]])),
        (CLOSED, {"client_is_server": True} | workers(stalls_ns=[[0, 500_000_000]])),
        (CLOSED, telemetry(gpu0__clock_hz=0.5, gpu0__util_ratio=0.1)),
        (CLOSED, processors(busy=0.8, others=0.19, steal=0.049)),
        (CLOSED, processors(busy=0.99, others=0.09, load=0.5, server=0.4)),
        (CLOSED, processors(busy=0.5, others=0.1, crowded=0.09)),
        (CLOSED, processors(busy=0.9, waiting=0.9, waiting_io=0.9)),
        (CLOSED, processors(busy=0.5, others=0.0, waiting_memory=0.09)),
        (CLOSED, {"load.place": {"looks": 9, "niceness": 10, "all_threads": 4, "all_cores": 4}}),
        (CLOSED, {"ceiling": {"requests_per_s": 700.0}}),
        (CLOSED, {"load.gateway": GATEWAY | {"requests_per_s": 700.0}}),
        (CLOSED, {"load.gateway": CHUNKS_OF_GATEWAY, "counts.chunks": 40_000}),
        (CLOSED, {"load.gateway": GATEWAY | {"reason": "its pool did not start"}}),
        (CLOSED, {"counts.waves": {"autocorrelation": 0.5, "dispersion": 3.0}}),
        (CLOSED, {"counts.waves": {"autocorrelation": 0.99, "dispersion": 1.76}}),
        (CLOSED, GOOD | {"counts.counted_units": 900_000} | workers(asked_units=1_000_000)),
        (CLOSED, GOOD | {"counts.counted_units": 900_000}),
        (OPEN, {"metrics.schedule_lag_ms.p99": 0.9, "metrics.service_time_ms.p99": 0.1}),
        (OPEN, {"metrics.offered_rps": 520.0}),
        (OPEN, {"counts.sent": 4800}),
    ],
)
def test_just_below_a_limit_nothing_is_said(sound, almost):
    assert judge(changed(sound, almost)) == ("VALID", ())


def test_the_sentences_on_a_busy_machine_say_what_was_seen_and_blame_nobody_for_it():
    seen = processors(busy=0.97, others=0.86, load=0.06, server=0.045, waiting=0.93, load_average=23.1, count=2)
    _, reasons = judge(changed(CLOSED, {"metrics.resource": {"cpu_util": 0.97}} | seen))
    texts = {reason.code: reason.text for reason in reasons}
    assert texts["busy_elsewhere"] == (
        "others used 86 % of the processors of the machine during the window, the load 6 %, the server 4 %; "
        "some task waited for a processor 93 % of the time; the load average was 23.1 on 2 processors"
    )
    assert texts["host_cpu_saturated"] == "the machine's processors were 97 % busy, the load 6 %, the server 4 %"


def test_what_others_did_in_a_part_of_the_window_and_what_the_kernel_does_not_tell_is_said():
    seen = processors("n2", busy=0.4, others=0.12, crowded=0.2, waiting_io=0.3, load_average=2.0)
    _, (reason,) = judge(changed(CLOSED, seen))
    assert reason.text == (
        "others used 40 % or more of the processors of n2 in 20 % of the window, 12 % over all of it; "
        "how long tasks waited is not known (no PSI); for a disk 30 %; the load average was 2"
    )


def test_a_saturated_trial_is_not_blamed_for_the_lag_that_follows_from_it():
    fault = {"metrics.saturated": True, "metrics.achieved_rps": 300.0, "metrics.schedule_lag_ms.p99": 5000.0}
    _, reasons = judge(changed(OPEN, fault | {"counts.sent": 3000, "counts.cancelled": 2000}))
    assert [reason.code for reason in reasons] == ["saturated"]


def test_the_gravest_reason_comes_first_and_gives_the_verdict():
    fault = {"metrics.resource": {"cpu_util": 0.99}, "counts.disordered": 3} | workers(cpu_s=9.9, wall_s=10.0)
    verdict, reasons = judge(changed(CLOSED, fault))
    assert verdict == "INVALID"
    assert [reason.severity for reason in reasons] == ["invalid", "suspect", "note"]


@pytest.mark.parametrize("category", [*FAILURE_CATEGORIES, "something new"])
def test_a_failed_trial_is_invalid_whatever_its_category(category):
    reason = trial_failed(category, "why")
    assert (reason.code, reason.verdict, reason.text) == (category, "INVALID", "why")
    assert reason.remedy.endswith(".")


def test_the_worst_of_some_verdicts_is_the_gravest():
    assert worst(["VALID", "INVALID", "SUSPECT"]) == "INVALID"
    assert worst([]) == "VALID"


def test_every_category_that_the_code_gives_is_in_the_table():
    given = re.compile(
        r"""(?:FailedError|TaskFailure)\(\s*"(\w+)"|category="(\w+)"|_FAILED = "(\w+)"|_TRIED = "(\w+)\""""
    )
    elsewhere = {"report", "server"}  # pages; servers, whose recipes have categories of their own
    paths = [path for path in (ROOT / "src").glob("seamark*/**/*.py") if not elsewhere & set(path.parts)]
    sources = [path.read_text() for path in paths]
    found = {name for text in sources for names in given.findall(text) for name in names if name}
    without_load = {"damaged_file", "missing_file"}  # of a trial whose files say nothing
    of_recipes = {name for service in SERVICES.values() for name in service.failures}
    assert found - without_load <= set(FAILURE_CATEGORIES) | of_recipes
    assert {"server_died", "setup_failed", "not_tried", "party_failed", "program_failed"} <= found
