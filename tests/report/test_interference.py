"""Who slows whom: slowdowns of parties from the comparisons of their sets."""

from dataclasses import replace

import pytest

from seamark.model.results.comparison import Compared, ComparedSide, Comparisons, Effect
from seamark.report.interference import in_matrix, sets_of, slowdowns_of
from seamark.report.page.interference import documents_of, worst_text

TIME = Compared(
    workload="parties.a",
    factor="sets",
    metric="latency_ms.p50",
    better="lower",
    base=ComparedSide(level="a"),
    new=ComparedSide(level="a+b"),
    ratio=Effect(value=2.0, low=1.5, high=2.5),
    confidence=0.97,
    verdict="worse",
)


def rate(party: str, share: float, level: str = "a+b") -> Compared:
    """Return the comparison of a party's throughput together with alone."""
    return replace(
        TIME,
        workload=f"parties.{party}",
        metric="throughput",
        better="higher",
        base=ComparedSide(level=party),
        new=ComparedSide(level=level),
        ratio=Effect(value=share, low=share / 2, high=share * 2),
    )


@pytest.mark.covers("A1")
def test_a_slowdown_is_above_one_for_a_longer_time_and_for_a_lower_rate() -> None:
    time, of_rate = slowdowns_of(Comparisons(comparisons=(TIME, rate("a", 0.5))))
    assert (time.party, time.beside, time.value, time.low, time.high) == ("a", ("b",), 2.0, 1.5, 2.5)
    assert (of_rate.value, of_rate.low, of_rate.high) == (2.0, 1.0, 4.0)
    assert time.verdict == "worse"


def test_what_is_no_party_beside_others_against_itself_alone_is_none() -> None:
    others = (
        replace(TIME, factor="concurrency"),
        replace(TIME, base=ComparedSide(level="a+b"), new=ComparedSide(level="a+b+c")),
        replace(TIME, ratio=None),
        rate("a", 0.0),
    )
    assert slowdowns_of(Comparisons(comparisons=others)) == ()
    assert slowdowns_of(None) == ()
    assert documents_of(Comparisons(comparisons=others)) == {}


@pytest.mark.covers("A1")
def test_a_set_makes_progress_by_the_shares_of_throughput_and_is_as_fair_as_the_least_of_them() -> None:
    found = slowdowns_of(Comparisons(comparisons=(TIME, rate("a", 0.5), rate("b", 0.8))))
    [facts] = sets_of(found)
    assert (facts.parties, facts.progress, facts.worst) == (("a", "b"), pytest.approx(1.3), 2.0)
    assert facts.fairness == pytest.approx(0.625)
    assert [(cell.party, cell.metric) for cell in in_matrix(found)] == [("a", "latency_ms.p50"), ("b", "throughput")]
    assert worst_text(in_matrix(found)).startswith("a suffers most: beside b ")
    assert sets_of(found[:2]) == []
