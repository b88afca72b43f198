"""Scores of kept replies: a value for each, means with the error of clusters, clear words for a wrong judge."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import a_load, a_trial, samples_of, write_samples

from seamark.load.workers import judging
from seamark.model.dotted import mark_of
from seamark.model.results.answers import AnswersRecord
from seamark.model.results.load_record import LoadRecord
from seamark.model.service import Quality
from seamark.storage.codec import encode
from seamark.storage.documents import read
from seamark.storage.paths import TrialFolder
from seamark.trials.judge import judge_trial, needs_judging, score_of

pytestmark = pytest.mark.slow

JUDGE = """\
from seamark.load.driver import Judged

def exact(target, items, replies):
    factor = target.settings["factor"]
    right = [reply == str(item * factor).encode() for item, reply in zip(items, replies, strict=True)]
    return Judged(
        scores={"exact": right, "length": [None if item == 3 else len(reply) for item, reply in zip(items, replies)]},
        ids=[f"q{item}" for item in items],
        clusters=[f"doc{item // 4}" for item in items],
        finish=["stop" for _ in items],
    )

def short(target, items, replies):
    return Judged(scores={"exact": [1.0]})

def beyond(target, items, replies):
    return Judged(scores={"exact": [2.0 for _ in items]})

def unknown(target, items, replies):
    return Judged(scores={"exakt": [1.0 for _ in items]})

def endless(target, items, replies):
    return Judged(scores={"exact": [float("nan") for _ in items]})

def broken(target, items, replies):
    raise KeyError("reference")
