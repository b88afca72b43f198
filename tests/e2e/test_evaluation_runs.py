"""Evaluations on the attention server: answers are those that positions decide; a killed run asks the rest alone."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from processes import until
from study_folder import StudyFolder

from seamark.planning.study import Study
from seamark_evaluate.attention.known_answers import expected_density, expected_right
from seamark_evaluate.attention.method import read_method
from seamark_evaluate.drivers.questions import asked_of
from seamark_evaluate.tasks.benchmark import task_of_document
from seamark_evaluate.tasks.scoring.table import score

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

METHODS = ["dense", "streaming", "sink_local", "oracle_top_k"]
WORDS = 300


def write(study: StudyFolder, **workload: Any) -> None:
    settings = {
        "component": "evaluation",
        "service": "attention",
        "model": "known_reader",
        "max_model_len": 4096,
        "threads": 1,
        "task": "needles",
        "length_words": WORDS,
        **workload,
    }
    document = {"scenario": "try", "workload": settings}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))


def answers(folder: Path) -> Mapping[str, Mapping[str, Any]]:
    return {row["id"]: row for row in pq.read_table(folder / "answers.parquet").drop(["reply"]).to_pylist()}


@pytest.mark.covers("B1", "B9", "B11", "B13")
def test_every_answer_is_the_one_that_positions_decide_and_a_folder_that_is_removed_is_asked_again_alone(
    study: StudyFolder,
) -> None:
    write(study, method=METHODS, max_requests=20)
    study.measure(code=0)
    plan = Study.at(study.root, scenario="config/scenarios/try.yaml").plan
    assert [trial.repetition for trial in plan.trials] == [1] * 4, "likeliest tokens repeat themselves"
    for trial in plan.trials:
        method = read_method(json.loads(str(trial.settings["method"])), "method")
        asked = asked_of(trial.settings)
        rows = sorted(answers(study.results / trial.id).values(), key=lambda row: int(row["item"]))
        assert len(rows) == 20
        metrics = study.json(f"{trial.id}/metrics.json")
        assert metrics["quality"]["score"] == sum(row["score"] for row in rows) / 20
        if method.is_fixed:
            wanted = [float(expected_right(each.facts, method, "question")) for each in asked]
            assert [row["score"] for row in rows] == wanted
            assert metrics["quality"]["density"] == pytest.approx(expected_density(WORDS + 1, method), abs=1e-9)
        assert metrics["ttft_ms"]["p50"] > 0
        assert metrics["quality"]["context_reused"] == pytest.approx(16 / 20), "four contexts of five questions"
    by_name = {json.loads(str(trial.settings["method"]))["name"]: trial for trial in plan.trials}
    assert study.json(f"{by_name['dense'].id}/metrics.json")["quality"]["score"] == 1
    assert study.json(f"{by_name['oracle_top_k'].id}/metrics.json")["quality"]["score"] == 1
    assert 0 < study.json(f"{by_name['streaming'].id}/metrics.json")["quality"]["score"] < 1

    shutil.rmtree(study.results / by_name["streaming"].id)
    before = {path.parent.name: path.stat().st_mtime_ns for path in study.results.glob("*/load.json")}
    study.submit(code=0)
    after = {path.parent.name: path.stat().st_mtime_ns for path in study.results.glob("*/load.json")}
    assert {name for name, at in after.items() if before.get(name) != at} == {by_name["streaming"].id}

    text = (study.root / "reports/try/report.md").read_text()
    assert "## Quality against cost" in text
    assert "Device-hours for quality" in text
    exported = study.ask("export", "evaluation", "-c", "config/scenarios/try.yaml", "-o", "out", code=0)
    assert "4 tasks of 4 trials" in exported.stdout
    assert json.loads((study.root / "out/known_reader/dense/needles/metrics.json").read_text())["questions"] == 20
    assert len((study.root / "out/known_reader/dense/needles/micro_metrics.jsonl").read_text().splitlines()) == 20
    [summary] = (study.root / "out").glob("execution_*/execution_summary.json")
    assert json.loads(summary.read_text())["scores"]["known_reader/dense/needles"] == 1
    study.ask("export", "evaluation", "-c", "config/scenarios/try.yaml", "-o", "lm", "--format", "harness", code=0)
    results = json.loads((study.root / "lm/known_reader/dense/results.json").read_text())
    assert results["results"]["needles"]["score,none"] == 1
    samples = (study.root / "lm/known_reader/streaming/samples_needles.jsonl").read_text().splitlines()
    assert len(samples) == 20


def killed_in_a_task(study: StudyFolder, victim: str, *options: str) -> None:
    """Start a run, and kill a part of it with SIGKILL while it asks questions of a given length."""

    def replies() -> int:
        return sum(
            path.stat().st_size for path in study.results.glob("*length_words*--r1/.sessions/*/worker-*.replies")
        )

    run = study.start(*options)
    until(lambda: replies() > 30_000, within_s=180)
    if victim == "run":
        [snakemake] = [each for each in psutil.Process(run.pid).children() if "snakemake" in " ".join(each.cmdline())]
        for process in (snakemake, run):
            process.kill()
    elif victim == "server":
        [server] = study.processes(lambda each: "seamark_evaluate.server.serve" in each.cmdline())
        server.kill()
    else:
        lanes = study.processes(lambda each: each.name() == "rules_api:lane")
        [lane] = [each for each in lanes if any("length_words" in " ".join(own.cmdline()) for own in each.children())]
        lane.kill()
    run.wait()
    until(lambda: not study.processes(), within_s=60)


@pytest.mark.sweep
@pytest.mark.covers("B2", "B9")
@pytest.mark.parametrize("victim", ["run", "server", "lane"])
def test_after_kill_9_in_a_task_the_questions_that_are_left_alone_are_asked(study: StudyFolder, victim: str) -> None:
    lanes = ("--cpus", "0,1", "--parallel", "2") if victim == "lane" else ()
    write(study, max_requests=1000, measure_error_ratio=1.0, method="sink_local")
    if victim == "lane":  # two servers of the model, one for each of two tasks
        document = json.loads((study.root / "config/scenarios/try.yaml").read_text())
        short = {**document["workload"], "name": "short", "task": "mock_benchmark", "length_words": None}
        document |= {"replicas": 2, "workloads": [{**document.pop("workload"), "name": "long"}, short]}
        (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))
    killed_in_a_task(study, victim, *lanes)
    verb = "retry" if victim == "server" else "submit"
    study.bench(verb, "-c", "config/scenarios/try.yaml", *lanes, code=0)
    [trial] = [each for each in study.trials() if "length_words" in each.name]
    load = study.json(f"{trial.name}/load.json")
    first, second = load["sessions"]
    assert first["items"] > 0
    assert first["items"] + second["items"] == 1000
    rows = sorted(answers(trial).values(), key=lambda row: int(row["item"]))
    assert len(rows) == 1000, "no question is asked twice"
    assert study.json(f"{trial.name}/answers.json")["answers"] == 1000
    planned = Study.at(study.root, scenario="config/scenarios/try.yaml").trial("try", trial.name)
    method = read_method(json.loads(str(planned.settings["method"])), "method")
    undisturbed = [float(expected_right(each.facts, method, "question")) for each in asked_of(planned.settings)]
    assert [row["score"] for row in rows] == undisturbed


@pytest.mark.sweep
@pytest.mark.covers("B2", "B12")
def test_a_model_that_is_not_there_fails_with_its_category_and_leaves_the_others_alone(study: StudyFolder) -> None:
    write(study, model=["known_reader", "no/such-model"], max_requests=5)
    study.measure(code=1)
    loads = [study.json(f"{trial.name}/load.json") for trial in study.trials()]
    [failed] = [each for each in loads if each["status"] != "ok"]
    assert failed["category"] == "model_not_found"
    assert "no/such-model" in failed["reason"]
    assert len(loads) == 2


@pytest.mark.serial  # beside other tests and a busy machine its server takes longer to start than it may
@pytest.mark.covers("B13", "B17")
def test_vllm_is_asked_tasks_and_has_scores_and_times_of_the_same_answers(study: StudyFolder) -> None:
    asked = {"component": "evaluation", "service": "vllm_questions", "model": "tiny", "max_requests": 10}
    asked |= {"max_model_len": 1024, "max_num_seqs": 4, "kv_cache_bytes": 1 << 27, "enforce_eager": True}
    document = {
        "scenario": "try",
        "workloads": [
            {**asked, "name": "short", "task": "mock_benchmark"},
            {**asked, "name": "lookup", "task": "needles", "length_words": 40},
        ],
    }
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))
    study.bench("submit", "-c", "config/scenarios/try.yaml", timeout=1200, code=0)  # its first start is slow
    plan = Study.at(study.root, scenario="config/scenarios/try.yaml").plan
    assert len(plan.deployments) == 1, "both tasks on one server"
    for trial in plan.trials:
        rows = sorted(answers(study.results / trial.id).values(), key=lambda row: int(row["item"]))
        subset = task_of_document(json.loads(str(trial.settings["task"])))
        questions = asked_of(trial.settings)
        assert len(rows) == len(questions) > 4
        assert all(row["answer"] for row in rows), "random weights say something"
        right = [score(subset, each, row["answer"])["score"] for each, row in zip(questions, rows, strict=True)]
        assert [row["score"] for row in rows] == right
        metrics = study.json(f"{trial.id}/metrics.json")
        assert metrics["quality"]["score"] == pytest.approx(sum(right) / len(right))
        assert metrics["ttft_ms"]["mean"] > 0
        assert all(0 < row["ttft_s"] <= row["latency_s"] for row in rows)
    [short] = [trial for trial in plan.trials if trial.group == "short"]
    assert study.json(f"{short.id}/metrics.json")["tpot_ms"]["mean"] > 0
