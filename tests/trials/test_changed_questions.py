"""Scores of tasks after a change: another scorer scores kept replies again, other questions score none of them."""

import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import a_load, a_trial, samples_of, write_samples

from seamark.analysis.summary import write_metrics
from seamark.errors import UserError
from seamark.model.dotted import mark_of, resolved
from seamark.model.results.answers import AnswersRecord, Score
from seamark.model.sample import Failure
from seamark.model.service import Quality
from seamark.model.trial import Trial
from seamark.planning.judges import scoring_functions
from seamark.storage.codec import encode
from seamark.storage.documents import write
from seamark.storage.paths import TrialFolder
from seamark.trials.judge import judge_trial, needs_judging
from seamark_evaluate.drivers import questions
from seamark_evaluate.evaluation.evaluated_trial import EvaluatedTrial, answer_rows
from seamark_evaluate.evaluation.result_tree import write_whole
from seamark_evaluate.tasks.benchmark import Source, Subset, task_document

pytestmark = pytest.mark.slow

SCORER = "def score(answer, question):\n    return {'score': float(answer.strip() == question.references[0])}\n"
LENIENT = SCORER.replace("answer.strip()", "answer.strip(' .')")
ROWS = [("Capital of Norway?", "Oslo"), ("Capital of Chile?", "Santiago"), ("Capital of Kenya?", "Nairobi")]
SAID = ("Oslo", " Santiago.", "Lima")  # strictly one of three is right, and two without the full stop


