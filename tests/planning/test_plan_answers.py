"""What `bench plan` says of the items of a scored load."""

import json
from dataclasses import replace

import pytest

from seamark.config.benchmark_files import task_of
from seamark.planning.plan_answers import answer_lines, detectable_scores, items_of
from seamark.planning.plan_text import describe
from seamark.planning.study import SHIPPED, Study
from seamark.tasks.benchmark import Benchmark, Source, Subset
from seamark.tasks.task import task_document


def test_the_smallest_difference_grows_with_the_share_that_differs_and_with_the_family():
    alone, many = detectable_scores(500, 1), detectable_scores(500, 8)
    assert list(alone) == ["0.05", "0.1", "0.2"]
    assert alone["0.05"] == pytest.approx(0.029, abs=0.001)
    assert alone["0.05"] < alone["0.1"] < alone["0.2"] < many["0.2"]


def test_a_task_that_is_too_small_says_what_it_cannot_show():
    [few] = answer_lines([20], [detectable_scores(20, 1)])
    assert "no difference where 20% of the items or fewer differ" in few
    [some] = answer_lines([100], [detectable_scores(100, 1)])
    assert some.startswith("  scores of 100 items      0.088 where 10% differ, 0.128 where 20% differ, at 80% power")


def test_the_plan_of_an_evaluation_says_what_the_questions_of_each_task_can_show():
    study = Study.at(SHIPPED, scenario="config/scenarios/sparse_attention_local.yaml")
    lines = [line.split()[:6] for line in describe(study.plan, study.services).splitlines() if "scores of" in line]
    assert lines == [
        ["scores", "of", "5", "items", "no", "difference"],
        ["scores", "of", "20", "items", "no", "difference"],
        ["scores", "of", "500", "items", "0.041", "where"],
    ]


@pytest.mark.parametrize(
    ("task", "limit", "items"),
    [
        ("mock_benchmark", None, 5),
        ("mock_benchmark", 2, 2),
        ("mock_benchmark", 50, 5),
        ("needles", None, 100),
        ("needles", 500, 500),
        ("longbench/qasper", 50, None),
    ],
)
def test_the_number_of_questions_is_that_of_the_task_as_far_as_the_plan_knows_it(task, limit, items):
    benchmark, subset = task_of(task, [SHIPPED / "config/benchmarks"])
    document = json.dumps(task_document(benchmark, subset))
    assert items_of({"task": document, "max_requests": limit}) == items


def test_questions_in_a_file_of_others_are_counted_where_they_are_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seamark.planning.plan_answers.CACHE", tmp_path / "questions")
    source = Source(file="rows.jsonl")
    subset = Subset(name="", source=source, template="{question}", scorer="qa_f1")
    subset = replace(subset, columns=replace(subset.columns, context=None))
    benchmark = Benchmark(name="own", summary="", licence="", references=(), subsets={"": subset})
    task = json.dumps(task_document(benchmark, subset))
    assert items_of({"task": task}) is None, "the data may come before the run"
    rows = [json.dumps({"question": str(number), "references": ["a"]}) for number in range(7)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    assert items_of({"task": task}) == 7
    assert items_of({"task": task, "max_requests": 3}) == 3
    (tmp_path / "bad.csv").write_text('question,references\n"a"b,c\n')
    bad = replace(subset, source=Source(file="bad.csv"))
    assert items_of({"task": json.dumps(task_document(benchmark, bad))}) is None
