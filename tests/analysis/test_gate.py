"""The gate of results: what does not pass it, and the one line that says why."""

from dataclasses import replace

import pytest
from samples import a_metrics

from seamark.analysis.gate import gate_of_summary, gate_of_trial
from seamark.model.results.summary import (
    CountedReason,
    FailedTrial,
    ObjectiveSummary,
    Spread,
    Summary,
    SummaryRow,
)
from seamark.model.results.trial_metrics import (
    ObjectiveResult,
    VerdictReason,
)

ROW = SummaryRow(
    treatment="t",
    workload="null",
    service="null",
    factors={"concurrency": 1},
    repetitions=2,
    planned=2,
    verdict="VALID",
    trial_verdicts=("VALID", "VALID"),
    trials=("a", "b"),
    slos=(
        ObjectiveSummary(metric="latency_p99_s", op="<=", limit=0.1, met=2, of=2, value=Spread(min=0.01, max=0.02)),
    ),
)
SUMMARY = Summary(trials=2, ok=2, verdicts={"VALID": 2}, treatments=(ROW,))
WITHHELD = CountedReason(code="percentile_withheld", severity="note", text="120 samples are too few: p99 needs 1,000")
FEW = CountedReason(code="too_few_samples", severity="suspect", text="only 12 good replies in the window")
WRONG = CountedReason(code="wrong_answers", severity="invalid", text="answers were wrong: right_ratio is 0.98")


def with_row(**changes):
    row = replace(ROW, **changes)
    return replace(SUMMARY, treatments=(row,), ok=row.repetitions)


def with_objective(**changes):
    return {"slos": (replace(ROW.slos[0], **changes),)}


def test_results_with_nothing_against_them_pass_and_the_line_says_what_was_judged():
    gate = gate_of_summary(SUMMARY)
    assert (gate.passed, gate.text) == (True, "Gate passed: 2 trials; 1 objective met.")
    suspect = replace(with_row(slos=()), verdicts={"VALID": 1, "SUSPECT": 1})
    assert gate_of_summary(suspect).text == "Gate passed: 2 trials, 1 of them SUSPECT; no objective is set."


@pytest.mark.covers("E-FR09", "E-NFR04")
@pytest.mark.parametrize(
    ("summary", "why"),
    [
        pytest.param(
            with_row(**with_objective(met=1, value=Spread(min=0.02, max=0.31))),
            "null concurrency=1: latency_p99_s <= 0.1 missed in 1 of 2 trials, at worst 0.31",
            id="missed",
        ),
        pytest.param(
            with_row(**with_objective(met=1, value=Spread(min=0.02, max=0.31), range=(0.02, None))),
            "null concurrency=1: latency_p99_s <= 0.1 missed in 1 of 2 trials, at worst at least 0.31",
            id="missed by a range without an upper end",
        ),
        pytest.param(
            with_row(**with_objective(metric="throughput", op=">=", limit=90, met=0, value=Spread(min=7, max=80))),
            "null concurrency=1: throughput >= 90 missed in 2 of 2 trials, at worst 7",
            id="missed from below",
        ),
        pytest.param(
            with_row(reasons=(WITHHELD,), **with_objective(met=0, of=0, value=None)),
            "null concurrency=1: whether latency_p99_s <= 0.1 is met is not known in 2 of 2 trials "
            "(too few samples, 60 in a trial give a range and 1,000 a number)",
            id="withheld",
        ),
        pytest.param(
            with_row(**with_objective(met=1, of=1, range=(0.02, None), value=Spread(min=0.02, max=0.05))),
            "null concurrency=1: whether latency_p99_s <= 0.1 is met is not known in 1 of 2 trials "
            "(its value is at least 0.02)",
            id="range",
        ),
        pytest.param(
            with_row(**with_objective(metric="ttft_p50_s", met=0, of=0, value=None)),
            "null concurrency=1: whether ttft_p50_s <= 0.1 is met is not known in 2 of 2 trials (it has no value)",
            id="a figure that the service does not have",
        ),
        pytest.param(
            with_row(reasons=(FEW,)),
            "null concurrency=1: only 12 good replies in the window, too few to know whether an objective is met",
            id="too few for anything",
        ),
        pytest.param(
            with_row(trial_verdicts=("VALID", "INVALID"), verdict="INVALID", reasons=(WRONG,)),
            "null concurrency=1: INVALID in 1 of 2 trials (answers were wrong: right_ratio is 0.98)",
            id="invalid",
        ),
        pytest.param(
            with_row(verdict="INVALID", reasons=(replace(WRONG, code="servers_mixed", text="two servers"),)),
            "null concurrency=1: INVALID (two servers)",
            id="trials that cannot be pooled",
        ),
        pytest.param(
            replace(
                with_row(repetitions=1, trial_verdicts=("VALID", "INVALID"), **with_objective(met=1, of=1)),
                failed=(FailedTrial(trial="b", status="failed", category="server_died", reason="exit code 9"),),
            ),
            "1 of 2 trials failed (b: exit code 9)",
            id="failed",
        ),
    ],
)
def test_each_reason_against_passing_is_one_line_that_says_what_was_seen(summary, why):
    gate = gate_of_summary(summary)
    assert not gate.passed
    assert gate.text == f"Gate not passed: {why}."


def test_trials_that_were_not_measured_do_not_pass_and_many_reasons_are_still_one_line():
    assert gate_of_summary(SUMMARY, unmeasured=1).text == "Gate not passed: 1 of 2 trials not measured."
    rows = tuple(replace(ROW, factors={"concurrency": level}, **with_objective(met=0)) for level in range(5))
    text = gate_of_summary(replace(SUMMARY, trials=10, treatments=rows)).text
    assert text.count("missed") == 3
    assert text.endswith("; and 2 more reasons.")
    assert "\n" not in text


MET = ObjectiveResult(metric="latency_p99_s", op="<=", limit=0.1, value=0.02, met=True)
BOUND = ObjectiveResult(metric="latency_p99_s", op="<=", limit=0.1, value=0.05, range=(0.05, 0.2))
MISSED = ObjectiveResult(metric="latency_p99_s", op="<=", limit=0.1, value=0.31, met=False)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "Gate passed: 1 trial; 1 objective met."),
        ({"slos": (MISSED,)}, "Gate not passed: latency_p99_s <= 0.1 missed, is 0.31."),
        (
            {"slos": (replace(MISSED, range=(0.31, None)),)},
            "Gate not passed: latency_p99_s <= 0.1 missed, is at least 0.31.",
        ),
        (
            {"slos": (BOUND,)},
            "Gate not passed: whether latency_p99_s <= 0.1 is met is not known (its value is 0.05 to 0.2).",
        ),
        (
            {"verdict": "INVALID", "reasons": (VerdictReason(code="no_replies", severity="invalid", text="none"),)},
            "Gate not passed: INVALID (none).",
        ),
        (
            {"status": "failed", "verdict": "INVALID", "reasons": (), "slos": ()},
            "Gate not passed: INVALID (no reason is recorded).",
        ),
    ],
)
def test_one_load_is_judged_in_the_same_way(changes, text):
    assert gate_of_trial(a_metrics(**{"slos": (MET,)} | changes)).text == text
