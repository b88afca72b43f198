"""What `bench plan` says of the items of a scored load."""

import json
from dataclasses import replace

import numpy as np
import pytest

from seamark.model.items import ItemCount
from seamark.planning.plan_answers import answer_lines, context_notes, detectable_scores
from seamark.planning.plan_text import describe
from seamark.planning.study import SHIPPED, Study
from seamark.stats.paired_compare import paired_test
from seamark_evaluate.config.benchmark_files import task_of
from seamark_evaluate.planning.items import QUESTIONS
from seamark_evaluate.tasks.benchmark import Source, Subset, task_document


def alone_in(items):
    """Return items that each have a context of their own."""
    return ItemCount(items=items, contexts=items)


def test_contexts_decide_and_not_the_questions_about_them():
    """8 contexts: p >= 2 / 2**8 by the sign-flip test that `bench compare` uses, whatever 64 answers show."""
    count = ItemCount(items=64, contexts=8)
    assert set(detectable_scores(count, 1).values()) == {None}
    assert detectable_scores(alone_in(64), 1)["0.2"] == pytest.approx(0.157, abs=0.01)
    many = ItemCount(items=2000, contexts=500)
    assert detectable_scores(many, 4) == detectable_scores(alone_in(500), 4)
    [line] = answer_lines([count], [detectable_scores(count, 1)])
    assert "64 items in 8 contexts" in line
    assert "no p" not in context_notes([count], 1)[0]
    assert "more contexts" in context_notes([count], 8)[0]
    assert "reach no p" in context_notes([count], 8)[0], "8 x 2 / 2**8 is 0.0625"
    assert context_notes([alone_in(64)], 8) == []
    scores = [0.0] * 64, [1.0] * 64
    assert paired_test(*scores, clusters=[n // 8 for n in range(64)]).p == 2 / 2**8


@pytest.mark.slow
def test_the_stated_power_of_contexts_is_that_of_their_test():
    """Answers to one context are alike: 0.2 of the contexts differ, by the difference that 100 contexts show."""
    shown, rng = detectable_scores(ItemCount(items=300, contexts=100), 1)["0.2"], np.random.default_rng(4)
    shares, found = [(0.2 + shown) / 2, (0.2 - shown) / 2, 0.8], 0
    for _ in range(300):
        change = np.repeat(rng.choice([1.0, -1.0, 0.0], 100, p=shares), 3)
        base = np.repeat(rng.random(100) < 0.5, 3).astype(float)
        found += paired_test(base, base + change, clusters=np.arange(300) // 3).p <= 0.05
    assert found / 300 == pytest.approx(0.8, abs=0.07)


def test_the_smallest_difference_grows_with_the_share_that_differs_and_with_the_family():
    alone, many = detectable_scores(alone_in(500), 1), detectable_scores(alone_in(500), 8)
    assert list(alone) == ["0.05", "0.1", "0.2"]
    assert alone["0.05"] == pytest.approx(0.029, abs=0.001)
    assert alone["0.05"] < alone["0.1"] < alone["0.2"] < many["0.2"]


def test_a_task_that_is_too_small_says_what_it_cannot_show():
    [few] = answer_lines([alone_in(20)], [detectable_scores(alone_in(20), 1)])
    assert "no difference where 20 % of the items or fewer differ" in few
    [some] = answer_lines([alone_in(100)], [detectable_scores(alone_in(100), 1)])
    assert some.startswith(
        "  scores of 100 items      0.088 where 10 % differ, 0.128 where 20 % differ, at 80 % power"
    )


def test_the_plan_of_an_evaluation_says_what_the_questions_of_each_task_can_show():
    study = Study.at(SHIPPED, scenario="config/scenarios/sparse_attention_local.yaml")
    lines = [line.split()[:8] for line in describe(study.plan, study.services).splitlines() if "  scores of" in line]
    assert lines == [
        ["scores", "of", "5", "items", "in", "3", "contexts", "no"],
        ["scores", "of", "20", "items", "no", "difference", "where", "20"],
        ["scores", "of", "500", "items", "in", "100", "contexts", "0.176"],
    ]


@pytest.mark.parametrize(
    ("task", "limit", "items"),
    [
        ("mock_benchmark", None, ItemCount(items=5, contexts=3)),
        ("mock_benchmark", 2, ItemCount(items=2, contexts=1)),
        ("mock_benchmark", 50, ItemCount(items=5, contexts=3)),
        ("needles", None, ItemCount(items=100, contexts=20)),
        ("needles", 12, ItemCount(items=12, contexts=3)),
        ("longbench/qasper", 50, None),
    ],
)
def test_the_number_of_questions_is_that_of_the_task_as_far_as_the_plan_knows_it(task, limit, items):
    document = json.dumps(task_document(task_of(task, [SHIPPED / "config/benchmarks"])))
    assert QUESTIONS.count({"task": document, "max_requests": limit}) == items


def test_questions_in_a_file_of_others_are_counted_where_they_are_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("seamark_evaluate.planning.items.CACHE", tmp_path / "questions")
    source = Source(file="rows.jsonl")
    subset = Subset(benchmark="own", name="", source=source, template="{question}", scorer="qa_f1")
    subset = replace(subset, columns=replace(subset.columns, context=None))
    task = json.dumps(task_document(subset))
    assert QUESTIONS.count({"task": task}) is None, "the data may come before the run"
    rows = [json.dumps({"question": str(number), "references": ["a"]}) for number in range(7)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    assert QUESTIONS.count({"task": task}) == alone_in(7)
    assert QUESTIONS.count({"task": task, "max_requests": 3}) == alone_in(3)
    (tmp_path / "bad.csv").write_text('question,references\n"a"b,c\n')
    bad = replace(subset, source=Source(file="bad.csv"))
    assert QUESTIONS.count({"task": json.dumps(task_document(bad))}) is None
