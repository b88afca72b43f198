"""Slowdowns of pairs that were not measured, from each party beside burners, and how sure they are."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from seamark.model.results.summary import CountedReason, SummaryRow
from seamark.report.slowdown_prediction import (
    PairPrediction,
    between,
    half_width,
    prediction_lines,
    predictions_of,
    with_intervals,
)

ALONE = {"a": 10.0, "b": 20.0, "c": 30.0}
"""Throughput of three parties alone."""
P50_MS = {("open", "open"): 20.0, ("open", "open+cpu"): 40.0}
"""Median times of a party whose requests arrive at a rate; those of the others are withheld."""


def result(party: str, level: str, rate: float, burner: int = 1) -> tuple[SummaryRow, float]:
    row = SummaryRow(
        treatment=f"{party} in {level} {burner}",
        workload=f"parties.{party}",
        service="x",
        component="burner" if party == "cpu" else "x",
        deployment=f"all@{party}",
        config={"resource": "cpu", "bytes": 4096},
        factors={
            "sets": level,
            ("concurrency" if party == "cpu" else "cpu.concurrency"): burner if "cpu" in level else None,
            "placement": "shared",
        },
    )
    return row, rate


def results(*found: tuple[SummaryRow, float]) -> Any:
    by_treatment = {row.treatment: rate for row, rate in found}

    def trials(row: SummaryRow) -> list[Any]:
        p50_ms = P50_MS.get((row.workload.partition(".")[2], str(row.factors["sets"])))
        good = SimpleNamespace(figure={"throughput.value": by_treatment[row.treatment], "latency_ms.p50": p50_ms}.get)
        return [SimpleNamespace(trial=SimpleNamespace(block=block), good=good, verdict="VALID") for block in range(2)]

    return SimpleNamespace(treatments=[row for row, _ in found], trials_of=trials)


def measured(*pairs: tuple[SummaryRow, float]) -> Any:
    """Return parties alone and beside a burner of one or two threads, of which two take all of the resource.

    `a` needs all of it and is half as fast beside two threads; `b` needs a quarter and loses nothing to one thread.
    """
    return results(
        *(result(party, party, rate) for party, rate in ALONE.items()),
        *(result("cpu", "cpu", 50.0 * threads, threads) for threads in (1, 2)),
        *(result("a", "a+cpu", 10 / loss, threads) for threads, loss in ((1, 1.25), (2, 2.0))),
        *(result("b", "b+cpu", 20 / loss, threads) for threads, loss in ((1, 1.0), (2, 1.25))),
        *(result("cpu", "a+cpu", kept, threads) for threads, kept in ((1, 45.0), (2, 50.0))),
        *(result("cpu", "b+cpu", kept, threads) for threads, kept in ((1, 50.0), (2, 80.0))),
        *pairs,
    )


@pytest.mark.covers("A3")
def test_a_pair_is_as_slow_as_its_sensitivity_at_the_demand_of_the_other() -> None:
    found = {(pair.party, pair.beside): pair for pair in predictions_of(measured()).pairs}
    assert found["a", "b"].value == pytest.approx(1 + 0.25 * 0.25 / 0.5), "a quarter, of 1.25 at a half"
    assert found["b", "a"].value == pytest.approx(1.25), "all of it"
    assert found["a", "b"].fixed == {"placement": "shared"}
    assert found["a", "c"].value is None
    assert "c was not measured beside cpu (concurrency 2)" in str(found["a", "c"].reason)
    assert found["a", "b"].low is None


@pytest.mark.covers("A3")
def test_what_needs_more_than_the_burner_took_is_not_predicted() -> None:
    greedy = [result("c", "c+cpu", 10, 2), result("cpu", "c+cpu", 40.0, 2)]
    found = {(pair.party, pair.beside): pair for pair in predictions_of(measured(*greedy)).pairs}
    assert found["a", "c"].value is None, "it takes 0.6 of it where it is three times as slow"
    assert "c uses more" in str(found["a", "c"].reason)
    assert found["c", "a"].value == pytest.approx(3.0)


@pytest.mark.covers("A3")
def test_a_party_at_a_rate_demands_what_the_burner_loses_and_is_slower_by_its_median() -> None:
    at_a_rate = [
        result("open", "open", 5.0),
        *(result("open", "open+cpu", 5.0, threads) for threads in (1, 2)),
        *(result("cpu", "open+cpu", kept, threads) for threads, kept in ((1, 45.0), (2, 90.0))),
    ]
    found = {(pair.party, pair.beside): pair for pair in predictions_of(measured(*at_a_rate)).pairs}
    assert found["a", "open"].value == pytest.approx(1 + 0.25 * 0.1 / 0.5), "a tenth, of 1.25 at a half"
    assert (found["open", "a"].value, found["open", "a"].by) == (pytest.approx(2.0), "latency_ms.p50")


def test_what_rests_on_a_doubtful_trial_says_so_and_calibrates_nothing() -> None:
    pairs = [result("a", "a+b", 8.0), result("b", "a+b", 20 / 1.5)]
    doubtful = [
        (replace(row, reasons=(CountedReason(code="party_silent", severity="suspect", text=""),)), rate)
        for row, rate in pairs[:1]
    ]
    found = predictions_of(measured(*doubtful, *pairs[1:]))
    assert {pair.party: pair.doubts for pair in found.pairs if pair.measured} == {"a": ("party_silent",), "b": ()}
    assert found.off == pytest.approx((1.5 / 1.25,))


def test_measured_pairs_say_how_far_predictions_are_off() -> None:
    pairs = [result("a", "a+b", 8.0), result("b", "a+b", 20 / 1.5)]
    found = predictions_of(measured(*pairs))
    assert found.off == pytest.approx((1.25 / 1.125, 1.5 / 1.25))
    known = {(pair.party, pair.beside): pair.measured for pair in found.pairs if pair.measured}
    assert known == {("a", "b"): pytest.approx(1.25), ("b", "a"): pytest.approx(1.5)}
    assert all(pair.low is None for pair in found.pairs), "nine residuals are needed"
    assert prediction_lines(found)


@pytest.mark.covers("A3")
def test_an_interval_is_as_wide_as_nine_in_ten_residuals_and_needs_nine() -> None:
    assert half_width([0.1] * 8, 0.9) is None
    assert half_width([*[0.1] * 8, -0.7], 0.9) == 0.7
    assert half_width([number / 100 for number in range(1, 20)], 0.9) == 0.18
    known = [PairPrediction(party="p", beside=str(at), value=2.0, measured=2.0 + at / 10) for at in range(9)]
    found = with_intervals([*known, PairPrediction(party="new", beside="x", value=3.0)])
    assert (found.pairs[-1].low, found.pairs[-1].high) == (pytest.approx(3 / 1.4), pytest.approx(3 * 1.4))


def test_values_between_points_lie_on_straight_lines() -> None:
    points = [(0.0, 1.0), (0.5, 1.0), (1.0, 2.0)]
    assert [between(points, at) for at in (0.0, 0.25, 0.5, 0.75, 1.0)] == [1.0, 1.0, 1.0, 1.5, 2.0]
