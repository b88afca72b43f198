"""Repetitions of a treatment beside each other: an odd one is SUSPECT wherever its verdict is shown."""

import csv

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import a_load, a_trial, samples_of, write_samples

from seamark.analysis.answers import said_by_item
from seamark.analysis.summary import write_metrics, write_summary
from seamark.analysis.summary.repetitions import RESPONSE_FACTOR, THROUGHPUT_FACTOR, disagreements
from seamark.model.digest import digest
from seamark.model.results.answers import AnswersRecord
from seamark.model.results.summary import Summary
from seamark.model.trial import Plan
from seamark.report.source import read_results
from seamark.report.terminal import summary_table
from seamark.storage.codec import decode, encode
from seamark.storage.documents import read, write
from seamark.storage.paths import ScenarioFolder

OPEN = {"pattern": "poisson", "rate_rps": 100.0}


def summed_up(folder, reply_s, settings=None, answers=()):
    """Leave the files of a treatment whose repetitions have these reply times and answers; return its summary."""
    trials = [a_trial(settings, repetition=r) for r in range(1, len(reply_s) + 1)]
    for trial, each_s in zip(trials, reply_s, strict=True):
        own = folder.trial(trial.id)
        due = np.arange(1000) * 0.01 if settings else np.arange(int(10 / each_s)) * each_s
        write_samples(own.samples, samples_of(due, None, due + each_s))
        write(own.load, a_load())
        write_metrics(trial, own)
    for trial, table in zip(trials, answers, strict=False):
        pq.write_table(table, folder.trial(trial.id).answers)
        record = AnswersRecord(status="ok", answers_sha256=digest(said_by_item(table)))
        write(folder.trial(trial.id).answers_record, record)
    plan = Plan(
        scenario="s",
        source="s.yaml",
        seed=1,
        repetitions=len(trials),
        max_retries=0,
        factors={},
        deployments=(),
        trials=tuple(trials),
    )
    write(folder.plan, plan)
    return encode(write_summary(plan, folder))


@pytest.fixture
def folder(tmp_path):
    return ScenarioFolder(root=tmp_path / "s")


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.10, 0.16, 0.6])
def test_a_trial_at_a_fraction_of_its_twins_is_suspect_in_terminal_table_and_report(folder, share):
    [treatment] = summed_up(folder, [0.001, 0.001 / share, 0.001])["treatments"]
    assert treatment["trial_verdicts"] == ["VALID", "SUSPECT", "VALID"]
    assert treatment["verdict"] == "SUSPECT"
    [reason] = [reason for reason in treatment["reasons"] if reason["code"] == "spread"]
    assert reason["count"] == 1
    assert f"({100 * share:.0f} % of it)" in reason["text"]
    with (folder.root / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["verdict"] for row in rows] == ["VALID", "SUSPECT", "VALID"]
    assert ["spread" in row["reasons"].split() for row in rows] == [False, True, False]
    records = read_results(folder.root).trials
    assert [record.verdict for record in records] == ["VALID", "SUSPECT", "VALID"]
    assert [reason.code for reason in records[1].reasons if reason.severity == "suspect"] == ["spread"]
    assert (
        str(next(iter(summary_table(decode({"treatments": [treatment]}, Summary), 200).columns[-1].cells)))
        == "SUSPECT"
    )


def test_of_two_repetitions_that_differ_nothing_tells_which_is_odd(folder):
    [treatment] = summed_up(folder, [0.001, 0.004])["treatments"]
    assert treatment["trial_verdicts"] == ["SUSPECT", "SUSPECT"]


@pytest.mark.slow
def test_one_repetition_and_those_that_agree_have_nothing_against_them(folder):
    assert summed_up(folder, [0.001])["treatments"][0]["trial_verdicts"] == ["VALID"]
    assert summed_up(folder, [0.001, 0.0012, 0.0013])["treatments"][0]["by_twins"] == {}