def put(rows: Sequence[tuple[str, str]]) -> None:
    lines = [json.dumps({"question": question, "references": [answer]}) for question, answer in rows]
    Path("rows.jsonl").write_text("\n".join(lines) + "\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrialFolder:
    """A trial of three questions on data in a file, with a scorer of the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_scorer", raising=False)  # of another test
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(questions, "CACHE", tmp_path / "questions")
    Path("own_scorer.py").write_text(SCORER)
    put(ROWS)
    folder = TrialFolder(root=tmp_path / "trial")
    due_s = np.arange(3) * 0.1
    samples = samples_of(due_s, None, due_s + 0.05)
    samples["sent_ns"], samples["first_ns"] = samples["due_ns"] + 10**7, samples["due_ns"] + 3 * 10**7
    write_samples(folder.samples, samples)
    replies = [whole(text) for text in SAID]
    pq.write_table(pa.table({"index": pa.array(range(3)), "reply": pa.array(replies, pa.binary())}), folder.replies)
    folder.load.write_text(json.dumps(encode(a_load(items=3, epoch_unix_ns=1_800_000_000_000_000_000))))
    return folder


def whole(text: str) -> bytes:
    body = json.dumps({"choices": [{"index": 0, "text": text, "finish_reason": "stop"}]})
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def trial_of(scorer: str = "own_scorer:score") -> Trial:
    source = Source(file=str(Path("rows.jsonl").resolve()))
    subset = Subset(benchmark="capitals", name="", source=source, template="{question}", scorer=scorer)
    document = task_document(subset)
    document = {**document, "columns": {**document["columns"], "context": None}}
    return a_trial({"task": json.dumps(document), "keep_replies": True})


def a_study() -> Any:
    service = SimpleNamespace(
        judge="seamark_evaluate.drivers.questions:judge", environment=None, qualities={"score": Quality(range=(0, 1))}
    )
    return SimpleNamespace(services={trial_of().service: service})


def judged(folder: TrialFolder) -> AnswersRecord:
    return judge_trial(a_study(), trial_of(), folder)


@pytest.mark.covers("B13")
def test_a_changed_scorer_of_the_users_own_scores_the_kept_replies_again(folder: TrialFolder) -> None:
    first = judged(folder)
    assert (first.status, first.scores["score"].mean) == ("ok", pytest.approx(1 / 3))
    assert not needs_judging(a_study(), trial_of(), folder)
    Path("own_scorer.py").write_text(LENIENT)
    assert needs_judging(a_study(), trial_of(), folder)
    again = judged(folder)
    assert (again.status, again.scores["score"].mean) == ("ok", pytest.approx(2 / 3))
    assert again.quality_version != first.quality_version
    assert not needs_judging(a_study(), trial_of(), folder)


@pytest.mark.covers("B13")
def test_a_shipped_scorer_is_part_of_the_version_of_scores(folder: TrialFolder) -> None:
    services = a_study().services
    read = ("seamark.drivers.openai.kept:read_kept", "seamark.drivers.openai.events:texts_in")
    shipped = ("seamark_evaluate.drivers.questions:judge", *read, "seamark_evaluate.tasks.scoring")
    assert scoring_functions(services, trial_of("qa_f1")) == shipped
    assert [callable(resolved(path, FunctionType)) for path in read] == [True, True]
    own = (*shipped, "own_scorer:score")
    assert scoring_functions(services, trial_of()) == own
    assert judged(folder).quality_version == " ".join(map(mark_of, own))


def test_the_mark_of_a_package_changes_with_any_of_its_modules(folder: TrialFolder) -> None:
    package = Path("scorers_of_mine")
    (package / "more").mkdir(parents=True)
    for name in ("__init__", "exact", "more/__init__", "more/words"):
        (package / f"{name}.py").write_text("")
    before = mark_of("scorers_of_mine")
    assert mark_of("scorers_of_mine") == before
    (package / "more" / "words.py").write_text("# mended\n")
    assert mark_of("scorers_of_mine") != before


@pytest.mark.covers("B13")
@pytest.mark.parametrize("older", [False, True], ids=["asked.json", "results of an earlier version"])
def test_replies_to_questions_that_have_changed_are_never_scored(folder: TrialFolder, older: bool) -> None:
    first = judged(folder)
    if older:
        folder.asked.unlink()
    put([ROWS[0], ("Capital of Peru?", "Lima"), ("Capital of Brazil?", "Lima")])
    for scorer in (LENIENT, SCORER):
        Path("own_scorer.py").write_text(scorer)
        failed = judged(folder)
        assert (failed.status, failed.scores) == ("failed", {})
        assert str(failed.reason).startswith("2 of 3 replies are to questions that are others by now, item 1 first")
        assert not folder.answers.exists()
    put(ROWS)
    folder.answers_record.unlink()
    assert needs_judging(a_study(), trial_of(), folder)
    assert judged(folder) == first


def test_questions_that_are_gone_are_a_failed_scoring(folder: TrialFolder) -> None:
    judged(folder)
    put(ROWS[:2])
    failed = judged(folder)
    assert failed.status == "failed"
    assert "capitals has 2 questions, and item 2 was asked" in str(failed.reason).splitlines()[0]


@pytest.mark.covers("B13")
def test_a_corrected_reference_of_the_same_question_scores_the_kept_replies_again(folder: TrialFolder) -> None:
    judged(folder)
    put([*ROWS[:2], (ROWS[2][0], "Lima")])
    assert needs_judging(a_study(), trial_of(), folder)
    assert judged(folder).scores["score"].mean == pytest.approx(2 / 3)
    assert not needs_judging(a_study(), trial_of(), folder)
    assert [row["answers"] for row in answer_rows(EvaluatedTrial(trial=trial_of(), folder=folder))] == [
        ["Oslo"],
        ["Santiago"],
        ["Lima"],
    ]


@pytest.mark.parametrize("rows", [None, [*ROWS, ("Capital of Peru?", "Lima")], [("Of Norway?", "Oslo"), *ROWS[1:]]])
def test_scores_stay_where_the_data_are_gone_have_more_questions_or_others(
    folder: TrialFolder, rows: list[tuple[str, str]] | None
) -> None:
    judged(folder)
    Path("rows.jsonl").unlink() if rows is None else put(rows)
    assert not needs_judging(a_study(), trial_of(), folder)


def test_scores_of_an_earlier_version_stay_without_a_digest_of_their_key(folder: TrialFolder) -> None:
    written = encode(judged(folder))
    del written["key_sha256"]
    folder.answers_record.write_text(json.dumps(written))
    put([*ROWS[:2], (ROWS[2][0], "Lima")])
    assert not needs_judging(a_study(), trial_of(), folder)


def test_another_load_is_scored_against_the_questions_of_its_own_time(folder: TrialFolder) -> None:
    judged(folder)
    put([ROWS[0], ("Capital of Peru?", "Lima"), ("And of Peru?", "Lima")])
    folder.answers.unlink()  # `bench retry` puts the files of an earlier load aside
    folder.load.write_text(json.dumps(encode(a_load(items=3, epoch_unix_ns=1_900_000_000_000_000_000))))
    record = judged(folder)
    assert (record.status, record.scores["score"].mean) == ("ok", pytest.approx(2 / 3))


@pytest.mark.covers("B13")
@pytest.mark.parametrize("rows", [[ROWS[0], ROWS[2], ROWS[1]], ROWS[:2]], ids=["others", "fewer"])
def test_an_export_pairs_no_answer_with_another_question(folder: TrialFolder, rows: list[tuple[str, str]]) -> None:
    judged(folder)
    found = list(answer_rows(EvaluatedTrial(trial=trial_of(), folder=folder)))
    assert [(row["question"], row["predicted_answer"], row["score"]) for row in found] == [
        (ROWS[0][0], "Oslo", 1),
        (ROWS[1][0], " Santiago.", 0),
        (ROWS[2][0], "Lima", 0),
    ]
    put(rows)
    with pytest.raises(UserError, match=r"question [12] of capitals has changed since it was answered"):
        list(answer_rows(EvaluatedTrial(trial=trial_of(), folder=folder)))


def test_answers_have_their_times_beside_their_scores(folder: TrialFolder) -> None:
    judged(folder)
    table = pq.read_table(folder.answers)
    assert table["latency_s"].to_pylist() == pytest.approx([0.05] * 3)
    assert table["ttft_s"].to_pylist() == pytest.approx([0.02] * 3), "from the actual send"
    assert [row["latency_s"] for row in answer_rows(EvaluatedTrial(trial=trial_of(), folder=folder))] == table[
        "latency_s"
    ].to_pylist()


@pytest.mark.covers("B11", "B13")
@pytest.mark.parametrize("failure", [Failure.TIMEOUT, Failure.WRONG_REPLY, Failure.EMPTY_REPLY])
def test_a_reply_to_a_failed_request_is_neither_scored_nor_exported(folder: TrialFolder, failure: Failure) -> None:
    fail_first(folder, failure)
    record = judged(folder)
    assert (record.scores["score"].scored, record.scores["score"].mean) == (2, 0.0), "the one that failed is right"
    assert write_metrics(trial_of(), folder).quality["score"] is None
    trial = EvaluatedTrial(trial=trial_of(), folder=folder)
    assert (trial.whole, trial.failed, trial.unanswered, trial.unscored) == (False, True, 1, 1)
    assert write_whole({folder.root / "tree": trial}) == []
    write(folder.answers_record, replace(record, scores={"score": Score(mean=1 / 3, scored=3)}))
    assert not EvaluatedTrial(trial=trial_of(), folder=folder).whole, "of an earlier version, which scored it"


@pytest.mark.covers("B13")
def test_published_figures_leave_the_replies_of_failed_requests_out(folder: TrialFolder) -> None:
    lines = [
        {"question": q, "references": [a], "length": n} for (q, a), n in zip(ROWS, (100, 5000, 9000), strict=True)
    ]
    Path("rows.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    document = json.loads(str(trial_of().settings["task"]))
    columns = {**document["columns"], "facts": ["length"]}
    document |= {"name": "longbench/qasper_e", "subset": "qasper_e", "columns": columns}
    trial = a_trial({"task": json.dumps(document), "keep_replies": True})
    assert set(judge_trial(a_study(), trial, folder).published) == {"0-4k", "4-8k", "8k+"}
    fail_first(folder, Failure.TIMEOUT)
    assert set(judge_trial(a_study(), trial, folder).published) == {"4-8k", "8k+"}


@pytest.mark.covers("B11")
def test_a_fact_with_the_name_of_another_column_has_a_column_of_its_own(folder: TrialFolder) -> None:
    facts = {"score": "many", "level": 3, "fact_score": "few"}
    lines = [{"question": question, "references": [answer], **facts} for question, answer in ROWS]
    Path("rows.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    document = json.loads(str(trial_of().settings["task"]))
    document["columns"]["facts"] = list(facts)
    trial = a_trial({"task": json.dumps(document), "keep_replies": True})
    load = a_load(items=3, epoch_unix_ns=1_800_000_000_000_000_000, config_hash="cafe")
    folder.load.write_text(json.dumps(encode(load)))
    assert judge_trial(a_study(), trial, folder).scores["score"].scored == 3
    write_metrics(trial, folder)
    [written] = write_whole({folder.root / "tree": EvaluatedTrial(trial=trial, folder=folder)})
    with (written / "raw_results.csv").open() as file:
        found = list(csv.DictReader(file))
    assert [row["score"] for row in found] == ["1.0", "0.0", "0.0"]
    own = [(row["fact_fact_score"], row["level"], row["fact_score"]) for row in found]
    assert own == [("many", "3", "few")] * 3


def fail_first(folder: TrialFolder, failure: Failure) -> None:
    """Have the request of the first reply fail, as that of one that came too late."""
    due_s = np.arange(3) * 0.1
    write_samples(folder.samples, samples_of(due_s, None, due_s + 0.05, failure=[int(failure), 0, 0]))
    load = a_load(items=3, epoch_unix_ns=1_800_000_000_000_000_000, config_hash="cafe")
    folder.load.write_text(json.dumps(encode(load)))
