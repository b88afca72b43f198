"""The score of file I/O: IO500's formula on known rates, and no score without all parts."""

import math
from dataclasses import replace

import pytest

from seamark.model.results.summary import Spread, SummaryRow, ThroughputSpread
from seamark.report.page.content import Table
from seamark.report.page.io_score import DATA, METADATA, geometric_mean, score, score_section

ROWS = [
    SummaryRow(
        treatment=part,
        workload="data",
        service="fileio",
        config={"operation": part.split()[-1], "access": part.split()[0], "concurrency": 4},
        bandwidth_mb_per_s=Spread(median=rate * 2**30 / 1e6),
        verdict="OK",
    )
    for part, rate in zip(DATA, (8.0, 2.0, 1.0, 0.0625), strict=True)
] + [
    SummaryRow(
        treatment=part,
        workload="metadata",
        service="fileio",
        config={"operation": part, "access": "random", "concurrency": 4},
        throughput=ThroughputSpread(median=rate * 1e3),
        verdict="OK",
    )
    for part, rate in zip(METADATA, (1.0, 10.0, 100.0, 1000.0, 10.0), strict=True)
]


def shown(rows: list[SummaryRow]) -> dict[str, list[str]]:
    section = score_section(rows)
    assert section is not None
    (table,) = (block for block in section.blocks if isinstance(block, Table))
    return {column.name: [cell.text for cell in column.cells] for column in table.columns}


@pytest.mark.covers("E-FR16")
def test_the_score_is_that_of_io500():
    assert geometric_mean([8.0, 2.0, 1.0, 0.0625]) == pytest.approx(1.0)
    rates = dict(zip(DATA + METADATA, (8.0, 2.0, 1.0, 0.0625, 1.0, 10.0, 100.0, 1000.0, 10.0), strict=True))
    assert score(rates) == pytest.approx(math.sqrt(1.0 * 10**1.4))
    table = shown(ROWS)
    assert (float(table["bandwidth"][0]), float(table["metadata"][0])) == (1.0, 25.1)
    assert float(table["score"][0]) == pytest.approx(5.01)
    assert table["threads"] == ["4"]


@pytest.mark.covers("E-FR16")
@pytest.mark.parametrize("part", range(len(ROWS)))
def test_there_is_no_score_without_all_parts(part: int):
    others = ROWS[:part] + ROWS[part + 1 :]
    assert score_section(others) is None
    assert score_section([*others, replace(ROWS[part], verdict="INVALID")]) is None
    assert score_section([*others, replace(ROWS[part], config={**ROWS[part].config, "concurrency": 1})]) is None
    assert score_section([*ROWS, ROWS[part]]) is None, "which of both is the part is not known"
