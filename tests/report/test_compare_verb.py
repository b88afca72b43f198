"""`bench compare` on results made by a model: its lines, its documents, its exit codes, and wrong uses in a line."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from in_process import run, said_by
from make_results import Made, make_results

from seamark.model.scenario import Comparing
from seamark.model.trial import Plan
from seamark.storage.documents import read, write

pytestmark = pytest.mark.slow

WRONG = yaml.safe_load(Path(__file__).with_name("wrong_comparisons.yaml").read_text())
POSTGRES = Made(
    service="postgres",
    component="storage",
    unit="transaction",
    service_ms=40.0,
    cap_rps=700,
    factors={"concurrency": (1, 4)},
)
RESULTS = {
    "made": (POSTGRES,),
    "again": (POSTGRES,),
    "other": (replace(POSTGRES, unit="object"),),
    "apart": (replace(POSTGRES, factors={"concurrency": (2, 8)}),),
    "one": (replace(POSTGRES, factors={}),),
    "two": (replace(POSTGRES, factors={"concurrency": (1, 4), "batch": (1, 8)}),),
    "files": (replace(POSTGRES, service="fileio"), replace(POSTGRES, service="s3")),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("compared")
    (root / "config").mkdir()
    for seed, (name, services) in enumerate(RESULTS.items(), 5):
        options = {"fail": (), "suspect": (), "telemetry": False, "seed": seed, "repetitions": 5}
        make_results(root / "results", scenario=name, services=services, **options)
    shutil.copytree(root / "results" / "one", root / "results" / "damaged")
    (root / "results" / "damaged" / "plan.json").write_text("{")
    return root


@pytest.fixture
def here(results, monkeypatch):
    monkeypatch.chdir(results)
    return results


@pytest.mark.covers("E-FR29")
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: " ".join(wrong["words"]) or "nothing")
def test_a_wrong_use_is_a_line_with_exit_code_2(wrong, here):
    said = said_by(["compare", *wrong["words"]], code=2)
    assert wrong["says"] in said
    assert "Traceback" not in said


@pytest.mark.covers("E-FR29")
def test_levels_are_compared_with_the_first_in_a_line_for_each_metric(here):
    said = said_by(["compare", "made", "--metric", "throughput", "--metric", "latency_ms.p50"])
    first, second = said.splitlines()[:2]
    assert first.startswith("concurrency 4 against 1: throughput ")
    assert first.endswith("p = 0.016 (Holm), better")
    assert second.startswith("concurrency 4 against 1: latency_ms.p50 ")
    assert "a family of 2 comparisons" in said
    assert "(5 a side)" in said
    assert "96.8 % attained confidence" in said


def test_another_baseline_turns_the_comparison_round(here):
    said = run(["compare", "made", "--metric", "throughput", "--baseline", "concurrency=4"])[1]
    assert said.startswith("concurrency 1 against 4: throughput 0.")
    assert "worse" in said.splitlines()[0]
    assert run(["compare", "made", "--baseline", "4"])[1].startswith("concurrency 1 against 4")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--baseline", "4", "--fail-on", "worse"], 1),
        (["--fail-on", "worse"], 0),
        (["--fail-on", "worse", "--fail-on", "inconclusive"], 0),
    ],
)
def test_the_exit_code_is_1_for_a_verdict_that_is_named(here, words, code):
    assert run(["compare", "made", "--metric", "throughput", *words])[0] == code


@pytest.mark.covers("E-FR29")
def test_the_document_has_a_version_and_every_number_of_the_lines(here):
    code, said = run(["compare", "made", "--format", "json"])
    document = json.loads(said)
    assert (code, document["schema_version"], document["scenario"]) == (0, 1, "made")
    one = document["comparisons"][0]
    assert (one["metric"], one["verdict"], one["in_family"]) == ("throughput", "better", True)
    assert one["p"] == pytest.approx(2 / 252)
    assert one["ratio"]["low"] < one["ratio"]["value"] < one["ratio"]["high"]
    others = document["comparisons"][1:]
    assert {(each["p"], each["verdict"], each["in_family"]) for each in others} == {(None, None, False)}


def test_markdown_is_a_table_with_as_many_cells_in_each_row(here):
    said = run(["compare", "made", "--format", "markdown"])[1]
    rows = [line for line in said.splitlines() if line.startswith("|")]
    assert len(rows) == 5
    assert {row.count("|") for row in rows} == {8}
    assert "**better**" in rows[2]


@pytest.mark.covers("E-FR29")
def test_two_results_have_an_interval_within_each_and_a_stated_assumption_but_no_p(here):
    words = ["compare", "results/made", "results/again", "--metric", "throughput"]
    said = said_by(words)
    assert said.count("within each result), margin widened to 1.21 x") == 2
    assert said.count("(SD between results 5 %, assumed), inconclusive [1]") == 2
    assert "p =" not in said
    assert run([*words, "--fail-on", "inconclusive"])[0] == 1
    assert "1.08 x or its inverse (SD between results 1 %, assumed)" in run([*words, "--between", "1%"])[1]


def changed(folder, factor):
    """Multiply the throughput of all trials of a result."""
    for path in folder.glob("*--r*/metrics.json"):
        document = json.loads(path.read_text())
        document["throughput"]["value"] *= factor
        path.write_text(json.dumps(document))


@pytest.mark.covers("E-FR29")
def test_the_gate_of_two_results_knows_the_spread_of_the_history(here, tmp_path):
    """Runs that differ by 3 % from night to night: 0.8 x is worse, though an assumed 10 % could not tell."""
    results = tmp_path / "results"
    for night, factor in enumerate((1.0, 0.97, 1.03, 0.98, 1.02, 1.04)):
        shutil.copytree(here / "results" / "made", folder := results / "history" / "made" / f"n{night}")
        changed(folder, factor)
        for path in folder.glob("*/load.json"):
            document = json.loads(path.read_text())
            document["started_at"] = f"2026-01-0{night + 1}T00:00:00+00:00"
            path.write_text(json.dumps(document))
    shutil.copytree(here / "results" / "again", results / "made")
    changed(results / "made", 0.78)
    os.chdir(tmp_path)
    words = ["compare", "results/history/made/n0", "results/made", "--metric", "throughput", "--fail-on", "worse"]
    said = said_by(words, code=1)
    assert "of 6 results), worse" in said
    shutil.rmtree(results / "history" / "made" / "n1")
    shutil.rmtree(results / "history" / "made" / "n2")
    code, said = run([*words, "--between", "10%"])
    assert (code, "(SD between results 10 %, assumed), inconclusive" in said) == (0, True), said


def test_rows_of_two_results_stand_in_the_order_of_levels_after_a_service_that_differs(here, tmp_path):
    rising = replace(POSTGRES, factors={"concurrency": (1, 2, 4, 16)})
    options = {"fail": (), "suspect": (), "telemetry": False, "repetitions": 3}
    for name, service in (("base", rising), ("new", replace(rising, service="fileio"))):
        make_results(tmp_path, scenario=name, services=(service,), **options)
        path = tmp_path / name / "plan.json"
        plan = read(path, Plan)
        write(path, replace(plan, trials=plan.trials[::-1]))
    lines = run(["compare", str(tmp_path / "base"), str(tmp_path / "new"), "--metric", "throughput"])[1].splitlines()
    assert lines[0] == "Other service: service postgres -> fileio"
    levels = [line.split("(concurrency ")[1].split(")")[0] for line in lines[1:5]]
    assert levels == ["1", "2", "4", "16"]


def test_two_results_of_other_machines_are_told_apart_by_their_facts(here, tmp_path):
    copy = tmp_path / "moved"
    shutil.copytree(here / "results" / "again", copy)
    for meta in copy.glob("*/meta.json"):
        document = json.loads(meta.read_text())
        document["machine"]["kernel"] = "6.8.0"
        meta.write_text(json.dumps(document))
    said = run(["compare", "results/made", str(copy)])[1]
    assert "Environment: kernel 6.1.0-18-amd64 -> 6.8.0" in said
    assert run(["compare", "results/made", "results/again"])[1].count("Environment: no recorded difference") == 1


def test_two_repetitions_are_a_result_that_names_the_number_that_is_enough(here, tmp_path):
    options = {"fail": (), "suspect": (), "telemetry": False}
    folder = make_results(tmp_path, scenario="few", services=(POSTGRES,), repetitions=2, **options)
    said = said_by(["compare", str(folder), "--metric", "throughput"])
    assert "inconclusive [1]" in said
    assert "too few" in said
    assert "`repetitions: 4`" in said


@pytest.mark.covers("E-FR29")
def test_after_a_run_that_was_stopped_what_is_missing_is_derived_and_what_is_there_compared(here, tmp_path):
    shutil.copytree(here / "results" / "made", tmp_path / "made")
    for metrics in tmp_path.glob("made/*/metrics.json"):
        metrics.unlink()
    shutil.rmtree(sorted(tmp_path.glob("made/*--r5"))[0])
    said = said_by(["compare", str(tmp_path / "made"), "--metric", "throughput"])
    assert said.startswith("concurrency 4 against 1: throughput ")
    assert "1 of 10 trials" in said


def test_a_family_of_factors_is_none_between_two_results(here, tmp_path):
    """As of config/scenarios/compare_postgres.yaml, which names its two settings: between results nothing varies."""
    for name in ("made", "again"):
        shutil.copytree(here / "results" / name, tmp_path / name)
        path = tmp_path / name / "plan.json"
        write(path, replace(read(path, Plan), compare=Comparing(family=("concurrency",))))
    said = said_by(["compare", str(tmp_path / "made"), str(tmp_path / "again"), "--metric", "throughput"])
    assert said.count("inconclusive [1]") == 2
