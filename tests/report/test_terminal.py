"""The table at the end of a run."""

import csv
import re
from dataclasses import replace

import pytest
from make_results import SERVICES, make_results, printed

from seamark.model.results.summary import Summary, SummaryRow
from seamark.model.results.times import Distribution
from seamark.report.asked import figure_column, known_by
from seamark.report.tables.summary import workload_table
from seamark.report.terminal import verdicts_text
from seamark.storage.codec import decode
from seamark.storage.documents import read_json


@pytest.mark.slow
def test_the_terminal_shows_each_treatment_and_never_a_withheld_number(tmp_path):
    results = make_results(tmp_path, services=SERVICES[1:2], fail=(), suspect=())
    summary = read_json(results / "summary.json")
    lines = printed(summary, 160).splitlines()
    rows = [line for line in lines if "transactions/s" in line]
    assert len(rows) == len(summary["treatments"])
    withheld = [t for t in summary["treatments"] if t["latency_ms"]["p99"] is None]
    assert len([row for row in rows if re.search("[≥–]", row.split("transactions/s")[1])]) == len(withheld)


def test_markup_in_a_name_is_shown_and_not_obeyed(tmp_path):
    treatment = {
        "treatment": "t",
        "workload": "[red]w",
        "service": "x",
        "factors": {"model": "[/bold]"},
        "verdict": "VALID",
        "repetitions": 1,
        "planned": 1,
    }
    text = printed({"treatments": [treatment]}, 160)
    assert "[red]w" in text
    assert "[/bold]" in text


@pytest.mark.slow
@pytest.mark.parametrize("origins", [("simulated", "simulated"), ("simulated", "measured")])
def test_narrow_terminals_lose_what_matters_least_and_never_the_verdict(origins: tuple[str, str]) -> None:
    treatments = [
        {
            "treatment": f"t{at}",
            "workload": "workflows_of_many_models_on_one_machine",
            "service": "cluster",
            "component": "simulation",
            "origin": origin,
            "factors": {"policy": "longest-first-of-all", "cluster_gpus": at},
            "throughput": {"median": 0.000123456, "unit": "requests_per_s"},
            "quality": {"makespan_s": 123456.7},
            "verdict": "SUSPECT",
            "repetitions": 1,
            "planned": 1,
        }
        for at, origin in enumerate(origins)
    ]
    heads = ["makespan s", "err %", "p99 ms", "requests/s", "p50 ms", "throughput", "min – max"]
    seen = []
    for width in range(60, 161):
        text = printed({"treatments": treatments}, width)
        assert text.count("SUSPECT") == 2, width
        assert text.count("123,500") == 2, width
        assert "…" not in text, width
        assert len(set(origins)) == 1 or "measured" in text.split("Simulated")[0], width
        seen.append([head for head in heads if head in text])
        assert width < 80 or "simulated" in text.split("Simulated")[0], width
    assert seen[0] == ["makespan s"]
    assert ["makespan s", "err %", "p99 ms", "requests/s"] in seen
    assert seen[-1] == heads


def shown(width: int, *rows: dict[str, object], **more: object) -> str:
    treatments = [{"treatment": f"t{at}", "workload": "w", "service": "x", **row} for at, row in enumerate(rows)]
    return printed({"treatments": treatments, **more}, width)


def compared(*metrics: str) -> dict[str, object]:
    pairs = [{"workload": "w", "metric": name, "better": "lower", "base": {}, "new": {}} for name in metrics]
    return {"comparisons": {"comparisons": pairs}}


LOAD = {
    "throughput": {"median": 50.0, "unit": "tokens_per_s"},
    "latency_ms": {"p50": 7.0, "p99": 9.0},
    "ttft_ms": {"p99": 3.25},
    "quality": {"completion_mean_s": 62.9},
}


@pytest.mark.parametrize("width", [80, 110, 160])
def test_what_the_scenario_compares_stands_first(width: int) -> None:
    for metric, head in {
        "completion_mean_s": "completion mean s",
        "ttft_ms.p99": "ttft p99 ms",
        "latency_ms.p99": "p50 ms",
    }.items():
        first = shown(width, LOAD, **compared(metric)).splitlines()[0]
        assert first.index(head) < first.index("tokens/s" if width == 80 else "throughput"), metric


@pytest.mark.parametrize(
    ("metric", "heads"),
    [
        ("completion_mean_s", ["completion mean s", "throughput"]),
        ("ttft_ms.p99", ["ttft p99", "throughput"]),
        ("latency_ms.p50", ["p50", "p95", "p99", "throughput"]),
        ("throughput", ["throughput", "min – max", "p50"]),
    ],
)
def test_what_the_scenario_compares_stands_first_in_the_report_too(metric: str, heads: list[str]) -> None:
    row = {"treatment": "t", "workload": "w", "service": "x", "component": "storage", "repetitions": 1, **LOAD}
    summary = decode({"treatments": [row], **compared(metric)}, Summary)
    table = workload_table(summary.treatments, summary.comparisons)
    assert [one.name for one in table.columns][: len(heads)] == heads


