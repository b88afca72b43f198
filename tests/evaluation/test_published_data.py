"""Loaded benchmarks read data of the published form, and the right answer scores 1. The data are not here."""

from pathlib import Path
from typing import Any

import pytest
from question_data import asked, jsonl, shipped

from seamark.errors import UserError
from seamark_evaluate.config.benchmark_files import read_benchmark
from seamark_evaluate.tasks.benchmark import Benchmark
from seamark_evaluate.tasks.scoring.table import SCORERS, score


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


LONGBENCH = {"length": 12, "dataset": "x", "language": "en", "all_classes": ["city", "person"]}
OPTIONS = ["one", "two", "three", "four"]
PUBLISHED: dict[str, dict[str, Any]] = {
    "longbench": {"input": "Who?", "context": "The text.", "answers": ["city"], **LONGBENCH},
    "longbenchv2": {
        **{f"choice_{letter}": f"choice {letter}" for letter in "ABCD"},
        **dict.fromkeys(("domain", "sub_domain", "difficulty", "length"), "x"),
        "context": "The text.",
        "question": "Which?",
        "answer": "C",
    },
    "infinite_bench": {"context": "The text.", "input": "Which?", "answer": ["two"], "options": OPTIONS},
    "zero_scrolls": {"input": "The text.\n\nQuestion:\nWho?", "query_start_index": 11, "output": "7"},
}
"""One row of each data set, with the columns that it is published with."""
OF_SUBSET: dict[str, dict[str, Any]] = {
    "passage_retrieval_en": {"answers": ["Paragraph 7"]},
    "passage_retrieval_en_e": {"answers": ["Paragraph 7"]},
    "passage_retrieval_zh": {"answers": ["段落7"]},
    "passage_count": {"answers": ["7"]},
    "passage_count_e": {"answers": ["7"]},
    "math_find": {"input": "The largest number of the list is:", "answer": [7]},
    "math_calc": {"answer": [1, 4, 8]},
    "code_run": {"input": "What is func_12(-3)?", "answer": [-7]},
    "longdialogue_qa_eng": {"answer": ["ACE", "ACE ROTHSTEIN"]},
    "quality": {"output": "B"},
    "space_digest": {"output": "40%"},
    "book_sum_sort": {"output": "2, 1, 3"},
}
INSTRUCTIONS = {
    "aime2024": r"Please reason step by step, and put your final answer within \boxed{...} format",
    "aime2025": r"You must wrap your final answer in \boxed{...} format",
}
ANSWERS = {"stated_letter": "The correct answer is (C).", "code_debug": "B. two", "book_choice": "B"}


def of_published_form(name: str) -> Benchmark:
    benchmark = shipped(name, "data")
    for subset in benchmark.subsets.values():
        if subset.source.kind != "made":
            key = {"infinite_bench": "id", "zero_scrolls": "id"}.get(name, "_id")
            row = {**PUBLISHED[name], **OF_SUBSET.get(subset.name, {})}
            file = subset.name or subset.source.split
            jsonl(f"data/{file}.jsonl", [{**row, key: number} for number in range(2)])
    return benchmark


@pytest.mark.covers("B13")
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_subset_reads_data_of_the_published_form_and_its_right_answer_scores_1(name: str) -> None:
    benchmark = of_published_form(name)
    for subset in benchmark.subsets.values():
        if subset.source.kind == "made":
            continue
        first, second = asked(benchmark, subset.name)
        assert first.prompt == second.prompt
        assert first.cluster == second.cluster
        assert "{" not in first.prompt.replace("{'<mask", ""), f"{subset.name}: a place is left"
        assert first.context.endswith("The text.") or name == "zero_scrolls"
        if not SCORERS[subset.scorer].packages:
            right = ANSWERS.get(subset.scorer, ", ".join(first.references))
            if subset.scorer == "speaker":
                right = first.references[0]
            assert score(subset, first, right)["score"] == 1, subset.name
            assert score(subset, first, "")["score"] == 0, subset.name


@pytest.mark.covers("B13")
def test_a_prompt_of_longbench_v2_has_no_blanks_around_its_parts() -> None:
    benchmark = shipped("longbenchv2", "data")
    choices = {f"choice_{letter}": f" choice {letter}\n" for letter in "ABCD"}
    others = dict.fromkeys(("domain", "sub_domain", "difficulty", "length"), "x")
    row = {"context": "\n\nThe text. \n", "question": " Which? ", "answer": "C", "_id": "1", **choices, **others}
    jsonl("data/train.jsonl", [row])
    Path("longbenchv2.yaml").write_text(
        Path("longbenchv2.yaml").read_text().replace("{folder: data}", "{folder: data, split: train}")
    )
    [question] = asked(read_benchmark(Path("longbenchv2.yaml")))
    assert question.prompt == (
        "Please read the following text and answer the question below.\n\n<text>\nThe text.\n</text>\n\n"
        "What is the correct answer to this question: Which?\nChoices:\n"
        "(A) choice A\n(B) choice B\n(C) choice C\n(D) choice D\n\n"
        'Format your response as follows: "The correct answer is (insert answer here)".'
    )
    assert benchmark.subsets[""].rows == "seamark_evaluate.tasks.benchmarks.longbench:stripped"


