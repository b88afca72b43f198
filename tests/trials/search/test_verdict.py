"""What a probe's metrics.json says of the server: passed, failed, or nothing, and never one for the other."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import a_load, a_trial, samples_of, write_samples

from seamark.analysis.metrics.document import derive_metrics
from seamark.model.results.load_record import LoadRecord
from seamark.model.results.trial_metrics import TrialMetrics
from seamark.model.sample import Failure
from seamark.model.scenario import Slo
from seamark.storage.codec import decode
from seamark.storage.paths import TrialFolder
from seamark.trials.search.largest_load import Limit, ProbeObservation
from seamark.trials.search.largest_load import judged as judged_together
from seamark.trials.search.observation import ends_search, observation_of, values_of
from seamark.trials.search.steps import Verdict

GOLDEN = next(Path(__file__).parents[2].glob("analysis/golden/expected/null-*.json"))
UNKNOWN = {name: None for name in json.loads(GOLDEN.read_text()) if name.endswith("_ms")}
BASE = json.loads(GOLDEN.read_text()) | UNKNOWN | {"slos": [], "reasons": []}


def judged(metrics: dict[str, Any], load: LoadRecord) -> tuple[Verdict, str]:
    """What two probes of one level say that saw the same, with nothing known of single requests."""
    seen = observation_of(decode(BASE | metrics, TrialMetrics), load, {})
    return judged_together([seen, seen])


def metrics(*codes: str, slos: tuple[dict[str, Any], ...] | None = None, **other: Any) -> dict[str, Any]:
    met = {"metric": "latency_p99_s", "op": "<=", "limit": 0.1, "value": 0.05, "met": True}
    return {
        "status": "ok",
        "category": None,
        "reason": None,
        "reasons": [{"code": code, "severity": "suspect", "text": f"because of {code}"} for code in codes],
        "slos": list(slos or (met,)),
        "counts": {"requests": 500, "ok": 500, "failed": 0, "lost": 0},
        "latency_ms": {"max": 80.0},
        **other,
    }


def missed(**changes: Any) -> tuple[dict[str, Any], ...]:
    return ({"metric": "latency_p99_s", "op": "<=", "limit": 0.1, "value": 0.2, "met": False, **changes},)


BUSY = {"pid": 1, "wall_s": 10.0, "cpu_s": 9.9}
LOAD = a_load(workers=[{"backlog_max": 0}])


def test_a_probe_that_meets_every_objective_passes_and_one_that_misses_one_fails_and_says_which():
    assert judged(metrics(), LOAD)[0] == "pass"
    verdict, why = judged(metrics("slo_missed", slos=missed()), LOAD)
    assert verdict == "fail"
    assert why == "latency_p99_s <= 0.1 is missed: 0.2"


@pytest.mark.parametrize("code", ["saturated", "over_saturated", "error_rate", "no_replies", "wrong_answers"])
def test_a_server_that_cannot_keep_up_or_answers_badly_fails_whatever_its_good_replies_took(code):
    assert judged(metrics(code), LOAD)[0] == "fail"


def test_errors_within_an_objective_of_their_own_do_not_fail():
    allowed = {"metric": "error_rate", "op": "<=", "limit": 0.05, "value": 0.02, "met": True}
    assert judged(metrics("error_rate", slos=(allowed,)), LOAD)[0] == "pass"


@pytest.mark.parametrize("ours", ["client_cpu", "client_bound", "loop_lag", "client_stalled", "schedule_lag"])
def test_a_probe_that_may_have_failed_by_our_own_fault_says_nothing_and_one_that_passes_all_the_same_does(ours):
    verdict, why = judged(metrics("slo_missed", ours, slos=missed()), LOAD)
    assert verdict == "void"
    assert f"because of {ours}" in why
    assert "latency_p99_s <= 0.1 is missed" in why
    assert judged(metrics(ours, "saturated"), LOAD)[0] == "void"
    assert judged(metrics(ours), LOAD)[0] == "pass"


def test_requests_that_were_late_since_every_connection_was_busy_are_the_servers_fault():
    busy = a_load(workers=[{"backlog_max": 0}, {"backlog_max": 12}])
    assert judged(metrics("slo_missed", "schedule_lag", slos=missed()), busy)[0] == "fail"


@pytest.mark.parametrize("code", ["rate_not_sent", "offered_rate_mismatch", "shard_lost", "client_underdriven"])
def test_a_load_that_was_not_what_was_asked_for_does_not_pass(code):
    assert judged(metrics(code), LOAD)[0] == "void"


def test_a_percentile_that_is_not_known_is_met_when_the_slowest_reply_meets_it_and_else_says_nothing():
    unknown = missed(value=None, met=None)
    assert judged(metrics("percentile_withheld", slos=unknown), LOAD)[0] == "pass"
    verdict, why = judged(metrics(slos=unknown, latency_ms={"max": 120.0}), LOAD)
    assert verdict == "void"
    assert "500 replies are too few" in why
    of_ttft = missed(metric="ttft_response_p99_s", value=None, met=None)
    assert judged(metrics(slos=of_ttft, ttft_response_ms={"max": 90.0}), LOAD)[0] == "pass"
    assert judged(metrics(slos=of_ttft, ttft_response_ms=None), LOAD)[0] == "void"


def test_a_percentile_that_is_a_lower_bound_is_missed_above_its_limit_and_says_nothing_below_it():
    verdict, why = judged(metrics(slos=missed(range=[0.2, None])), LOAD)
    assert (verdict, why) == ("fail", "latency_p99_s <= 0.1 is missed: at least 0.2")
    verdict, why = judged(
        metrics(
            slos=missed(range=[0.05, None], value=0.05, met=None),
            latency_ms={"max": 90.0, "ranges": {"max": [90.0, None]}},
        ),
        LOAD,
    )
    assert verdict == "void"
    assert "it is at least 0.05" in why
    timed_out = metrics(slos=missed(value=None, met=None), latency_ms={"max": 90.0, "ranges": {"max": [90.0, None]}})
    assert judged(timed_out, LOAD)[0] == "void", "how long the slowest would have taken is not known"


@pytest.mark.parametrize(
    ("category", "verdict", "ends"),
    [
        ("all_requests_failed", "fail", False),
        ("server_died", "void", False),
        ("client_died", "void", False),
        ("no_samples", "void", False),
        ("interrupted", None, True),
        ("disk_full", None, True),
        ("server_never_healthy", None, True),
    ],
)
def test_a_load_that_failed_is_an_answer_or_none_or_the_end_of_the_search(category, verdict, ends):
    load = a_load(status="failed", category=category, reason="x")
    assert ends_search(load) == ends
    if verdict:
        assert judged({"status": "failed", "category": category, "reason": "x", "reasons": []}, load)[0] == verdict


def probe_of(folder, rows, slos, **load):
    """Return the observation of a probe of these samples and objectives, as a search sees it."""
    named = (each.split() for each in slos)
    trial = a_trial(slos=tuple(Slo(metric=metric, op=op, limit=float(limit)) for metric, op, limit in named))
    files = TrialFolder(root=folder)
    files.root.mkdir(parents=True)
    write_samples(files.samples, rows)
    record = a_load(warmup_s=0.0, duration_s=10.0, rows=len(rows), **load)
    found = derive_metrics(trial, record, files, scenario="s").metrics
    return observation_of(found, record, values_of(trial.slos, files, found)), found


def test_requests_that_timed_out_are_in_a_mean_with_what_they_waited(tmp_path):
    """Nine in a thousand wait for 30 s, so that the mean is above 0.27 s: those that were answered have 0.02 s."""
    random = np.random.default_rng(1)
    due_s = np.sort(random.uniform(0, 10, 20_000))
    lost = random.random(len(due_s)) < 0.009
    last_s = due_s + np.where(lost, 30.0, random.exponential(0.02, len(due_s)))
    rows = samples_of(due_s, due_s, last_s, failure=np.where(lost, int(Failure.TIMEOUT), 0))
    seen, _ = probe_of(tmp_path / "slow", rows, ["latency_mean_s <= 0.05"])
    assert judged_together([seen])[0] == "fail"
    seen, _ = probe_of(tmp_path / "loose", rows, ["latency_mean_s <= 5"])
    verdict, why = judged_together([seen] * 3)
    assert verdict == "likely_pass", "what was not answered may have taken any time"
    assert "latency_mean_s <= 5 is not known, as requests had no answer" in why


def test_a_probe_whose_values_miss_a_withheld_percentile_beside_a_full_client_says_nothing(tmp_path):
    due_s = np.sort(np.random.default_rng(2).uniform(0, 10, 600))
    took_s = np.where(np.arange(600) % 12 == 0, 1.0, 0.01)
    seen, found = probe_of(
        tmp_path / "few", samples_of(due_s, due_s, due_s + took_s), ["latency_p99_s <= 0.1"], workers=[BUSY]
    )
    assert "client_cpu" in {each.code for each in found.reasons}
    assert judged_together([seen])[0] == "void"


def test_the_error_of_a_look_is_shared_among_its_objectives():
    limits = [Limit(name=str(n), statistic="mean", limit=1.0, of="latency") for n in range(4)]
    values = np.random.default_rng(3).normal(1.0, 0.3, 400) + 0.0409
    alone = ProbeObservation(values={limits[0]: values})
    shared = ProbeObservation(values={limit: values if limit is limits[0] else values - 0.5 for limit in limits})
    assert judged_together([alone])[0] == "fail"
    assert judged_together([shared])[0] == "likely_fail"
