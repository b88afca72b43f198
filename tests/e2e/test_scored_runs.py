"""Runs whose replies are scored: a mended judge scores them again without a load; one that fails loses nothing."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from study_folder import StudyFolder

pytestmark = pytest.mark.e2e

ITEMS = 500
RECIPE = """\
extends: known.yaml
name: items
load: finite
limit_s: 120
judge: my_judge:score
qualities:
  answered: {range: [0, 1], floor: 0, help: Whether the reply is whole.}
  size: {unit: bytes, better: lower}
settings:
  items: {type: int, role: workload, default: 500, minimum: 1, help: Number of prompts.}
"""
JUDGE = """\
from seamark.load.driver import Judged

def score(target, items, replies):
    whole = [float(b"[DONE]" in reply) for reply in replies]
    return Judged(
        scores={"answered": whole, "size": [len(reply) for reply in replies]},
        clusters=[f"document {item // 5}" for item in items],
    )
"""


def a_study(study: StudyFolder, judge: str = JUDGE, recipe: str = RECIPE, **workload: object) -> None:
    (study.root / "my_judge.py").write_text(judge)
    (study.root / "config/services/items.yaml").write_text(recipe)
    settings = {"service": "items", "ttft_ms": 1, "gen_tokens": 4, "concurrency": 8, **workload}
    document = {"scenario": "try", "repetitions": 1, "workload": settings}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))


@pytest.mark.sweep
def test_a_mended_judge_scores_500_answers_again_with_no_load(study: StudyFolder) -> None:
    a_study(study, slos=["answered >= 0.9"])
    study.measure(code=0)
    [trial] = study.trials()
    metrics = study.json(f"{trial.name}/metrics.json")
    assert metrics["quality"]["answered"] == 1.0
    assert [slo["met"] for slo in metrics["slos"]] == [True]
    first = metrics["quality_version"]
    record = study.json(f"{trial.name}/answers.json")
    assert (record["status"], record["answers"], record["clusters"]) == ("ok", ITEMS, 100)
    answers = pq.read_table(trial / "answers.parquet")
    assert answers["item"].to_pylist() == list(range(ITEMS))
    assert set(answers["units"].to_pylist()) == {4}
    loads = (trial / "load.json").read_bytes()

    (study.root / "my_judge.py").write_text(JUDGE.replace('float(b"[DONE]" in reply)', "float(len(reply) % 2)"))
    study.measure(code=0)
    assert (trial / "load.json").read_bytes() == loads
    assert max(study.measurements().values()) == 1
    metrics = study.json(f"{trial.name}/metrics.json")
    assert metrics["quality_version"] != first
    odd = [len(reply) % 2 for reply in answers["reply"].to_pylist()]
    assert metrics["quality"]["answered"] == pytest.approx(sum(odd) / ITEMS)
    assert study.submit().returncode == 0
    assert "answered" in (study.root / "reports/try/report.md").read_text()


@pytest.mark.sweep
def test_a_judge_that_fails_leaves_the_figures_and_says_so(study: StudyFolder) -> None:
    a_study(study, judge="def score(target, items, replies):\n    raise RuntimeError('no references')\n", items=40)
    study.submit(code=0)
    [trial] = study.trials()
    metrics = study.json(f"{trial.name}/metrics.json")
    assert metrics["latency_ms"]["p50"] > 0
    assert metrics["verdict"] == "SUSPECT"
    [reason] = [reason for reason in metrics["reasons"] if reason["code"] == "answers_not_scored"]
    assert "my_judge:score failed: RuntimeError: no references" in reason["text"]
    (study.root / "my_judge.py").write_text(JUDGE)
    study.bench("collect", "-c", "config/scenarios/try.yaml", code=0)
    assert study.json(f"{trial.name}/metrics.json")["quality"]["answered"] == 1.0
    assert max(study.measurements().values()) == 1


@pytest.mark.sweep
def test_replies_of_a_party_are_scored_and_a_mended_judge_scores_them_again(study: StudyFolder) -> None:
    (study.root / "my_judge.py").write_text(JUDGE)
    (study.root / "config/services/items.yaml").write_text(RECIPE)
    asked = {"service": "items", "ttft_ms": 1, "gen_tokens": 4, "items": 40, "limit_s": 60}
    parties = {"asked": asked, "other": {"service": "known", "ttft_ms": 1, "duration_s": 1, "warmup_s": 0}}
    document = {"scenario": "try", "repetitions": 1, "workload": {"parties": parties, "sets": [["asked", "other"]]}}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(document))
    study.measure(code=0)
    [trial] = study.trials()
    asked_at = f"{trial.name}/parties/asked"
    assert study.json(f"{asked_at}/answers.json")["answers"] == 40
    assert study.json(f"{asked_at}/metrics.json")["quality"]["answered"] == 1.0
    assert not (trial / "parties/other/answers.json").exists()
    assert study.json(f"{trial.name}/answers.json")["answers"] == 40
    loads = (trial / "parties/asked/load.json").read_bytes()
    (study.root / "my_judge.py").write_text(JUDGE.replace('float(b"[DONE]" in reply)', "0.5"))
    study.measure(code=0)
    assert (trial / "parties/asked/load.json").read_bytes() == loads
    assert study.json(f"{asked_at}/metrics.json")["quality"]["answered"] == 0.5


TASKS = """\
extends: known.yaml
name: asked
driver: seamark_evaluate.drivers.questions:Questions
judge: seamark_evaluate.drivers.questions:judge
load: finite
limit_s: 120
qualities:
  score: {range: [0, 1], better: higher, help: Score of an answer.}
