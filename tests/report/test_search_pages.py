"""The searches of a workload in its report: every probe, told apart without colour, the limit and what was found."""

import csv
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from make_results import SERVICES, make_results, printed
from samples import a_metrics, a_trial, a_view

from seamark.analysis.summary import write_summary
from seamark.analysis.summary.knees import found_by_search
from seamark.model.results.load_record import SearchOutcome
from seamark.model.trial import Plan
from seamark.report.page.render import write_report
from seamark.storage.documents import read, read_json, write_json
from seamark.storage.paths import ScenarioFolder

POSTGRES = tuple(made for made in SERVICES if made.service == "postgres")
pytestmark = pytest.mark.slow
LIMIT = {"metric": "latency_p99_s", "op": "<=", "limit": 0.05}


def probe(level: float, value_s: float | None, verdict: str, **other: Any) -> dict[str, Any]:
    slo = LIMIT | {"value": value_s, "met": None if value_s is None else value_s <= 0.05}
    about = {"look": 1, "attempt": 1, "times": 1, "slos": [slo], "requests": 1200, "over_saturated_at_s": None}
    return {"level": level, "verdict": verdict, "why": f"why {verdict}", **about, **other}


PROBES = [
    probe(10, 0.01, "pass"),
    probe(20, 0.02, "pass"),
    probe(40, 0.09, "fail", over_saturated_at_s=3.25),
    probe(28, None, "void"),
    probe(28, 0.04, "pass", attempt=2),
]


def rows_of(text: str) -> list[str]:
    """Return the rows of the table of probes."""
    return [line for line in text.splitlines() if re.search(r"\| why (pass|fail|void) \|", line)]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results in which every trial but those of the first treatment searched, and found one of three rates."""
    root = tmp_path_factory.mktemp("searched") / "results"
    folder = ScenarioFolder(root=make_results(root, services=POSTGRES, fail=(), suspect=()))
    plan = read(folder.plan, Plan)
    given = plan.trials[0].treatment
    for trial in plan.trials:
        if trial.treatment == given:
            continue
        found = 28 if trial.repetition == 1 else 20
        own, about = folder.trial(trial.id), {"setting": "rate_rps", "outcome": "converged", "found": found}
        about |= {"confirmed": True, "bracket": [found - 4, 40], "confidence": 0.93}
        write_json(own.search, {**about, "slos": [LIMIT], "probes": PROBES})
        metrics = read_json(own.metrics)
        write_json(own.metrics, metrics | {"search": about | {"probes": len(PROBES), "spent_s": 10.0}})
    write_summary(plan, folder)
    return folder.root


@pytest.fixture(scope="module")
def report(searched: Path) -> Path:
    """The folder of its report."""
    return write_report(searched, searched.parent / "reports").parent


@pytest.mark.covers("E-FR12", "E-FR27")
def test_the_report_draws_and_lists_every_probe_and_what_was_found(report):
    text = (report / "report.md").read_text()
    assert (report / "figures" / "postgres-search.svg").exists()
    assert "The largest rate_rps at which latency_p99_s" in text
    assert re.search(r"\| 24\.0 \| 20\.0 – 28\.0 \| 16\.0 – 40\.0 \(93 %\) \| converged \(2\) \| 2 / 2 \|", text)
    rows = rows_of(text)
    assert len(rows) == 5 * 2 * len(PROBES), "five treatments, two repetitions"
    assert any("| 90.0 | 3.25 | failed | why fail |" in row for row in rows)
    assert any("| – | – | not judged | why void |" in row for row in rows)
    assert sum("passed, found" in row for row in rows) == 10


def test_the_load_that_was_found_comes_first_in_terminal_and_tables_with_its_bracket(searched, report):
    lines = printed(read_json(searched / "summary.json"), 160).splitlines()
    assert lines[0].index("largest load") < lines[0].index("throughput")
    assert sum(bool(re.search(r"24\.0 requests/s\s+16\.0 – 40\.0 \(93 %\)", line)) for line in lines) == 5
    text = (report / "report.md").read_text()
    summary = text.split("## Summary")[1].split("\n## ")[0]
    assert "largest load (requests/s) | between | throughput" in summary
    assert len(re.findall(r"\| 24\.0 \| 16\.0 – 40\.0 \(93 %\) \|", summary)) == 5
    with (searched / "summary.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["search_found"]]
    assert {row["search_bracket_low"] for row in rows} == {"16", "24"}
    assert {(row["search_bracket_high"], row["search_confidence"]) for row in rows} == {("40", "0.93")}


def test_eighty_columns_show_what_a_search_found_its_bracket_and_the_verdict(searched):
    text = printed(read_json(searched / "summary.json"), 80)
    rows = [line for line in text.splitlines() if "16.0 – 40.0" in line]
    assert len(rows) == 5
    assert all(re.search(r" 24\.0 .*(VALID|SUSPECT)", row) for row in rows)


def test_passes_and_fails_have_marks_of_different_forms_and_the_limit_and_what_was_found_are_drawn(report):
    svg = (report / "figures" / "postgres-search.svg").read_text()
    for word in ("passed", "failed", "not judged", "limit", "found", "latency_p99 (ms)", "rate_rps (requests/s)"):
        assert f">{word}</text>" in svg, word
    forms = set(re.findall(r'<path id="(m[0-9a-f]+)" d="([^"]+)"', svg))
    assert len({form for _, form in forms}) >= 4, "three marks and a tick"


def test_a_damaged_search_json_spoils_no_report(searched, tmp_path):
    damaged = shutil.copytree(searched, tmp_path / "results")
    for path in list(damaged.glob("*--r1/search.json")):
        path.write_text("{")
    text = (write_report(damaged, tmp_path / "reports").parent / "report.md").read_text()
    assert len(rows_of(text)) == 5 * len(PROBES)


def test_a_workload_whose_loads_are_given_has_no_figure_of_a_search(tmp_path):
    results = make_results(tmp_path / "results", services=POSTGRES, fail=(), suspect=())
    report = write_report(results, tmp_path / "reports").parent
    assert not list((report / "figures").glob("*search*"))
    assert read_json(ScenarioFolder(root=results).summary)["treatments"][0]["search"] is None


@pytest.mark.parametrize(
    ("brackets", "median"),
    [
        ([[24, 40]], [24, 40]),
        ([[24, 40], [20, 50]], [20, 50]),
        ([[24, None], [20, 50], [8, 60]], [20, 60]),
        ([[None, None], [None, 50], [8, 60]], [None, 60]),
    ],
)
def test_the_bracket_of_repetitions_is_the_median_of_each_side_and_an_open_side_the_farthest(brackets, median):
    about = {"setting": "rate_rps", "found": 30.0, "outcome": "converged", "confirmed": True, "confidence": 0.9}
    searches = [SearchOutcome(**about, bracket=tuple(one)) for one in brackets]
    trials = [a_view(a_trial(repetition=r), a_metrics(search=search)) for r, search in enumerate(searches, 1)]
    found = found_by_search(trials)
    assert found is not None
    assert list(found.bracket) == median
