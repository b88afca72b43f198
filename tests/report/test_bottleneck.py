"""Which stage a treatment waits for, by how busy its threads are and by the critical path."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from seamark.model.results.stages import StageFigures, Stages
from seamark.model.results.summary import SummaryRow
from seamark.model.results.times import PartTimes
from seamark.model.results.trial_metrics import PartFigures
from seamark.model.sample import UNTIMED
from seamark.report.page.content import Table, Text
from seamark.report.page.stages import bottleneck_text, stages_blocks
from seamark.report.page.whole_run import whole_run_blocks
from seamark.report.source import ShownWorkload


def stages(**of: tuple[float, float]) -> Stages:
    """Return stages with a busy ratio and a share of the critical path each."""
    by_stage = {
        name: StageFigures(visits=9, threads=1, busy_ratio=busy, critical_ratio=critical)
        for name, (busy, critical) in of.items()
    }
    return Stages(events=9, requests=9, outside_ratio=0.0, by_stage=by_stage, examples=())


@pytest.mark.covers("A1")
@pytest.mark.parametrize(
    ("found", "is_open", "name"),
    [
        (stages(load=(0.2, 0.9), train=(0.97, 0.1)), False, "train"),
        (stages(load=(0.2, 0.9), train=(0.8, 0.1)), False, "load"),
        (stages(load=(0.2, 0.9), train=(0.8, 0.1)), True, "load"),
        (stages(load=(0.2, 0.9), train=(0.6, 0.1)), True, "none"),
    ],
)
def test_the_bottleneck_is_the_busiest_stage_or_the_longest_on_the_critical_path(
    found: Stages, is_open: bool, name: str
) -> None:
    assert bottleneck_text([found], is_open=is_open).split()[0].strip(",") == name


@pytest.mark.covers("A9")
def test_the_bottleneck_says_which_stages_record_no_events() -> None:
    traced = stages(load=(0.2, 0.9), train=(0.97, 0.1))
    assert "grade" not in bottleneck_text([traced], is_open=False)
    silent = replace(traced, without_events=("grade", "end"))
    assert "grade, end" in bottleneck_text([silent, silent], is_open=False)


def blocks(*traced: Stages) -> tuple[str, Table]:
    """Return the texts of a workload's stages and their table, of a repetition for each of `traced`."""
    load = SimpleNamespace(closed=True)
    views = [SimpleNamespace(trial=SimpleNamespace(load=load), good=SimpleNamespace(stages=one)) for one in traced]
    results: Any = SimpleNamespace(trials_of=lambda row: views)
    row = SummaryRow(treatment="t", workload="rag", service="pipeline", factors={})
    found = stages_blocks(ShownWorkload(results=results, service="pipeline", name="rag", treatments=(row,)))
    [table] = [block for block in found if isinstance(block, Table)]
    return " ".join(block.text for block in found if isinstance(block, Text)), table


@pytest.mark.covers("A9")
def test_a_stage_with_disable_logs_has_a_row_of_dashes() -> None:
    _, table = blocks(replace(stages(load=(0.2, 0.9)), without_events=("grade",)))
    rows = [[cell.text for cell in row] for row in table.rows]
    place = [column.name for column in table.columns].index("stage")
    assert [row[place] for row in rows] == ["load", "grade", "outside of stages"]
    assert set(rows[1][place + 1 :]) == {"–"}
    assert rows[0][place + 1] == "9"


@pytest.mark.covers("A7")
def test_the_page_has_the_hidden_share_with_its_interval_and_says_where_queries_are_too_few() -> None:
    first = replace(stages(load=(0.2, 0.9)), hidden_ratio=0.25, hidden_interval=(0.2, 0.305))
    text, _ = blocks(first, replace(first, hidden_ratio=0.35, hidden_interval=(0.31, 0.4)))
    assert "30 % (20 to 40 %)" in text
    few, _ = blocks(stages(**{f"load{UNTIMED}": (0.2, 0.9)}))
    assert "- (needs 20 queries)" in few
    assert "timed region" not in blocks(stages(load=(0.2, 0.9)))[0]


@pytest.mark.covers("A1")
def test_the_page_has_the_whole_run_of_a_party_beside_its_part_of_the_common_window() -> None:
    def view(end_s: float, p50: float) -> Any:
        times = PartTimes(p50=p50, p95=2 * p50)
        whole = PartFigures(start_s=1.0, end_s=end_s, requests=40, ok=40, failed=0, throughput=8.0, latency_ms=times)
        return SimpleNamespace(good=SimpleNamespace(whole_run=whole, throughput=SimpleNamespace(unit="items_per_s")))

    views = [view(11.0, 20.0), view(13.0, 30.0), SimpleNamespace(good=None)]
    results: Any = SimpleNamespace(trials_of=lambda row: views)
    row = SummaryRow(treatment="t", workload="w.rag", service="pipeline", factors={})
    workload = ShownWorkload(results=results, service="pipeline", name="w.rag", treatments=(row,))
    [table] = whole_run_blocks(workload)
    shown = {column.name: (column.cells[0].text, column.unit) for column in table.columns}
    assert shown["whole run"] == ("11.0", "s")
    assert shown["throughput"] == ("8.00", "items/s")
    assert [shown[name][0] for name in ("requests", "failed", "p50", "p95", "p99")] == [
        "40",
        "0",
        "25.0",
        "50.0",
        "–",
    ]
    alone: Any = SimpleNamespace(trials_of=lambda row: [SimpleNamespace(good=SimpleNamespace(whole_run=None))])
    assert whole_run_blocks(replace(workload, results=alone)) == []