@pytest.mark.covers("E-FR29")
@pytest.mark.parametrize(
    ("metric", "better", "places"),
    [("throughput", "higher", ["worst", "best", "median"]), ("latency_ms.p50", "lower", ["best", "worst", "median"])],
)
def test_of_services_under_one_load_the_best_the_median_and_the_worst_are_marked(
    metric: str, better: str, places: list[str]
) -> None:
    figures = {"a": (10.0, 1.0), "b": (30.0, 3.0), "c": (20.0, 2.0)}
    rows = [
        {
            "treatment": f"{name}{users}",
            "workload": "w",
            "service": name,
            "repetitions": 1,
            "verdict": "VALID",
            "factors": {"service": name, "concurrency": users},
            "throughput": {"median": users * rate, "unit": "items_per_s"},
            "latency_ms": {"p50": users * time_ms},
        }
        for name, (rate, time_ms) in figures.items()
        for users in (1, 100)
    ]
    pair = {"workload": "w", "factor": "service", "metric": metric, "better": better, "base": {}, "new": {}}
    summary = decode({"treatments": rows, "comparisons": {"comparisons": [pair]}}, Summary)
    table = workload_table(summary.treatments, summary.comparisons)
    [place] = [found for found in table.columns if found.name == "place"]
    assert [cell.text for cell in place.cells] == [mark for mark in places for _ in (1, 100)]
    [of_one] = [
        found
        for found in workload_table(summary.treatments[:2], summary.comparisons).columns
        if found.name == "place"
    ]
    assert [cell.text for cell in of_one.cells] == ["", ""]


def test_without_a_comparison_the_figure_that_the_load_leaves_open_stands_first() -> None:
    for pattern, first, second in (("poisson", "p99 ms", "tokens/s"), ("closed", "tokens/s", "p50 ms")):
        head = shown(80, {**LOAD, "config": {"pattern": pattern}}).splitlines()[0]
        assert head.index(first) < head.index(second), pattern


def test_a_treatment_is_known_by_one_metric_in_table_and_headline() -> None:
    open_loop = SummaryRow(treatment="a", workload="w", service="known", config={"pattern": "poisson"})
    assert known_by(open_loop) == "latency_ms.p50"
    assert known_by(replace(open_loop, config={})) == "throughput"
    assert known_by(replace(open_loop, component="program")) == "run_time_s"
    assert known_by(replace(open_loop, quality={"score": 0.5, "makespan_s": 3.0})) == "score"


def test_what_is_compared_is_in_seconds_above_ten() -> None:
    slow = SummaryRow(treatment="a", workload="w", service="known", ttft_ms=Distribution(p50=92_530.0))
    assert figure_column([slow, replace(slow, ttft_ms=None)], "ttft_ms.p50") == ("ttft p50", "s", ["92.5", "–"])


def test_two_units_are_never_under_one_head() -> None:
    of_requests = {"throughput": {"median": 20.0, "unit": "requests_per_s"}}
    text = shown(80, LOAD, of_requests)
    assert [unit for unit in ("tokens/s", "requests/s") if unit in text.splitlines()[0]] == []
    assert re.search(r"w, tokens/s .* 50\.0 ", text)
    assert re.search(r"w, requests/s .* 20\.0 ", text)


def test_the_reasons_of_a_run_are_counted_in_a_line() -> None:
    def reason(code: str, count: int, severity: str = "suspect") -> dict[str, object]:
        return {"code": code, "count": count, "severity": severity, "text": "", "remedy": ""}

    rows = [
        {"treatment": "a", "workload": "w", "service": "x", "reasons": [reason("busy_elsewhere", 20)]},
        {
            "treatment": "b",
            "workload": "w",
            "service": "x",
            "reasons": [reason("steady", 12), reason("busy_elsewhere", 8), reason("said", 3, "note")],
        },
    ]
    summary = decode({"treatments": rows, "verdicts": {"VALID": 2, "SUSPECT": 28}}, Summary)
    assert verdicts_text(summary) == "28 SUSPECT: busy_elsewhere 28, steady 12"
    assert verdicts_text(decode({"treatments": rows, "verdicts": {"VALID": 2}}, Summary)) is None


@pytest.mark.slow
def test_whole_levels_that_only_one_service_has_stay_whole_in_summary_csv(tmp_path):
    results = make_results(tmp_path, services=SERVICES[2:4], repetitions=1, fail=(), suspect=(), telemetry=False)
    with (results / "summary.csv").open() as file:
        levels = {(row["service"], row["factor_object_bytes"]) for row in csv.DictReader(file)}
    assert levels == {("s3", "4096"), ("s3", "1048576"), ("faiss", "")}