@pytest.mark.slow
@pytest.mark.parametrize("in_chunks", [1, 2, 3])
def test_tokens_a_second_are_not_compared_with_chunks_a_second(folder, in_chunks):
    """Eight tokens come in each chunk; of one repetition the server did not count them."""
    trials = [a_trial(OPEN, repetition=r) for r in (1, 2, 3)]
    due = np.arange(1000) * 0.01
    for trial in trials:
        own, uncounted = folder.trial(trial.id), trial.repetition == in_chunks
        rows = samples_of(due, None, due + 0.001, units=1 if uncounted else 8, uncounted=int(uncounted))
        write_samples(own.samples, rows)
        write(own.load, a_load(unit="token"))
        write_metrics(trial, own)
    plan = Plan(
        scenario="s",
        source="s.yaml",
        seed=1,
        repetitions=3,
        max_retries=0,
        factors={},
        deployments=(),
        trials=tuple(trials),
    )
    [treatment] = encode(write_summary(plan, folder))["treatments"]
    assert treatment["throughput"]["unit"] == "tokens_per_s"
    assert treatment["by_twins"] == {}


def test_where_the_rate_is_given_the_median_response_times_are_compared(folder):
    [treatment] = summed_up(folder, [0.001, 0.0011, 0.003], OPEN)["treatments"]
    assert treatment["trial_verdicts"][:2] == ["VALID", "VALID"]
    [(trial, [reason])] = treatment["by_twins"].items()
    assert trial.endswith("--r3")
    assert "its median response time was 3 ms, the median of 3 repetitions 1.1 ms" in reason["text"]


@pytest.mark.parametrize("factor", [THROUGHPUT_FACTOR, RESPONSE_FACTOR])
@pytest.mark.parametrize("repetitions", [2, 3, 5])
@pytest.mark.parametrize(("variation", "most"), [(0.05, 0.0), (0.10, 0.008)])
def test_honest_noise_between_repetitions_is_not_flagged(factor, repetitions, variation, most):
    draw, flagged, treatments = np.random.default_rng(4), 0, 2000
    for _ in range(treatments):
        values = draw.lognormal(0, variation, repetitions)
        flagged += bool(disagreements(dict(enumerate(values)), "throughput", "units/s", factor))  # type: ignore[arg-type]
    assert flagged <= most * treatments


def test_a_trial_that_did_nothing_is_odd_and_a_treatment_that_did_nothing_has_no_odd_one():
    assert set(disagreements({"a": 0.0, "b": 9.0, "c": 9.0}, "throughput", "units/s", 1.5)) == {"a"}
    assert disagreements({"a": 0.0, "b": 0.0, "c": 9.0}, "throughput", "units/s", 1.5) == {}
    assert disagreements({"a": 0.0, "b": 0.0}, "throughput", "units/s", 1.5) == {}


def answered(said, scores=(1.0, 0.0, 1.0), order=(0, 1, 2)):
    """Return a table of answers to three items; `said` None: only the scores are known."""
    known = pa.array([said[i] if said else None for i in order], pa.string())
    return pa.table({"id": [f"q{i}" for i in order], "answer": known, "exact": [scores[i] for i in order]})


def test_other_answers_to_the_same_items_are_noted_for_the_repetitions_that_have_them(folder):
    tables = [answered("abc"), answered("abc", order=(2, 0, 1)), answered("abd")]
    [treatment] = summed_up(folder, [0.001] * 3, answers=tables)["treatments"]
    assert treatment["trial_verdicts"] == ["VALID"] * 3
    [reason] = [reason for reason in treatment["reasons"] if reason["code"] == "answers_differ"]
    assert (reason["severity"], reason["count"]) == ("note", 1)
    assert reason["text"] == f"1 of 3 items answered in both have another answer than in {treatment['trials'][0]}"
    assert list(treatment["by_twins"]) == [treatment["trials"][2]]


@pytest.mark.parametrize(("scores", "differ"), [((1.0, 0.0, 1.0), False), ((1.0, 1.0, 0.0), True)])
def test_where_answers_are_not_told_apart_their_scores_are_compared(folder, scores, differ):
    tables = [answered(None), answered(None, scores)]
    [treatment] = summed_up(folder, [0.001] * 2, answers=tables)["treatments"]
    texts = [reason["text"] for reason in treatment["reasons"] if reason["code"] == "answers_differ"]
    assert [text.partition(" items")[0] for text in texts] == (["2 of 3"] if differ else [])


def test_answers_that_cannot_be_read_say_nothing(folder):
    tables = [answered("abc"), answered("abd")]
    summed_up(folder, [0.001] * 2, answers=tables)
    [first, _] = sorted(folder.root.glob("*/answers.parquet"))
    first.write_bytes(b"PAR1")
    plan = read(folder.plan, Plan)
    [row] = write_summary(plan, folder).treatments
    assert "answers_differ" not in row.codes