settings:
  task: {type: structure, role: workload, required: true, help: A benchmark.}
  task_seed: {type: int, role: workload, default: 0, help: Seed.}
  length_words: {type: int, role: workload, default: null, help: Length.}
  max_requests: {type: int, role: workload, default: null, help: Questions.}
  max_new_tokens: {type: int, role: workload, default: null, help: Longest answer.}
"""
SCORER = """\
def score(answer, question):
    return {"score": float(question.references[0] in answer)}
"""


OTHER = """\
name: {name}
summary: Data that are not there.
licence: own
references: []
source: {{file: {file}}}
columns: {{context: null}}
template: "{{question}}"
scorer: exact_word
"""


def write_own_task(study: StudyFolder, *others: str, **more: object) -> None:
    """Write a scenario that asks a task of the user's own, whose data are in rows.jsonl, and `others`."""
    (study.root / "config/benchmarks").mkdir(parents=True, exist_ok=True)
    (study.root / "config/services/asked.yaml").write_text(TASKS)
    benchmark = {"name": "own", "summary": "Own.", "licence": "own", "references": [], "template": "{question}"}
    source = {"source": {"file": str(study.root / "rows.jsonl")}, "columns": {"context": None}}
    document = {**benchmark, **source, "scorer": "own_scorer:score"}
    (study.root / "config/benchmarks/own.yaml").write_text(json.dumps(document))
    workload = {"service": "asked", "ttft_ms": 1, "task": ["own", *others], "max_new_tokens": 4}
    scenario = {"scenario": "try", "repetitions": 1, **more, "workload": workload}
    (study.root / "config/scenarios/try.yaml").write_text(json.dumps(scenario))


