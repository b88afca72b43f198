"""Questions read from data of the published forms, kept in a cache folder; whatever does not load is an error."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from seamark.config.benchmark_files import read_benchmark
from seamark.errors import UserError
from seamark.evaluation.benchmark import Benchmark, Source
from seamark.evaluation.loading import hub_arguments
from seamark.evaluation.question_files import questions
from seamark.evaluation.scoring.table import SCORERS, score

SHIPPED = Path(__file__).parents[2] / "config" / "benchmarks"
PLAIN = """\
name: own
summary: Rows of a file.
licence: ours
references: []
source: {file: rows.jsonl}
template: "{context} {question}"
scorer: qa_f1
"""
ROWS = [
    {"context": "Bergen is wet.", "question": "What is wet?", "references": ["Bergen"]},
    {"context": "Bergen is wet.", "question": "How is it?", "references": "wet"},
    {"context": "Oslo is {dry}.", "question": "What is dry?", "references": ["Oslo", "it"]},
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def jsonl(path: str, rows: Iterable[dict[str, Any]]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def own(text: str = PLAIN) -> Benchmark:
    Path("own.yaml").write_text(text, encoding="utf-8")
    return read_benchmark(Path("own.yaml"))


def asked(benchmark: Benchmark, subset: str = "", **settings: Any) -> list[Any]:
    return questions(benchmark, benchmark.subsets[subset], cache=Path("cache"), **settings)


def shipped(name: str, folder: str) -> Benchmark:
    """A shipped benchmark with its data in a folder, as a user has it who cannot reach the hub."""
    lines = (SHIPPED / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    lines = [f"source: {{folder: {folder}}}" if line.startswith("source:") else line for line in lines]
    Path(f"{name}.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_benchmark(Path(f"{name}.yaml"))


@pytest.mark.covers("B13")
def test_rows_become_questions_with_context_question_and_references() -> None:
    jsonl("rows.jsonl", ROWS)
    first, second, third = asked(own())
    assert (first.context, first.question, first.references) == ("Bergen is wet.", " What is wet?", ("Bergen",))
    assert second.references == ("wet",)
    assert third.prompt == "Oslo is {dry}. What is dry?"
    assert first.cluster == second.cluster != third.cluster, "questions on one context are of one cluster"
    assert [each.id for each in (first, second, third)] == ["0", "1", "2"]
    assert len(asked(own(), limit=2)) == 2


@pytest.mark.covers("B13")
@pytest.mark.parametrize("ending", ["jsonl", "json", "csv", pytest.param("parquet", marks=pytest.mark.slow)])
def test_all_formats_give_the_same_questions(ending: str) -> None:
    jsonl("rows.jsonl", [{**row, "references": json.dumps(row["references"])} for row in ROWS[::2]])
    right = asked(own())
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    if ending == "json":
        Path("rows.json").write_text(json.dumps(rows))
    elif ending == "csv":
        quoted = [",".join('"' + text.replace('"', '""') + '"' for text in row.values()) for row in rows]
        Path("rows.csv").write_text("\n".join([",".join(rows[0]), *quoted]) + "\n")
    elif ending == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), "rows.parquet")
    assert asked(own(PLAIN.replace("rows.jsonl", f"rows.{ending}"))) == right


@pytest.mark.covers("B13")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "own: no such file: rows.jsonl. Correct 'source', or put the data there."),
        ("", "own: the data have no rows. Correct 'source' of the benchmark 'own'."),
        ("\n\n", "own: the data have no rows."),
        ("{]\n", "own: rows.jsonl: line 1 is no JSON"),
        ("[1]\n", "own: rows.jsonl: line 1 is no object."),
        (
            '{"context": "c", "qestion": "q", "references": "r"}\n',
            "own: row 1 has no column 'question'. Did you mean 'qe",
        ),
        (
            '{"context": "c", "question": null, "references": "r"}\n',
            "own: row 1: 'question' is NoneType, not a text.",
        ),
        ('{"context": ["c"], "question": "q", "references": "r"}\n', "own: row 1: 'context' is list, not a text."),
        (
            '{"context": "c", "question": "q", "references": []}\n',
            "own: row 1: 'references' has no reference to score",
        ),
        ('{"context": "c", "question": "q", "references": null}\n', "own: row 1: 'references' has no reference"),
        ('{"context": "c", "question": "q"}\n', "own: row 1 has no column 'references'. It has: context, question."),
    ],
)
def test_data_that_do_not_load_are_one_line_and_leave_no_file(text: str | None, says: str) -> None:
    if text is not None:
        Path("rows.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        asked(own())
    [line] = caught.value.mistakes
    assert line.startswith(says), line
    assert not Path("cache").exists() or not list(Path("cache").iterdir())


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("{file: rows.txt}", "files of the kind '.txt' are not read. Use one of .jsonl, .json, .csv, .parquet."),
        ("{file: rows.parquet}", "is no Parquet file"),
        ("{folder: nowhere}", "nowhere has none of test.jsonl, test.json, test.csv, test.parquet."),
        ('{folder: nowhere, files: "part{subset}.jsonl"}', "no such file: nowhere/part.jsonl."),
    ],
)
def test_a_source_that_cannot_be_read_is_one_line(source: str, says: str) -> None:
    for name in ("rows.txt", "rows.parquet"):
        Path(name).write_text("text")
    with pytest.raises(UserError) as caught:
        asked(own(PLAIN.replace("{file: rows.jsonl}", source)))
    [line] = caught.value.mistakes
    assert line.startswith("own: ")
    assert says in line


def test_two_questions_of_one_id_are_an_error() -> None:
    jsonl("rows.jsonl", [{**row, "key": "k"} for row in ROWS])
    with pytest.raises(UserError, match="own: two questions have the id 'k'"):
        asked(own(PLAIN + "columns: {id: key}\n"))


def test_questions_are_read_from_the_cache_until_data_or_template_change() -> None:
    jsonl("rows.jsonl", ROWS)
    first = asked(own())
    [path] = Path("cache").iterdir()
    written = path.stat().st_mtime_ns
    assert asked(own()) == first
    assert asked(own(PLAIN.replace("qa_f1", "accuracy"))) == first, "another scorer asks the same"
    assert [each.stat().st_mtime_ns for each in Path("cache").iterdir()] == [written]
    assert asked(own(PLAIN.replace("{context} {", "{context}\\n{")))[0].question == "\nWhat is wet?"
    jsonl("rows.jsonl", ROWS[:1])
    assert len(asked(own())) == 1
    assert len(list(Path("cache").iterdir())) == 3


def test_a_damaged_file_of_questions_is_named_with_its_remedy() -> None:
    jsonl("rows.jsonl", ROWS)
    asked(own())
    [path] = Path("cache").iterdir()
    path.write_text(path.read_text().splitlines()[0] + '\n{"id": 3}\n')
    with pytest.raises(UserError, match=r"jsonl:2: damaged: .* Remove the file; it is made anew\."):
        asked(own())
    path.write_text("")
    with pytest.raises(UserError, match="jsonl: damaged: it has no questions"):
        asked(own())


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"limit": 0}, "0 questions cannot be asked. Ask 1 or more."),
        ({"length_words": 100}, "its contexts have the length that they have. Remove the length in words."),
    ],
)
def test_settings_that_do_not_fit_a_task_are_an_error(settings: dict[str, int], says: str) -> None:
    jsonl("rows.jsonl", ROWS)
    with pytest.raises(UserError, match=says):
        asked(own(), **settings)


def test_a_maker_of_the_users_own_needs_one_file_and_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    Path("own_maker.py").write_text(
        "def sums(random, number, *, terms: int = 2):\n"
        "    values = [random.randint(1, 9) for _ in range(terms)]\n"
        "    yield {'question': ' + '.join(map(str, values)), 'references': [sum(values)]}\n"
    )
    text = PLAIN.replace("{file: rows.jsonl}", '{made_by: "own_maker:sums"}').replace("{context} {", "{")
    benchmark = own(text + "columns: {context: null}\nquestions: 4\nsettings: {terms: 3}\n")
    found = asked(benchmark)
    assert len(found) == 4
    for question in found:
        assert eval(question.prompt) == int(question.references[0])
        assert question.prompt.count("+") == 2
    with pytest.raises(UserError, match="have the length that they have"):
        asked(benchmark, length_words=10)


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
            assert score(benchmark, subset, first, right)["score"] == 1, subset.name
            assert score(benchmark, subset, first, "")["score"] == 0, subset.name


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
    assert score(benchmark, benchmark.subsets["shortdep_cloze"], cloze, "{'<mask-0>': 'Ann'}")["score"] == 1
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
    assert "Problem: What is $2^{5}+1$?\n" in question.question
    assert r"within \boxed{...} format" in question.question
    assert score(benchmark, benchmark.subsets[""], question, r"\boxed{033}") == {"score": 1, "answered": 1}


@pytest.mark.parametrize(
    ("source", "subset", "arguments"),
    [
        (
            Source(hub="THUDM/LongBench", revision="main", files="zip://data/{subset}.jsonl::data.zip"),
            "qasper",
            {
                "path": "json",
                "data_files": "zip://data/qasper.jsonl::hf://datasets/THUDM/LongBench@main/data.zip",
                "split": "train",
            },
        ),
        (
            Source(hub="a/b", revision="c0ffee", files="{subset}.parquet"),
            "x",
            {"path": "parquet", "data_files": "hf://datasets/a/b@c0ffee/x.parquet", "split": "train"},
        ),
        (
            Source(hub="a/b", revision="c0ffee", config="{subset}"),
            "x",
            {"path": "a/b", "name": "x", "revision": "c0ffee", "split": "test"},
        ),
    ],
)
def test_a_data_set_of_the_hub_is_asked_for_at_its_revision(
    source: Source, subset: str, arguments: dict[str, Any]
) -> None:
    assert hub_arguments(source, subset) == arguments


def test_without_the_package_a_data_set_of_the_hub_is_one_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    benchmark = read_benchmark(SHIPPED / "longbench.yaml")
    with pytest.raises(UserError) as caught:
        asked(benchmark, "qasper")
    [line] = caught.value.mistakes
    assert line.startswith("longbench/qasper: reading 'THUDM/LongBench' needs the package 'datasets'")
    assert "source: {folder: FOLDER}" in line


def test_a_data_set_that_the_hub_does_not_give_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    from types import ModuleType

    hub = ModuleType("datasets")

    def load_dataset(**arguments: str) -> None:
        raise ConnectionError(f"cannot reach\n{arguments['data_files']}")

    hub.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", hub)
    with pytest.raises(UserError) as caught:
        asked(read_benchmark(SHIPPED / "longbench.yaml"), "qasper")
    [line] = caught.value.mistakes
    assert (
        "'THUDM/LongBench' at 'main' cannot be loaded: ConnectionError: cannot reach zip://data/qasper.jsonl" in line
    )
    assert not Path("cache").exists() or not list(Path("cache").iterdir())
