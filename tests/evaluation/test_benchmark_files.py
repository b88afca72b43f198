"""Files of benchmarks: the shipped ones, tasks by name, and every mistake on a line with its place and remedy."""

from pathlib import Path

import pytest
from wrong_files import change, wrong_files

from seamark.config.extends import yaml_files
from seamark.errors import UserError
from seamark_evaluate.config.benchmark_files import read_benchmark, task_of, tasks_of
from seamark_evaluate.tasks.question_files import places

SHIPPED = Path(__file__).parents[2] / "config" / "benchmarks"
WRONG = wrong_files(Path(__file__).with_name("wrong_benchmarks.yaml"))
RIGHT = """\
# three subsets
name: tried
summary: Three subsets.
licence: MIT
references: [https://example.org/tried]
source: {folder: data}
columns: {context: text, question: input, references: answers, facts: [all_classes, level]}
template: "Read. {context} Question: {question}"
max_new_tokens: 8
subsets:
  plain: {scorer: qa_f1}
  classes: {scorer: classification, stop: ["\\n"]}
  made:
    source: {made_by: "seamark_evaluate.tasks.benchmarks.needles:rows"}
    columns: {context: context, question: question, references: references, facts: []}
    scorer: exact_word
    length_words: 100
    questions: 10
    settings: {depths: [0.0, 1.0], keys: 16}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("tried.yaml").write_text(RIGHT, encoding="utf-8")
    return Path("tried.yaml")


def test_a_subset_has_the_keys_of_its_benchmark_and_its_own(file: Path) -> None:
    benchmark = read_benchmark(file)
    plain, classes, made = benchmark.subsets.values()
    assert [each.task for each in (plain, classes, made)] == ["tried/plain", "tried/classes", "tried/made"]
    assert plain.template == classes.template == made.template == "Read. {context} Question: {question}"
    assert (plain.stop, classes.stop, plain.max_new_tokens) == ((), ("\n",), 8)
    assert (plain.source.kind, made.source.kind) == ("folder", "made")
    assert made.settings == {"depths": (0.0, 1.0), "keys": 16}
    assert plain.columns.facts == ("all_classes", "level")
    assert len({plain.digest, classes.digest, made.digest}) == 3


@pytest.mark.covers("B13", "B14")
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_of_a_benchmark_is_one_line_that_says_where_and_what(name: str, file: Path) -> None:
    entry = WRONG[name]
    change("tried.yaml", entry["old"], entry["new"])
    with pytest.raises(UserError) as caught:
        read_benchmark(file)
    assert caught.value.exit_code == 2
    line, *more = caught.value.lines
    assert line.startswith(f"tried.yaml:{entry['line']}:"), line
    assert entry["says"] in line
    assert bool(more) == entry.get("more", False), more
    assert [path.name for path in Path.cwd().iterdir()] == ["tried.yaml"]


def test_all_mistakes_are_reported_at_once(file: Path) -> None:
    change("tried.yaml", "max_new_tokens: 8", "max_new_tokens: 0")
    change("tried.yaml", "scorer: exact_word", "scorer: exact_wrod")
    change("tried.yaml", "licence: MIT", "licence: 3")
    with pytest.raises(UserError) as caught:
        read_benchmark(file)
    assert [line.split(" ")[0] for line in caught.value.lines] == ["tried.yaml:4:", "tried.yaml:9:"]
    change("tried.yaml", "max_new_tokens: 0", "max_new_tokens: 1")
    with pytest.raises(UserError) as caught:
        read_benchmark(file)
    assert [line.split(" ")[0] for line in caught.value.lines] == ["tried.yaml:4:", "tried.yaml:16:"]


@pytest.mark.covers("B13")
@pytest.mark.parametrize(
    ("task", "says"),
    [
        ("longbnech", "no benchmark has the name 'longbnech'. Did you mean 'longbench'?"),
        ("something", "no benchmark has the name 'something'. Known: aime2024, aime2025, infinite_bench"),
        ("", "no benchmark has the name ''."),
        ("longbench", "name a subset, as in 'longbench/narrativeqa'. It has: narrativeqa, qasper"),
        ("longbench/", "the name of a subset is missing behind '/'."),
        ("longbench/narativeqa", "has no subset 'narativeqa'. Did you mean 'narrativeqa'?"),
        ("longbench/xyz", "has no subset 'xyz'. It has: narrativeqa, qasper"),
        ("longbench/qasper/e", "has no subset 'qasper/e'. Did you mean 'qasper_e'?"),
        ("aime2024/I", "the benchmark 'aime2024' has no subsets. Write 'aime2024'."),
        ("LongBench/qasper", "no benchmark has the name 'LongBench'. Did you mean 'longbench'?"),
    ],
)
def test_a_wrong_name_of_a_task_is_one_line_with_the_nearest_guess(task: str, says: str) -> None:
    with pytest.raises(UserError) as caught:
        task_of(task, [SHIPPED])
    [line] = caught.value.lines
    assert line.startswith(f"'{task}'")
    assert says in line


@pytest.mark.covers("B5", "B13", "B16")
def test_a_benchmark_without_a_subset_stands_for_all_of_its_subsets() -> None:
    counts = {name: len(tasks_of(name, [SHIPPED])) for name in yaml_files([SHIPPED])}
    assert counts == {
        "aime2024": 1,
        "aime2025": 1,
        "infinite_bench": 12,
        "longbench": 21 + 13,
        "longbenchv2": 1,
        "loogle": 4,
        "mock_benchmark": 1,
        "needles": 1,
        "ruler": 13,
        "zero_scrolls": 10,
    }
    assert tasks_of("longbench/qasper", [SHIPPED]) == ("longbench/qasper",)
    assert tasks_of("mock_benchmark", [SHIPPED]) == ("mock_benchmark",)
    with pytest.raises(UserError, match="has no subset"):
        tasks_of("longbench/qaspr", [SHIPPED])


@pytest.mark.covers("B13")
def test_a_file_of_the_study_stands_for_the_shipped_one_of_its_name(file: Path) -> None:
    text = (SHIPPED / "mock_benchmark.yaml").read_text(encoding="utf-8")
    Path("mock_benchmark.yaml").write_text(text.replace("max_new_tokens: 16", "max_new_tokens: 5"), encoding="utf-8")
    own = task_of("mock_benchmark", [Path.cwd(), SHIPPED])
    shipped = task_of("mock_benchmark", [SHIPPED, Path.cwd()])
    assert (own.max_new_tokens, shipped.max_new_tokens) == (5, 16)
    assert task_of("tried/plain", [Path.cwd(), SHIPPED]).name == "plain"


@pytest.mark.covers("B13")
@pytest.mark.parametrize("name", sorted(yaml_files([SHIPPED])))
def test_each_shipped_benchmark_names_its_licence_and_where_its_rules_are_published(name: str) -> None:
    benchmark = read_benchmark(SHIPPED / f"{name}.yaml")
    assert benchmark.licence
    assert benchmark.references or name in ("mock_benchmark", "needles")
    for subset in benchmark.subsets.values():
        assert subset.max_new_tokens >= 1
        assert subset.qualities[0] == "score"
        assert subset.source.kind == "made" or subset.source.revision
        assert places(subset.template), "a template without a place asks the same of all"


@pytest.mark.covers("B13")
def test_lengths_and_processing_of_longbench_are_the_published_ones() -> None:
    subsets = read_benchmark(SHIPPED / "longbench.yaml").subsets
    first_line = {name for name, subset in subsets.items() if subset.first_line}
    assert first_line == {"trec", "triviaqa", "samsum", "lsht", "trec_e", "triviaqa_e", "samsum_e"}
    plain = {name for name, subset in subsets.items() if not subset.chat}
    assert plain == first_line | {"lcc", "repobench-p", "lcc_e", "repobench-p_e"}
    lengths = {name: subset.max_new_tokens for name, subset in subsets.items() if not name.endswith("_e")}
    assert lengths == {
        **dict.fromkeys(("narrativeqa", "qasper", "dureader", "samsum"), 128),
        **dict.fromkeys(("multifieldqa_en", "multifieldqa_zh", "trec", "lsht", "lcc", "repobench-p"), 64),
        **dict.fromkeys(("hotpotqa", "2wikimqa", "musique", "triviaqa", "passage_count"), 32),
        **dict.fromkeys(("passage_retrieval_en", "passage_retrieval_zh"), 32),
        **dict.fromkeys(("gov_report", "qmsum", "multi_news", "vcsum"), 512),
    }
    for name in (name for name in subsets if name.endswith("_e")):
        base, spread = subsets[name.removesuffix("_e")], subsets[name]
        assert (spread.template, spread.scorer, spread.stop) == (base.template, base.scorer, base.stop)