def asked_rows(study: StudyFolder, first: str) -> None:
    rows = [{"question": first, "references": ["t\u00f8ken"]}, {"question": "Where?", "references": ["Oslo"]}]
    (study.root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.sweep
@pytest.mark.covers("B13")
def test_a_changed_scorer_of_a_task_scores_again_with_no_load_and_never_against_changed_questions(
    study: StudyFolder,
) -> None:
    write_own_task(study)
    (study.root / "own_scorer.py").write_text(SCORER.replace(" in answer", " in nothing_of_that_name"))
    asked_rows(study, "What?")
    study.measure(code=0)
    [trial] = study.trials()
    assert study.json(f"{trial.name}/answers.json")["status"] == "failed"

    asked_rows(study, "Which?")
    (study.root / "own_scorer.py").write_text(SCORER)
    study.measure()
    record = study.json(f"{trial.name}/answers.json")
    assert record["status"] == "failed", "replies were never scored, and are to other questions"
    assert "1 of 2 replies are to questions that are others by now" in record["reason"]

    asked_rows(study, "What?")
    (trial / "answers.json").unlink()
    assert study.bench("collect", "-c", "config/scenarios/try.yaml").returncode == 0
    assert study.json(f"{trial.name}/metrics.json")["quality"]["score"] == 0.5, "every reply is of the word token"
    loads = (trial / "load.json").read_bytes()

    (study.root / "own_scorer.py").write_text(SCORER.replace(" in answer", " not in answer or True"))
    study.measure(code=0)
    assert study.json(f"{trial.name}/metrics.json")["quality"]["score"] == 1.0

    asked_rows(study, "Which?")
    (study.root / "own_scorer.py").write_text(SCORER)
    study.measure()
    assert study.json(f"{trial.name}/answers.json")["status"] == "failed"
    metrics = study.json(f"{trial.name}/metrics.json")
    assert "score" not in metrics.get("quality", {})
    [reason] = [reason for reason in metrics["reasons"] if reason["code"] == "answers_not_scored"]
    assert "1 of 2 replies are to questions that are others by now, item 0 first" in reason["text"]

    asked_rows(study, "What?")
    (trial / "answers.json").unlink()
    study.bench("collect", "-c", "config/scenarios/try.yaml", code=0)
    assert study.json(f"{trial.name}/metrics.json")["quality"]["score"] == 0.5
    assert (trial / "load.json").read_bytes() == loads
    assert max(study.measurements().values()) == 1


@pytest.mark.sweep
@pytest.mark.covers("B13")
def test_a_corrected_reference_scores_again_with_no_load_at_the_next_submit(study: StudyFolder) -> None:
    write_own_task(study)
    (study.root / "own_scorer.py").write_text(SCORER)
    asked_rows(study, "What?")
    assert study.measure().returncode == 0
    [trial] = study.trials()
    assert study.json(f"{trial.name}/metrics.json")["quality"]["score"] == 0.5, "every reply is of the word token"
    before = study.measurements()
    rows = (study.root / "rows.jsonl").read_text()
    (study.root / "rows.jsonl").write_text(rows.replace("Oslo", "t\u00f8ken"))
    assert study.measure().returncode == 0
    assert study.json(f"{trial.name}/metrics.json")["quality"]["score"] == 1.0
    assert study.measurements() == before
    scored = (trial / "answers.json").stat().st_mtime_ns
    assert study.measure().returncode == 0
    assert (trial / "answers.json").stat().st_mtime_ns == scored


@pytest.mark.sweep
def test_replies_that_are_not_kept_are_not_scored(study: StudyFolder) -> None:
    a_study(study, items=20, keep_replies=False)
    assert study.measure().returncode == 0
    [trial] = study.trials()
    assert not (trial / "answers.json").exists()
    assert "quality_version" not in study.json(f"{trial.name}/metrics.json")


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("my_judge:score", "my_judge.score", "judge: 'my_judge.score' is not of the form 'module:function'."),
        ("range: [0, 1], floor", "range: [1, 0], floor", "range: needs the least and the greatest value: [0, 1]"),
        ("better: lower", "better: smaller", "'smaller'"),
    ],
)
def test_a_wrong_recipe_is_one_line(study: StudyFolder, before: str, after: str, line: str) -> None:
    a_study(study, recipe=RECIPE.replace(before, after))
    refused = study.ask("plan", "-c", "config/scenarios/try.yaml", code=2)
    [said] = [text for text in refused.stderr.splitlines() if line in text]
    assert Path(said.split(":")[0]).name == "items.yaml"


@pytest.mark.sweep
@pytest.mark.covers("B12")
def test_a_trial_whose_failure_nothing_but_a_change_mends_is_not_repeated(study: StudyFolder) -> None:
    for name in ("second", "third"):  # three tasks fail alike, and the fourth is asked all the same
        (study.root / f"config/benchmarks/{name}.yaml").write_text(
            OTHER.format(name=name, file=study.root / "none.jsonl")
        )
    write_own_task(study, "second", "third", "mock_benchmark", max_retries=3)
    (study.root / "own_scorer.py").write_text(SCORER)
    study.measure(code=1)
    loads = [study.json(f"{trial.name}/load.json") for trial in study.trials()]
    assert sorted(str(load["category"]) for load in loads) == ["None", *["dataset_error"] * 3]
    assert {load["attempt"] for load in loads} == {1}
    assert not list(study.results.glob("*/attempts"))
