"""Slowdowns of pairs that were not measured, from each party beside burners, and how sure they are."""

from types import SimpleNamespace
from typing import Any

import pytest

from seamark.model.results.summary import SummaryRow
from seamark.report.slowdown_prediction import (
    PairPrediction,
    between,
    prediction_lines,
    predictions_of,
    with_intervals,
)
from seamark.stats.conformal import half_width

ALONE = {"a": 10.0, "b": 20.0, "c": 30.0}
"""Throughput of three parties alone."""


def result(party: str, level: str, rate: float, burner: int = 1) -> tuple[SummaryRow, float]:
    row = SummaryRow(
        treatment=f"{party} in {level} {burner}",
        workload=f"parties.{party}",
        service="x",
        component="burner" if party == "cpu" else "x",
        factors={"sets": level, "cpu.concurrency": burner, "placement": "shared"},
    )
    return row, rate


def results(*found: tuple[SummaryRow, float]) -> Any:
    by_treatment = {row.treatment: rate for row, rate in found}

    def trials(row: SummaryRow) -> list[Any]:
        good = SimpleNamespace(
            figure=lambda name: by_treatment[row.treatment] if name == "throughput.value" else None
        )
        return [SimpleNamespace(trial=SimpleNamespace(block=block), good=good) for block in range(2)]

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
