"""Searches through Snakemake: what they find, what a kill leaves, what is measured again and what is not."""

import csv
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from processes import until
from test_runs import parts_of_a_load

from seamark.trials.search.steps import HALVINGS, MOST_LOOKS

pytestmark = pytest.mark.e2e

SEARCH = {"setting": "rate_rps", "from": 20, "to": 160, "within": 0.5, "budget_s": 60}
"""On a server that bears all of it: probes at 20, 40, 80 and 160 requests/s, and the last one again."""
LOAD = {"pattern": "poisson", "concurrency": 8, "duration_s": 0.6, "warmup_s": 0, "slos": ["latency_mean_s <= 5"]}


def write(study, *, repetitions: int = 1, search: dict[str, Any] = SEARCH, **workload: Any) -> None:
    study.write(repetitions=repetitions, workload={**LOAD, "search": search, **workload})


def the_trial(study) -> Path:
    trials = sorted(path.parent for path in study.results.glob("*--r*/effective_config.yaml"))
    assert len(trials) == 1
    return trials[0]


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def measured(trial: Path) -> dict[str, int]:
    """Return how often each probe was measured, by its own log."""
    return {log.parent.name: len(log.read_text().splitlines()) for log in trial.glob("probes/*/log.jsonl")}


@pytest.mark.serial
@pytest.mark.covers("E-FR01", "E-FR26", "E-CLI02")
def test_a_search_finds_the_capacity_that_the_objective_implies_and_is_a_trial_like_any_other(study):
    """M/D/1 of 4 ms: a mean response of 10 ms belongs to a utilisation of 0.75, 187.5 requests/s."""
    write(
        study,
        repetitions=2,
        service="known",
        component="inference",
        queue="md1",
        ttft_ms=4,
        gen_tokens=1,
        concurrency=64,
        duration_s=2,
        warmup_s=0.3,
        slos=["latency_mean_s <= 0.01"],
        search={"setting": "rate_rps", "from": 100, "to": 1200, "within": 0.15, "budget_s": 18},
    )
    study.submit(code=0)
    summary = study.json("summary.json")
    (treatment,) = summary["treatments"]
    found = treatment["search"]
    assert found["setting"] == "rate_rps"
    assert 60 < found["found"]["min"] <= found["found"]["median"] <= found["found"]["max"] <= 235, (
        "165 to 205 on a machine of its own"
    )
    assert found["of"] == 2
    assert 0.8 < found["confidence"] < 1
    for metrics in map(read, study.results.glob("*--r*/metrics.json")):
        assert metrics["config"]["rate_rps"] == metrics["changed"]["rate_rps"] == metrics["search"]["found"]
        assert metrics["search"]["outcome"] in ("converged", "undecided", "budget_spent")
        assert metrics["offered_rps"] == pytest.approx(metrics["search"]["found"], rel=0.2)
    for trial in (path.parent for path in study.results.glob("*--r*/search.json")):
        search = read(trial / "search.json")
        levels = {probe["level"]: probe for probe in search["probes"]}
        low, high = search["bracket"]
        assert low is None or levels[low]["verdict"] == "pass"
        assert (low or 0) <= search["found"]
        assert high is None or (search["found"] < high and levels[high]["verdict"] == "fail")
        doubled = max(levels)
        assert levels[doubled]["verdict"] in ("fail", "likely_fail")
        assert doubled < 500
    report = (study.root / "reports" / "try" / "report.md").read_text()
    assert "Search" in report
    assert "found" in report
    assert list((study.root / "reports" / "try" / "figures").glob("*search*.svg"))
    with (study.results / "summary.csv").open(encoding="utf-8", newline="") as file:
        loads = sorted(float(row["search_found"]) for row in csv.DictReader(file))
    assert loads == [found["found"]["min"], found["found"]["max"]]


@pytest.mark.sweep
@pytest.mark.serial
@pytest.mark.covers("E-NFR04", "B2", "B9")
def test_after_kill_9_of_a_search_it_goes_on_and_measures_no_finished_probe_twice(study):
    write(study)
    run = study.start()
    search = until(lambda: next(study.results.glob("*--r1/search.json"), None))
    until(lambda: len(read(search)["probes"]) >= 2 and "worker:run" in parts_of_a_load(study))
    before = {probe["folder"] for probe in read(search)["probes"]}
    spent_s = read(search)["spent_s"]
    for process in parts_of_a_load(study)["rules_api:load"]:
        process.kill()
    run.wait(120)
    trial = search.parent
    stamps = {folder: (trial / folder / "samples.parquet").stat().st_mtime_ns for folder in before}
    assert study.measure().returncode == 0
    after = read(search)
    assert (after["outcome"], after["found"], after["confirmed"]) == ("all_pass", 160, True)
    levels = [probe["level"] for probe in after["probes"]]
    assert list(dict.fromkeys(levels)) == sorted(set(levels)) == [20, 40, 80, 160]
    assert levels.count(160) >= 2, "confirmed; more often where a probe was void for the machine's sake"
    assert set(measured(trial).values()) == {1}
    assert {folder: (trial / folder / "samples.parquet").stat().st_mtime_ns for folder in before} == stamps
    assert after["spent_s"] > spent_s
    assert read(trial / "metrics.json")["search"]["probes"] == len(levels)
    until(lambda: not study.processes())


