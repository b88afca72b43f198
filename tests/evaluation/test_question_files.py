"""Questions read from files and makers, kept in a cache folder; whatever does not load is an error."""

import errno
import json
import re
import ssl
import sys
from codecs import BOM_UTF8
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import pyarrow
import pyarrow.parquet
import pytest
from question_data import SHIPPED, asked, jsonl

from seamark.errors import UserError
from seamark_evaluate.config.benchmark_files import read_benchmark
from seamark_evaluate.tasks.benchmark import Benchmark, Source
from seamark_evaluate.tasks.loading import category_of, hub_arguments
from seamark_evaluate.tasks.question_files import question_file, read_questions
from seamark_evaluate.tasks.scoring.table import score

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


def own(text: str = PLAIN) -> Benchmark:
    Path("own.yaml").write_text(text, encoding="utf-8")
    return read_benchmark(Path("own.yaml"))


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
@pytest.mark.parametrize("mark", [b"", BOM_UTF8])
def test_all_formats_give_the_same_questions(ending: str, mark: bytes) -> None:
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
    file = Path(f"rows.{ending}")
    if ending != "parquet":
        file.write_bytes(mark + file.read_bytes())
    assert asked(own(PLAIN.replace("rows.jsonl", file.name))) == right


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
    [line] = caught.value.lines
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
    [line] = caught.value.lines
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
    [line] = caught.value.lines
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
    [line] = caught.value.lines
    assert (
        "'THUDM/LongBench' at 'main' cannot be loaded: ConnectionError: cannot reach zip://data/qasper.jsonl" in line
    )
    assert category_of(caught.value) == "network_error"
    assert not Path("cache").exists() or not list(Path("cache").iterdir())


@pytest.mark.covers("B12")
def test_data_that_cannot_be_loaded_have_a_category_by_the_type_of_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("own.yaml").write_text(PLAIN, encoding="utf-8")
    Path("rows.jsonl").symlink_to("/proc/self/mem")  # its first byte cannot be read: EIO
    with pytest.raises(OSError, match="Input/output error") as caught:
        asked(read_benchmark(Path("own.yaml")))
    assert category_of(caught.value) == "filesystem_error"
    Path("rows.jsonl").unlink()
    for make in (Path.mkdir, Path.touch):  # a folder, a file without rows
        make(Path("rows.jsonl"))
        with pytest.raises(UserError) as wrong:
            asked(read_benchmark(Path("own.yaml")))
        assert category_of(wrong.value) == "dataset_error"
        if make is Path.mkdir:
            Path("rows.jsonl").rmdir()
    monkeypatch.setitem(sys.modules, "httpx", SimpleNamespace(TransportError=KeyError))
    reason = UserError("cannot be loaded")
    reason.__cause__ = KeyError("as httpx.ConnectError, which is no OSError")
    assert category_of(reason) == "network_error"
    for cause in (OSError(errno.ENETUNREACH, "unreachable"), ssl.SSLError(1, "certificate"), URLError("refused")):
        reason.__cause__ = cause
        assert category_of(reason) == "network_error", cause


def block(page: str, begin: str) -> str:
    """The block of a page that has this text."""
    text = (SHIPPED.parents[1] / "docs" / page).read_text(encoding="utf-8")
    return next(each for each in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL) if begin in each)


@pytest.mark.covers("B13")
def test_the_benchmark_of_the_page_on_extending_works() -> None:
    Path("capitals.yaml").write_text(block("extending.md", "name: capitals"), encoding="utf-8")
    row = {"text": "Oslo is in Norway.", "ask": "Its capital?", "city": "Oslo", "continent": "Europe"}
    jsonl("data/capitals.jsonl", [row])
    benchmark = read_benchmark(Path("capitals.yaml"))
    [question] = asked(benchmark)
    assert question.prompt == "Read the text.\n\nOslo is in Norway.\n\nQuestion: Its capital?\nAnswer:"
    assert question.facts == {"continent": "Europe"}
    assert score(benchmark.subsets[""], question, " oslo") == {"score": 1}


@pytest.mark.covers("B13")
def test_the_example_of_the_page_on_evaluation_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    code = block("how-to-evaluate.md", "tasks_of(").replace('"config/benchmarks"', repr(str(SHIPPED)))
    exec(compile(code, "how-to-evaluate.md", "exec"), {})
    assert capsys.readouterr().out == block("how-to-evaluate.md", "'needle_position': 11")


def test_a_file_of_questions_is_read_where_its_data_are_not() -> None:
    jsonl("rows.jsonl", ROWS)
    benchmark = own()
    path = question_file(benchmark.subsets[""], cache=Path("cache"))
    right = asked(benchmark)
    Path("rows.jsonl").unlink()
    assert read_questions(path) == right
    assert read_questions(path, 2) == right[:2]