"""
QUALITIES = {"exact": Quality(range=(0, 1)), "length": Quality(unit="bytes", better="lower")}
COUNT = 40


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrialFolder:
    """A trial of 40 items; every fifth reply is wrong, and item 7 has none."""
    (tmp_path / "my_judge.py").write_text(JUDGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    folder = TrialFolder(root=tmp_path / "trial")
    order = np.random.default_rng(1).permutation(COUNT)
    due_s = np.arange(COUNT) * 0.1
    rows = samples_of(due_s, None, due_s + 0.05, units=3)
    rows["index"] = order
    write_samples(folder.samples, rows)
    replies = {item: b"no" if item % 5 == 0 else str(item * 2).encode() for item in order.tolist() if item != 7}
    table = pa.table(
        {"index": pa.array(list(replies), pa.int64()), "reply": pa.array(list(replies.values()), pa.binary())}
    )
    pq.write_table(table, folder.replies)
    folder.load.write_text(json.dumps(encode(a_load(kinds=["get"]))))
    return folder


def judged(folder: TrialFolder, judge: str = "my_judge:exact", **service: object) -> AnswersRecord:
    made = SimpleNamespace(judge=judge, environment=None, qualities=QUALITIES, **service)
    trial = a_trial({"factor": 2, "keep_replies": True, "task": "words"})  # plain text, not a benchmark's task
    study = SimpleNamespace(services={trial.service: made})
    return judge_trial(study, trial, folder)  # type: ignore[arg-type]


def test_every_reply_has_its_scores_in_the_order_of_the_items(folder: TrialFolder) -> None:
    record = judged(folder)
    assert (record.status, record.answers, record.clusters) == ("ok", 39, 10)
    assert record.quality_version == mark_of("my_judge:exact")
    assert record.scores["exact"].mean == pytest.approx(31 / 39)
    assert (record.scores["length"].scored, record.scores["exact"].scored) == (38, 39)
    answers = pq.read_table(folder.answers).to_pydict()
    items = [item for item in range(COUNT) if item != 7]
    assert answers["item"] == items
    assert answers["id"] == [f"q{item}" for item in items]
    assert answers["cluster"] == [f"doc{item // 4}" for item in items]
    assert answers["exact"] == [float(item % 5 != 0) for item in items]
    assert answers["length"][3] is None
    assert answers["reply"][1:3] == [b"2", b"4"]
    assert (set(answers["units"]), set(answers["kind"]), set(answers["failure"])) == ({3}, {"get"}, {None})
    assert read(folder.answers_record, AnswersRecord) == record


def test_replies_to_items_that_were_sent_again_are_not_scored(folder: TrialFolder) -> None:
    once = judged(folder)
    table = pq.read_table(folder.replies)
    again = pa.table({"index": pa.array([COUNT + 1, 2 * COUNT]), "reply": pa.array([b"2", b"no"])})
    pq.write_table(pa.concat_tables([table, again]), folder.replies)
    folder.load.write_text(json.dumps(encode(a_load(kinds=["get"], items=COUNT))))
    assert judged(folder) == once


def test_replies_are_scored_in_batches_alike(folder: TrialFolder, tmp_path: Path) -> None:
    whole = pq.read_table(folder.replies)
    judged(folder)
    few = pq.read_table(folder.answers)
    many = judging.BATCH * 2 + 5
    pq.write_table(pa.concat_tables([whole.slice(0, 1)] * many), folder.replies)
    record = judged(folder)
    assert (record.answers, record.scores["exact"].scored) == (many, many)
    [item] = set(pq.read_table(folder.answers)["item"].to_pylist())
    assert item == whole["index"][0].as_py()
    assert few.num_rows == 39


@pytest.mark.parametrize(
    ("judge", "why"),
    [
        ("my_judge:short", "'exact' has 1 values for 39 replies"),
        ("my_judge:beyond", "the score 'exact' of an answer is 2, outside of its range"),
        ("my_judge:unknown", "the score 'exakt' is none of the recipe's qualities: exact, length"),
        ("my_judge:endless", "a score is nan: give None for a reply without a score"),
        ("my_judge:broken", "KeyError: 'reference'"),
        ("my_judge:nothing", "has no attribute 'nothing'"),
        ("no_such_judge:exact", "No module named 'no_such_judge'"),
    ],
)
def test_a_wrong_judge_is_a_recorded_failure(folder: TrialFolder, judge: str, why: str) -> None:
    judged(folder)
    record = judged(folder, judge)
    assert record.status == "failed"
    assert why in str(record.reason).splitlines()[0]
    assert not folder.answers.exists()


def test_a_failed_load_is_skipped(folder: TrialFolder) -> None:
    folder.load.write_text(json.dumps(encode(LoadRecord(status="failed", category="timeout"))))
    assert judged(folder).status == "skipped"


def test_scores_stay_when_the_replies_are_pruned(folder: TrialFolder, tmp_path: Path) -> None:
    before = judged(folder)
    folder.replies.unlink()
    folder.answers_record.unlink()  # as Snakemake does before it runs the job again
    (tmp_path / "my_judge.py").write_text(JUDGE + "# mended\n")
    assert judged(folder) == before
    assert folder.answers.exists()


def test_scoring_is_needed_once_for_each_version_of_the_judge(folder: TrialFolder, tmp_path: Path) -> None:
    trial = a_trial({"factor": 2, "keep_replies": True})
    study = SimpleNamespace(services={trial.service: SimpleNamespace(judge="my_judge:exact", environment=None)})
    assert needs_judging(study, trial, folder)  # type: ignore[arg-type]
    judged(folder)
    assert not needs_judging(study, trial, folder)  # type: ignore[arg-type]
    (tmp_path / "my_judge.py").write_text(JUDGE + "# mended\n")
    assert needs_judging(study, trial, folder)  # type: ignore[arg-type]
    plain = a_trial({"factor": 2, "keep_replies": False})
    assert not needs_judging(study, plain, folder)  # type: ignore[arg-type]


def test_the_error_of_a_mean_counts_clusters_and_not_their_copies() -> None:
    values = [0.0, 1.0, 1.0, 0.0, 1.0, 1.0]
    alone = score_of(values)
    assert alone.standard_error == pytest.approx(np.std(values, ddof=1) / np.sqrt(6))
    copied = [value for value in values for _ in range(10)]
    clusters = [f"doc{number}" for number in range(6) for _ in range(10)]
    assert score_of(copied, clusters).standard_error == pytest.approx(alone.standard_error)
    assert score_of(copied).standard_error < alone.standard_error / 2
    assert score_of([None, None]).mean is None
