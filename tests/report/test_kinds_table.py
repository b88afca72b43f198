"""The table of kinds of request: from samples through the summary to cells."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import a_load, a_trial, samples_of, write_samples

from seamark.analysis.summary import write_metrics, write_summary
from seamark.model.results.summary import KindSpreads, KindSummary, Spread, Summary, SummaryRow
from seamark.model.sample import Failure
from seamark.model.trial import Plan
from seamark.report.page.render import write_report
from seamark.report.tables.by_treatment import MOST_KINDS, kinds_table
from seamark.report.tables.summary import _named
from seamark.storage.documents import write
from seamark.storage.paths import ScenarioFolder

KINDS = ["chat", "search"]


@pytest.fixture
def folder(tmp_path: Path) -> ScenarioFolder:
    return ScenarioFolder(root=tmp_path / "results" / "mixed")


def a_summary(folder: ScenarioFolder, chats: tuple[int, ...] = (16, 16), kinds: list[str] = KINDS) -> Summary:
    """A repetition of 10 s, after a warm-up of 1 s, for each number of chats among twenty requests. A chat takes
    10 ms in the first repetition, 20 ms in the second; a search is streamed from its half on, takes 40 ms, and two of
    twenty fail."""
    trials = []
    for repetition, many in enumerate(chats, 1):
        trial = a_trial({"pattern": "constant", "rate_rps": 200.0, "warmup_s": 1.0}, repetition=repetition)
        trial = replace(trial, id=f"d-1--w-1--r{repetition}")
        number = np.arange(2200)
        searches = number % 20 >= many
        due = number / 200
        last = due + np.where(searches, 0.04, 0.01 * repetition)
        failure = np.where((number % 20 == 16) & (number // 20 % 5 < 2), Failure.SERVER_ERROR, Failure.NONE)
        first = np.where(searches & (failure == 0), due + 0.02, np.nan)
        rows = samples_of(due, None, last, first_s=first, kind=searches.astype(int), failure=failure, units=2)
        write_samples(folder.trial(trial.id).samples, rows)
        write(folder.trial(trial.id).load, a_load(kinds=kinds, config_hash="cafe"))
        write_metrics(trial, folder.trial(trial.id))
        trials.append(trial)
    plan = Plan(
        scenario="mixed",
        source="s.yaml",
        seed=1,
        repetitions=len(trials),
        max_retries=0,
        factors={},
        deployments=(),
        trials=tuple(trials),
    )
    write(folder.plan, plan)
    return write_summary(plan, folder)


def rows_of(treatments: Sequence[SummaryRow]) -> dict[str, dict[str, str]]:
    table = kinds_table(treatments)
    assert table is not None
    heads = [column.name for column in table.columns]
    return {cells[heads.index("kind")].text: _texts(heads, cells) for cells in table.rows}


def _texts(heads: list[str], cells: Any) -> dict[str, str]:
    return {head: cell.text for head, cell in zip(heads, cells, strict=True)}


@pytest.mark.covers("E-FR09", "E-FR12")
def test_each_kind_has_its_requests_rate_times_and_errors(folder: ScenarioFolder) -> None:
    rows = rows_of(a_summary(folder).treatments)
    chat, search = rows["chat"], rows["search"]
    assert list(rows) == KINDS
    assert list(chat) == [
        "kind",
        "requests",
        "rate",
        *(f"{what} {quantile}" for what in ("TTFT", "response") for quantile in ("p50", "p90", "p99")),
        "errors",
    ]
    assert (chat["requests"], search["requests"]) == ("3,200", "800")
    assert float(chat["rate"]) == pytest.approx(160, rel=0.01)
    assert float(search["rate"]) == pytest.approx(36, rel=0.01)
    assert chat["response p50"] == "15.0 (10.0 – 20.0)", "the median over repetitions, with least and greatest"
    assert chat["response p99"] == "15.0 (10.0 – 20.0)"
    assert search["response p90"] == "40.0", "no spread where repetitions agree"
    assert search["response p99"] == "≥ 40.0", "fewer than 368 requests of a trial give no upper end"
    assert (search["TTFT p50"], chat["TTFT p50"]) == ("20.0", "–")
    assert (chat["errors"], search["errors"]) == ("0", "10")


def test_a_percentile_that_one_repetition_withholds_is_withheld(folder: ScenarioFolder) -> None:
    chat = rows_of(a_summary(folder, chats=(16, 9)).treatments)["chat"]
    assert chat["requests"] == "2,500"
    assert chat["response p90"] == "15.0 (10.0 – 20.0)"
    assert chat["response p99"] == "–"


def test_times_of_kinds_above_ten_seconds_are_in_seconds(folder: ScenarioFolder) -> None:
    [row] = a_summary(folder).treatments
    slow = KindSpreads(
        p50=Spread(median=92_530.0, min=60_000.0, max=99_000.0), p90=Spread(median=9e3, min=9e3, max=9e3)
    )
    table = kinds_table([replace(row, by_kind={"chat": KindSummary(latency_ms=slow)})])
    assert table is not None
    cells = {f"{head.name} {head.unit}": cell.text for head, cell in zip(table.columns, table.rows[0], strict=True)}
    assert (cells["response p50 s"], cells["response p90 ms"]) == ("92.5 (60.0 – 99.0)", "9,000")


def test_requests_that_are_all_alike_have_no_table(folder: ScenarioFolder) -> None:
    treatments = a_summary(folder, kinds=["get"]).treatments
    assert treatments[0].by_kind is None
    assert kinds_table(treatments) is None


def test_every_treatment_has_a_row_for_each_of_its_kinds(folder: ScenarioFolder) -> None:
    [mixed] = a_summary(folder).treatments
    treatments = [
        replace(mixed, factors={"rate_rps": 20.0}),
        replace(mixed, factors={"rate_rps": 80.0}, by_kind=None),
    ]
    table = kinds_table(treatments)
    assert table is not None
    assert table.caption == "Kinds of request"
    assert _named(table, "w").caption == "w: kinds of request"
    assert [[cell.text for cell in row[:2]] for row in table.rows] == [["20", "chat"], ["20", "search"], ["80", "–"]]
    assert {cell.kind for cell in table.rows[2][1:]} == {"absent"}
    long = kinds_table([replace(mixed, factors={})] * MOST_KINDS)
    assert long is not None
    assert len(long.rows) == MOST_KINDS
    assert f"{MOST_KINDS} more rows" in long.footnotes[-1]


@pytest.mark.slow
@pytest.mark.covers("E-FR27")
def test_page_and_markdown_show_the_kinds(folder: ScenarioFolder, tmp_path: Path) -> None:
    a_summary(folder)
    page = write_report(folder.root, tmp_path / "reports")
    assert "<caption>Kinds of request</caption>" in page.read_text()
    markdown = (page.parent / "report.md").read_text()
    assert "**Kinds of request**" in markdown
    assert "| search | 800 | 36.0 | 20.0 |" in markdown
