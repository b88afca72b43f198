"""The table of streamed replies in the report."""

from typing import Any

import pytest

from seamark.model.results.summary import SummaryRow
from seamark.report.tables.by_treatment import streams_table
from seamark.storage.codec import decode


def times(p50: float, p99: float | None, **more: Any) -> dict[str, Any]:
    return {"p50": p50, "p99": p99, "mean": p50, "max": 2 * p50, "censored": 0, "ranges": {}, **more}


def treatment(level: int, **groups: Any) -> SummaryRow:
    least = {"treatment": f"t{level}", "workload": "w", "service": "s", "repetitions": 1}
    return decode({**least, "factors": {"rate_rps": level}, **groups}, SummaryRow)


@pytest.mark.covers("E-FR09")
def test_times_from_the_send_and_from_the_due_time_stand_side_by_side_with_their_names_and_marks():
    slow = treatment(
        2,
        ttft_ms=times(50, 90),
        ttft_response_ms=times(60, 2000, ranges={"p99": [2000, None]}, censored=3),
        ttfo_ms=times(50, 90),
        tpot_ms=times(10, None),
        reasons=[{"code": "saturated", "severity": "suspect", "count": 1}],
    )
    table = streams_table([treatment(1, ttft_ms=None), slow])
    assert table is not None
    names = [column.name for column in table.columns]
    assert names == [
        "rate_rps",
        "TTFT p50",
        "TTFT p99",
        "TTFT response p50",
        "TTFT response p99",
        "TPOT p50",
        "TPOT p99",
    ]
    assert [cell.text for cell in table.rows[1]] == ["2", "50.0 †", "90.0 †", "60.0 †", "≥ 2,000 †", "10.0 †", "–"]
    assert {cell.text for cell in table.rows[0][1:]} == {"–"}
    assert any(note.startswith("≥") for note in table.footnotes)
    assert any(note.startswith("†") for note in table.footnotes)


def test_without_streams_there_is_no_table():
    assert streams_table([treatment(1, ttft_ms=None, tpot_ms=None)]) is None


def test_time_to_first_output_has_columns_where_there_was_reasoning():
    table = streams_table([treatment(1, ttft_ms=times(50, 90), ttfo_ms=times(150, 190))])
    assert table is not None
    assert [column.name for column in table.columns][2:] == ["TTFO p50", "TTFO p99"]


def test_times_above_ten_seconds_are_printed_in_seconds_and_few_samples_greyed():
    slow = treatment(2, ttft_ms=times(12_000, None, ranges={"p99": [15_000, None], "p50": [12_000, 13_000]}))
    table = streams_table([slow])
    assert table is not None
    columns = {column.name: column for column in table.columns}
    assert (columns["TTFT p50"].unit, columns["TTFT p50"].cells[0].text) == ("s", "12.0–13.0")
    few = columns["TTFT p99"].cells[0]
    assert (few.text, few.kind) == ("≥ 15.0", "faint")