@pytest.mark.sweep
@pytest.mark.covers("B9")
def test_samples_that_were_removed_are_those_of_the_best_probe_again_and_nothing_is_measured(study):
    write(study)
    assert study.submit().returncode == 0
    trial = the_trial(study)
    before = read(trial / "metrics.json")
    (trial / "samples.parquet").unlink()
    assert study.submit().returncode == 0
    assert set(measured(trial).values()) == {1}
    after = read(trial / "metrics.json")
    assert after["latency_ms"] == before["latency_ms"]
    assert after["config"]["rate_rps"] == 160
    study.submit(code=0)
    assert "Nothing to be done" in sorted((study.results / "logs").glob("submit-*"))[-1].read_text()
    shutil.rmtree(trial / "probes")
    (trial / "samples.parquet").unlink()
    assert study.submit().returncode == 0
    assert len(measured(trial)) == 5


@pytest.mark.sweep
@pytest.mark.covers("B12", "E-FR07")
def test_an_objective_that_no_load_meets_is_a_result_with_a_reason_and_retry_searches_anew(study):
    write(study, slos=["latency_s <= 1e-7"], search=SEARCH | {"from": 160, "to": 400})
    study.submit(code=1)
    trial = the_trial(study)
    load = read(trial / "load.json")
    assert (load["status"], load["category"]) == ("failed", "no_level_met_the_slo")
    assert "no rate_rps down to 10.24 meets the objectives" in load["reason"]
    search = read(trial / "search.json")
    assert (search["outcome"], search["found"]) == ("none_pass", None)
    probes = len(search["probes"])
    told = [probe["verdict"] for probe in search["probes"] if probe["verdict"] != "void"]  # void: a stalled machine
    assert 2 <= len(told) <= HALVINGS + MOST_LOOKS
    assert {*told} <= {"fail", "likely_fail"}
    assert study.json("summary.json")["failed"][0]["category"] == "no_level_met_the_slo"
    metrics = read(trial / "metrics.json")
    assert metrics["search"]["outcome"] == "none_pass"
    assert metrics["reasons"][0]["code"] == "no_level_met_the_slo"
    assert "no_level_met_the_slo" in (study.root / "reports" / "try" / "report.md").read_text()
    study.bench("retry", "-c", "config/scenarios/try.yaml")
    assert len(list((trial / "attempts" / "1" / "probes").iterdir())) == probes
    assert list(measured(trial).values()) == [1] * probes


@pytest.mark.sweep
@pytest.mark.covers("E-FR07", "E-NFR04")
def test_a_server_that_dies_under_a_probe_is_started_anew_and_the_search_goes_on(study):
    write(study, duration_s=1.0)
    run = study.start()
    search = until(lambda: next(study.results.glob("*--r1/search.json"), None))
    until(lambda: read(search)["running"] and "worker:run" in parts_of_a_load(study))
    endpoint = study.json(next(study.results.glob("deployments/*/endpoint.json")).relative_to(study.results))
    os.kill(endpoint["server_pid"], signal.SIGKILL)
    assert run.wait(120) == 0
    after = read(search)
    assert (after["outcome"], after["found"]) == ("all_pass", 160)
    void = [probe for probe in after["probes"] if probe["verdict"] == "void"]
    assert [probe["attempt"] for probe in void] == [1]
    assert "server_died" in void[0]["why"]


@pytest.mark.sweep
def test_status_says_which_probe_is_measured(study):
    write(study, duration_s=1.5)
    run = study.start()
    until(lambda: '"running"' in next((p.read_text() for p in study.results.glob("*--r1/search.json")), ""))
    said = json.loads(study.bench("status", "-c", "config/scenarios/try.yaml", "--json").stdout)
    (state,) = said["states"]
    assert state["state"] == "running"
    assert state["detail"].startswith("probe ")
    assert "requests/s" in state["detail"]
    assert study.bench("stop", "-c", "config/scenarios/try.yaml").returncode == 0
    run.wait(60)
