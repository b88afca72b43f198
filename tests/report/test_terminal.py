"""The table at the end of a run."""

import csv

import pytest
from make_results import SERVICES, make_results
from rich.console import Console

from seamark.model.results.summary import Summary
from seamark.report.terminal import summary_table
from seamark.storage.codec import decode
from seamark.storage.documents import read_json


def test_the_terminal_shows_each_treatment_and_never_a_withheld_number(tmp_path):
    results = make_results(tmp_path, services=SERVICES[1:2], fail=(), suspect=())
    summary = read_json(results / "summary.json")
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(summary_table(decode(summary, Summary), 160))
    lines = console.export_text().splitlines()
    rows = [line for line in lines if "transactions/s" in line]
    assert len(rows) == len(summary["treatments"])
    withheld = [t for t in summary["treatments"] if t["latency_ms"]["p99"] is None]
    assert len([row for row in rows if " – " in row.split("transactions/s")[1]]) == len(withheld)


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
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(summary_table(decode({"treatments": [treatment]}, Summary), 160))
    assert "[red]w" in (text := console.export_text())
    assert "[/bold]" in text


@pytest.mark.slow
def test_eighty_columns_still_show_the_verdict(tmp_path):
    results = make_results(tmp_path, services=SERVICES[:1], fail=(), suspect=(0,))
    summary = read_json(results / "summary.json")
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(summary_table(decode(summary, Summary), 80))
    text = console.export_text()
    assert text.count("VALID") + text.count("SUSPECT") == len(summary["treatments"])


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
    heads = ["makespan s", "err %", "p99 ms", "units/s", "p50 ms", "throughput", "min – max"]
    seen = []
    for width in range(60, 161):
        console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        console.print(summary_table(decode({"treatments": treatments}, Summary), width))
        text = console.export_text()
        assert text.count("SUSPECT") == 2, width
        assert text.count("123,500") == 2, width
        assert "…" not in text, width
        assert len(set(origins)) == 1 or "measured" in text.split("Simulated")[0], width
        seen.append([head for head in heads if head in text])
    assert seen[0] == ["makespan s"]
    assert ["makespan s", "err %", "p99 ms", "units/s"] in seen
    assert seen[-1] == [head for head in heads if head != "units/s"]


def test_whole_levels_that_only_one_service_has_stay_whole_in_summary_csv(tmp_path):
    results = make_results(tmp_path, services=SERVICES[2:4], repetitions=1, fail=(), suspect=(), telemetry=False)
    with (results / "summary.csv").open() as file:
        levels = {(row["service"], row["factor_object_bytes"]) for row in csv.DictReader(file)}
    assert levels == {("s3", "4096"), ("s3", "1048576"), ("faiss", "")}