@pytest.mark.covers("B13")
def test_prompts_of_infinitebench_name_options_call_and_number() -> None:
    benchmark = of_published_form("infinite_bench")
    assert "A. one\nB. two\nC. three\nD. four" in asked(benchmark, "longbook_choice_eng")[0].question
    assert asked(benchmark, "code_debug")[0].references == ("two", "B")
    assert "value of func_12(-3)" in asked(benchmark, "code_run")[0].question
    assert asked(benchmark, "code_run")[0].context.startswith("There is a function called func_12 in")
    assert asked(benchmark, "math_find")[0].context.startswith("What is the largest number in the following list?")


def test_a_row_that_has_not_the_published_form_is_named() -> None:
    benchmark = of_published_form("infinite_bench")
    jsonl("data/code_run.jsonl", [{"id": 1, "context": "c", "input": "nothing", "answer": [1], "options": []}])
    with pytest.raises(UserError, match=r"infinite_bench/code_run: row 1 no call of a function in 'nothing'"):
        asked(benchmark, "code_run")


@pytest.mark.covers("B13")
def test_a_document_of_loogle_has_several_questions_of_one_cluster() -> None:
    benchmark = shipped("loogle", "data")
    pairs = [{"Q": "Who?", "A": "Ann", "S": ["x"]}, {"Q": "Where?", "A": "Oslo", "S": []}]
    masks = [{"Q": "<mask-0> left.", "A": {"<mask-0>": "Ann"}}]
    row = {"input": "The text.", "title": "t", "output": "none"}
    jsonl("data/shortdep_qa.jsonl", [{**row, "qa_pairs": repr(pairs)}])
    jsonl("data/longdep_qa.jsonl", [{**row, "qa_pairs": pairs}])
    jsonl("data/shortdep_cloze.jsonl", [{**row, "qa_pairs": repr(masks)}])
    jsonl("data/longdep_summarization.jsonl", [{**row, "qa_pairs": "none", "output": "A text."}])
    for name in ("shortdep_qa", "longdep_qa"):
        first, second = asked(benchmark, name)
        assert (first.question, first.references) == ("\nQuestion: Who?\nAnswer: ", ("Ann",))
        assert first.cluster == second.cluster
        assert first.context == second.context
    [cloze] = asked(benchmark, "shortdep_cloze")
    assert "for example: {'<mask-0>': 'Bob'," in cloze.context
    assert score(benchmark.subsets["shortdep_cloze"], cloze, "{'<mask-0>': 'Ann'}")["score"] == 1
    assert asked(benchmark, "longdep_summarization")[0].references == ("A text.",)
    of_hub = {"context": "The text.", "title": "t", "doc_id": "1"}
    jsonl("data/longdep_qa.jsonl", [{**of_hub, "question": each["Q"], "answer": each["A"]} for each in pairs])
    jsonl("data/shortdep_cloze.jsonl", [{**of_hub, "question": "<mask-0> left.", "answer": "{'<mask-0>': 'Ann'}"}])
    assert asked(benchmark, "longdep_qa") == [first, second], "the form of the hub gives the same questions"
    assert asked(benchmark, "shortdep_cloze") == [cloze]
    jsonl("data/shortdep_qa.jsonl", [{**row, "qa_pairs": "__import__('os').abort()"}])
    with pytest.raises(UserError, match="row 1 'qa_pairs' is no list of questions"):
        asked(benchmark, "shortdep_qa")


@pytest.mark.covers("B13")
@pytest.mark.parametrize(
    ("name", "columns"), [("aime2024", ("Problem", "Answer", "ID")), ("aime2025", ("problem", "answer", "id"))]
)
def test_problems_of_aime_are_all_question(name: str, columns: tuple[str, str, str]) -> None:
    benchmark = shipped(name, "data")
    jsonl("data/train.jsonl", [dict(zip(columns, ("What is $2^{5}+1$?", 33, f"{name}-I-1"), strict=True))])
    Path(f"{name}.yaml").write_text(
        Path(f"{name}.yaml").read_text().replace("{folder: data}", "{folder: data, split: train}")
    )
    [question] = asked(read_benchmark(Path(f"{name}.yaml")))
    assert question.context == ""
    assert question.prompt == (
        "Solve the following AIME (American Invitational Mathematics Examination) problem.\n\n"
        "Problem: What is $2^{5}+1$?\n\n"
        "Instructions:\n- The answer should be an integer between 0 and 999\n"
        f"- {INSTRUCTIONS[name]}\n\nWhat is the answer to this problem?"
    )
    assert question.max_new_tokens == 32_000
    assert score(benchmark.subsets[""], question, r"\boxed{33}") == {"score": 1, "answered": 1}
    last = score(benchmark.subsets[""], question, r"\boxed{33 of 40}")["score"]
    assert last == (name == "aime2024"), "the first number of a box in 2024, the last in 2025"
