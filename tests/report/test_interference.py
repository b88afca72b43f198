"""Who slows whom: slowdowns of parties from the comparisons of their sets."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from seamark.model.results.comparison import Compared, ComparedSide, Comparisons, Effect
from seamark.model.results.stages import StageFigures, StageTimes
from seamark.model.results.summary import SummaryRow
from seamark.report.interference import cells_of, energies_of, in_matrix, sets_of, slowdowns_of, stage_slowdowns_of
from seamark.report.page.content import Table
from seamark.report.page.interference import documents_of, interference_blocks, stage_text, worst_text

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


@pytest.mark.covers("A1")
def test_a_set_makes_progress_by_the_shares_of_throughput_and_is_as_fair_as_the_least_of_them() -> None:
    found = slowdowns_of(Comparisons(comparisons=(TIME, rate("a", 0.5), rate("b", 0.8))))
    [facts] = sets_of(found)
    assert (facts.parties, facts.progress, facts.worst) == (("a", "b"), pytest.approx(1.3), 2.0)
    assert facts.fairness == pytest.approx(0.625)
    assert [(cell.party, cell.metric) for cell in in_matrix(found)] == [("a", "latency_ms.p50"), ("b", "throughput")]
    assert worst_text(in_matrix(found), 2).startswith("a suffers most: beside b ")
    assert sets_of(found[:2]) == []


def suspect(compared: Compared, *codes: str, **side: int) -> Compared:
    """Return a comparison with trials that are SUSPECT by these codes."""
    return replace(compared, new=replace(compared.new, suspect_reasons=dict.fromkeys(codes, 1), **side))


@pytest.mark.covers("A1")
def test_a_doubtful_slowdown_says_why_and_is_not_who_suffers_most() -> None:
    worse = suspect(rate("b", 0.1), "placement_not_kept", "too_few_samples", "party_ended_early")
    comparisons = Comparisons(comparisons=(TIME, worse, replace(rate("c", 0.5, "b+c"), ratio=None)))
    matrix = in_matrix(slowdowns_of(comparisons))
    assert [cell.doubts for cell in matrix] == [(), ("party_ended_early", "placement_not_kept")]
    assert (cells_of(comparisons), cells_of(None)) == (3, 0)
    assert worst_text(matrix, 3).startswith("a suffers most of the 1 of 3 cells ")
    both = slowdowns_of(Comparisons(comparisons=(rate("a", 0.5), rate("b", 0.8), worse)))
    assert sets_of(both)[0].doubts == ("party_ended_early", "placement_not_kept")
    nothing = in_matrix(slowdowns_of(Comparisons(comparisons=(worse,))))
    assert "suffers most:" not in worst_text(nothing, 3)
    assert stage_text(nothing, ()) == ""


def test_the_table_of_the_page_and_interference_json_have_the_doubts() -> None:
    comparisons = Comparisons(comparisons=(TIME, suspect(rate("b", 0.1), "party_silent")))
    results: Any = SimpleNamespace(summary=SimpleNamespace(comparisons=comparisons), treatments=())
    _, _, table, *_ = interference_blocks(results)
    assert isinstance(table, Table)
    assert [cell.text for column in table.columns if column.name == "doubts" for cell in column.cells] == [
        "",
        "party_silent",
    ]
    assert [row["doubts"] for row in documents_of(results)["slowdowns"]] == [(), ("party_silent",)]


@pytest.mark.parametrize(("units", "doubts"), [(1, ("confounded_with_time",)), (5, ())])
def test_a_slowdown_of_trials_that_were_not_measured_in_turns_is_doubtful_unless_pairs_are_left(
    units: int, doubts: tuple[str, ...]
) -> None:
    [slowdown] = slowdowns_of(Comparisons(comparisons=(suspect(TIME, apart=1, units=units),)))
    assert slowdown.doubts == doubts


def stages(**run_ms: float) -> Any:
    return SimpleNamespace(
        by_stage={name: StageFigures(visits=9, threads=1, run_ms=StageTimes(mean=ms)) for name, ms in run_ms.items()}
    )


@pytest.mark.covers("A7")
def test_a_stage_is_compared_with_itself_alone_block_by_block() -> None:
    alone = [stages(load=1.0 + 0.1 * block, model=10.0 + block) for block in range(6)]
    beside = [stages(load=1.0 + 0.1 * block, model=2 * (10.0 + block)) for block in range(6)]
    rows = {
        level: SummaryRow(treatment=level, workload="w.a", service="pipeline", factors={"sets": level})
        for level in ("a", "a+b", "b")
    }
    found: Any = SimpleNamespace(
        treatments=tuple(rows.values()),
        trials_of=lambda row: [
            SimpleNamespace(trial=SimpleNamespace(block=block), good=SimpleNamespace(stages=each))
            for block, each in enumerate({"a": alone, "a+b": beside}.get(row.treatment, ()))
        ],
    )
    load, model = stage_slowdowns_of(found)
    assert (load.party, load.beside, load.stage, load.what, load.value, load.ms) == ("a", ("b",), "load", "run", 1, 0)
    assert (model.value, model.low, model.high) == pytest.approx((2.0, 2.0, 2.0))
    assert model.ms == pytest.approx(12.5)
    worst = slowdowns_of(Comparisons(comparisons=(TIME,)))
    assert "stage model suffers most" in stage_text(worst, (load, model))
    assert "lost most" in stage_text(worst, (replace(model, low=0.9),))
    assert stage_text(worst, (load,)) == ""


@pytest.mark.covers("A1")
def test_energy_of_a_set_is_that_of_the_same_work_one_party_after_another() -> None:
    """10 W and 20 W alone; together 24 W, at 0.5 and 0.8 of the throughput alone: 24 / (5 + 16)."""
    figures = {
        ("a", "a"): (100.0, {"package0": 10.0}),
        ("b", "b"): (50.0, {"package0": 20.0}),
        ("a", "a+b"): (50.0, {"package0": 24.0}),
        ("b", "a+b"): (40.0, {"package0": 24.0}),
    }

    def results(**more: dict[str, float]) -> Any:
        rows = [
            SummaryRow(treatment=level, workload=f"w.{party}", service="x", factors={"sets": level})
            for party, level in figures
        ]
        return SimpleNamespace(
            treatments=rows,
            trials_of=lambda row: [
                SimpleNamespace(
                    trial=SimpleNamespace(block=block),
                    verdict="VALID",
                    good=SimpleNamespace(
                        throughput=SimpleNamespace(value=figures[row.workload[2:], row.treatment][0]),
                        telemetry={
                            f"{source}.energy_j": SimpleNamespace(mean=watts, n=9)
                            for source, watts in (
                                figures[row.workload[2:], row.treatment][1] | more.get(row.treatment, {})
                            ).items()
                        },
                    ),
                )
                for block in range(2)
            ],
        )

    [ratios] = energies_of(results()).values()
    assert ratios == pytest.approx([24 / 21, 24 / 21])
    found = slowdowns_of(Comparisons(comparisons=(rate("a", 0.5), rate("b", 0.8))))
    [facts] = sets_of(found, energies_of(results()))
    assert (facts.energy, facts.energy_low, facts.energy_high) == pytest.approx((24 / 21,) * 3)
    assert energies_of(results(b={"dram0": 5.0})) == {}, "a counter that is not read in all of them"
    assert energies_of(results(b={"gpu0": 50.0})) == {}, "a GPU is read by its party alone"
    assert energies_of(results(a={"package0": 0.0})) == {}, "a counter that stands still"
    assert sets_of(found)[0].energy is None
