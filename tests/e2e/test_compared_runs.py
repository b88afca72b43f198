"""From `bench submit` to a verdict: the first sentence of the report and `bench compare` say the same."""

import json

import pytest


@pytest.mark.e2e
@pytest.mark.covers("E-FR29", "E-FR27")
def test_a_run_is_compared_by_command_and_report_and_records_its_start_of_the_server(study):
    study.write(repetitions=2, compare={"metrics": ["throughput"], "margin": 0.1})
    done = study.submit()
    assert done.returncode == 0, done.stdout + done.stderr
    starts = {json.loads(path.read_text())["server_start"] for path in study.results.glob("*--r*/load.json")}
    assert len(starts) == 1
    assert " at 20" in starts.pop()
    shown = study.bench("compare", "try")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith("concurrency 2 against 1: throughput ")
    assert "2 repetitions cannot reach p = 0.05" in shown.stdout
    assert study.bench("compare", "config/scenarios/try.yaml", "--fail-on", "inconclusive").returncode == 1
    [one] = json.loads(study.bench("compare", "results/try", "--format", "json").stdout)["comparisons"]
    [summed] = study.json("summary.json")["comparisons"]["comparisons"]
    assert summed == one
    page = (study.root / "reports" / "try" / "report.md").read_text()
    assert page.split("\n> ", 1)[1].startswith("No difference can be shown of concurrency 2 against 1")
    assert "## Comparisons" in page
    assert (study.root / "reports" / "try" / "figures" / "comparisons.png").stat().st_size > 1000
