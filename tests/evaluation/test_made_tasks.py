"""Tasks that are made from a seed: the same seed gives the same questions, facts are true, and lengths are kept."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from seamark.errors import UserError
from seamark_evaluate.attention.known_answers import needle_vocabulary
from seamark_evaluate.config.benchmark_files import read_benchmark, task_of, tasks_of
from seamark_evaluate.tasks.benchmark import Question
from seamark_evaluate.tasks.benchmarks import infinite_bench, needles, ruler, ruler_words
from seamark_evaluate.tasks.question_files import questions
from seamark_evaluate.tasks.scoring.table import SCORERS, score

pytestmark = pytest.mark.slow
FOLDERS = (Path(__file__).parents[2] / "config" / "benchmarks",)
RULER = tasks_of("ruler", FOLDERS)
SYNTHETIC = tuple(f"infinite_bench/{name}" for name in ("passkey", "number_string", "kv_retrieval"))
MADE = (*RULER, *SYNTHETIC, "needles")
NIAH = tuple(name for name in RULER if "/niah" in name)


def made(task: str, cache: Path, limit: int = 6, length_words: int | None = 600, seed: int = 0) -> list[Question]:
    return questions(task_of(task, FOLDERS), seed=seed, limit=limit, length_words=length_words, cache=cache)


def answered(task: str, question: Question, answer: str) -> Mapping[str, float | None]:
    return score(task_of(task, FOLDERS), question, answer)


@pytest.mark.covers("B13")
@pytest.mark.parametrize("task", MADE)
def test_the_same_seed_gives_the_same_questions_and_another_seed_others(task: str, tmp_path: Path) -> None:
    first = made(task, tmp_path / "a")
    assert made(task, tmp_path / "b") == first
    assert made(task, tmp_path / "b", limit=3) == first[:3], "fewer questions are the first ones"
    assert [each.prompt for each in made(task, tmp_path / "a", seed=1)] != [each.prompt for each in first]
    assert len({each.id for each in first}) == 6


@pytest.mark.parametrize("task", MADE)
@pytest.mark.parametrize("length_words", [400, 3000])
def test_contexts_fill_the_length_asked_for_and_do_not_exceed_it(
    task: str, length_words: int, tmp_path: Path
) -> None:
    frame = 60  # words of the template
    for question in made(task, tmp_path, length_words=length_words, limit=3):
        words = len(question.context.split())
        assert length_words - 60 <= words <= length_words + frame, words
        assert question.facts["length_words"] == length_words


@pytest.mark.parametrize("task", MADE)
def test_the_right_answer_scores_1_and_none_0(task: str, tmp_path: Path) -> None:
    for question in made(task, tmp_path, limit=3):
        assert answered(task, question, " ".join(question.references))["score"] == 1
        assert answered(task, question, "")["score"] == 0
        assert answered(task, question, "I do not know.")["score"] == 0


@pytest.mark.covers("B13")
@pytest.mark.parametrize("length_words", [10, 11, 64, 1000])
def test_a_needle_is_where_its_facts_say_and_nowhere_else(length_words: int, tmp_path: Path) -> None:
    found = made("needles", tmp_path, limit=20, length_words=length_words)
    for question in found:
        words = question.context.split()
        place = question.facts["needle_position"]
        key = question.question.strip()
        assert isinstance(place, int)
        assert len(words) == length_words
        assert [i for i, word in enumerate(words) if word == key] == [place]
        assert words[place + 1] == question.references[0]
        assert words.count(question.references[0]) == 1
        assert question.facts["depth_ratio"] == pytest.approx(place / (length_words - 2))
        assert question.max_new_tokens == 1
    assert [each.cluster for each in found] == [f"context {n}" for n in range(4) for _ in range(5)]
    assert [each.facts["needle_position"] for each in found[::5]] == [0] * 4
    assert [each.facts["needle_position"] for each in found[4::5]] == [length_words - 2] * 4


def test_depths_of_needles_are_those_asked_for() -> None:
    rows = list(needles.rows(Random(0), 0, length_words=1002, depths=(0.0, 0.1, 0.5, 0.999, 1.0)))
    assert [row["needle_position"] for row in rows] == [0, 100, 500, 998, 1000], "the last two do not overlap"


def test_all_words_of_needles_are_of_its_vocabulary(tmp_path: Path) -> None:
    vocabulary = needle_vocabulary(needles.KEYS)
    assert len(set(vocabulary)) == len(vocabulary)
    assert not any(re.search(r"\s", word) for word in vocabulary)
    for question in made("needles", tmp_path, limit=20):
        assert set(question.prompt.split()) | set(question.references) <= set(vocabulary)


@pytest.mark.parametrize(
    ("length_words", "depths"), [(9, (0.0, 0.25, 0.5, 0.75, 1.0)), (100, (1.5,)), (100, (-0.1,))]
)
def test_needles_that_do_not_fit_are_an_error(length_words: int, depths: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        list(needles.rows(Random(0), 0, length_words=length_words, depths=depths))


@pytest.mark.parametrize("task", NIAH)
def test_a_haystack_holds_each_needle_asked_for_once_and_at_its_depth(task: str, tmp_path: Path) -> None:
    for question in made(task, tmp_path):
        text, values = question.context, question.references
        assert all(text.count(value) == 1 for value in values)
        assert len(values) == (4 if task.endswith(("multivalue", "multiquery")) else 1)
        first = min(text.index(value) for value in values)
        assert isinstance(depth := question.facts["depth_ratio"], float)
        if not task.endswith("multiquery"):  # there the first key asked for need not be the first in the text
            assert first / len(text) == pytest.approx(depth, abs=0.12)
        for value in values:
            [key] = re.findall(rf"for (\S+) is: {re.escape(value)}\.", text)
            assert key in question.question


def test_kinds_of_haystacks_keys_and_values_are_the_published_ones(tmp_path: Path) -> None:
    found = {task.partition("/niah_")[2]: made(task, tmp_path, limit=1)[0] for task in NIAH}
    uuid = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    needles_in = {name: len(re.findall("One of the special magic", each.context)) for name, each in found.items()}
    assert {name: needles_in[name] for name in ("single_1", "multikey_1", "multivalue", "multiquery")} == {
        "single_1": 1,
        "multikey_1": 4,
        "multivalue": 4,
        "multiquery": 4,
    }
    assert needles_in["multikey_2"] > 40
    assert needles_in["multikey_3"] > 40
    assert found["single_1"].context.count("The grass is green.") > 20
    assert re.fullmatch(r"[1-9]\d{6}", found["single_1"].references[0])
    assert re.fullmatch(uuid, found["single_3"].references[0])
    assert re.search(rf"the special magic uuid for {uuid} mentioned", found["multikey_3"].question)
    assert "What is the special magic number for" in found["multikey_1"].question
    assert "What are all the special magic numbers for" in found["multivalue"].question
    assert found["multiquery"].answer_prefix.count(", ") == 3


def test_variables_follow_each_other_through_their_chain(tmp_path: Path) -> None:
    for question in made("ruler/vt", tmp_path):
        text = question.context.rpartition("Memorize and track")[2]
        start, *steps = re.findall(r"VAR (\w{5}) = (?:VAR )?(\w+)", text)
        assert start[1] in question.question
        assert [start[0], *(name for name, _ in steps)] == list(question.references)
        assert [before for _, before in steps] == list(question.references)[:-1], "in order, each from the one before"
        assert "5 variables are assigned" in question.answer_prefix
        assert question.context.count("Memorize and track") == 2, "an example, then the task"


def test_several_chains_have_different_variables() -> None:
    [row] = ruler.variable_tracking(Random(3), 0, length_words=800, chains=3, hops=2)
    names = re.findall(r"VAR (\w{5}) =", row["context"])
    assert len(set(names)) == len(names) == 9
    assert set(row["references"]) < set(names)


@pytest.mark.covers("B13")
@pytest.mark.parametrize(
    ("length_words", "lines"),
    [
        (3000, 15),  # 500 of 4,096 tokens: (3000 / 8 - 82) / 19 = 15.4
        (20_000, 15),
        (1600, 6),  # (200 - 82) / 19 = 6.2
        (600, 5),
    ],
)
def test_the_solved_example_of_variables_is_as_long_as_published(
    length_words: int, lines: int, tmp_path: Path
) -> None:
    [question] = made("ruler/vt", tmp_path, length_words=length_words, limit=1)
    example = question.context.rpartition("Memorize and track")[0]
    assert example.count("The grass is green.") == lines
    assert len(re.findall(r"VAR \w{3} =", example)) == 5


def test_an_example_of_many_assignments_has_a_line_for_each() -> None:
    [row] = ruler.variable_tracking(Random(3), 0, length_words=800, hops=9)
    assert row["example"].count("The grass is green.") == 10


@pytest.mark.parametrize(
    ("length_words", "often", "seldom"), [(600, 6, 1), (2047, 6, 1), (2048, 30, 3), (3000, 30, 3), (5000, 30, 3)]
)
def test_common_words_occur_as_often_as_published(length_words: int, often: int, seldom: int, tmp_path: Path) -> None:
    for question in made("ruler/cwe", tmp_path, length_words=length_words, limit=2):
        listed = question.context.rpartition("most often.\n")[2]
        counts = Counter(re.findall(r"\d+\. (\w+)", listed))
        assert {word for word, times in counts.items() if times == often} == set(question.references)
        assert set(counts.values()) == {often, seldom}
        assert len(question.references) == 10


def test_coded_words_have_the_frequencies_of_a_zeta_distribution(tmp_path: Path) -> None:
    for question in made("ruler/fwe", tmp_path, length_words=3000, limit=3):
        text = question.context.partition("coded words. ")[2].rpartition("\nQuestion")[0] or question.context
        counts = Counter(re.findall(r"\b[a-z]{6}\b|\.\.\.", text.partition("coded words. ")[2] or text))
        ranked = [counts[word] for word in ("...", *question.references)]
        assert ranked == sorted(ranked, reverse=True)
        assert [times / ranked[0] for times in ranked] == pytest.approx([1, 1 / 4, 1 / 9, 1 / 16], abs=0.01)


def test_the_zeta_function_is_right() -> None:
    scipy = pytest.importorskip("scipy.special")
    for alpha in (1.1, 1.5, 2.0, 3.5):
        assert ruler_words._zeta(alpha) == pytest.approx(float(scipy.zeta(alpha)), rel=1e-8)


@pytest.mark.parametrize("task", ["ruler/qa_1", "ruler/qa_2"])
def test_documents_have_the_answer_in_one_and_lead_to_it(task: str, tmp_path: Path) -> None:
    for question in made(task, tmp_path):
        documents = dict(re.findall(r"Document \d+:\n(\w+)\n(.+)", question.context))
        asked = question.question.rpartition("Question: ")[2]
        if task.endswith("2"):
            [person] = re.findall(r"where (\w+) was born", asked)
            [town] = re.findall(r"was born in (\w+)\.", documents[person])
            assert town not in asked
        else:
            [town] = re.findall(r"the town (\w+)\?", asked)
        assert f"every {question.references[0]} made there" in documents[town]


@pytest.mark.covers("B13")
@pytest.mark.parametrize("task", SYNTHETIC[:2])
def test_a_hidden_number_is_said_twice_at_its_depth(task: str, tmp_path: Path) -> None:
    found = made(task, tmp_path, limit=60)
    for question in found:
        lines = question.context.strip().split("\n")[2:]
        [place] = [i for i, line in enumerate(lines) if question.references[0] in line]
        assert lines[place].count(question.references[0]) == 2
        assert question.facts["depth_ratio"] == pytest.approx(place / (len(lines) - 1))
        assert re.fullmatch(r"\d{5}" if "passkey" in task else r"\d{10}", question.references[0])
    depths = [each.facts["depth_ratio"] for each in found]
    assert (depths[0], depths[58], depths[59]) == (0, 1, 0), "59 depths, then the first again"


def test_a_number_string_repeats_its_digits() -> None:
    for seed in range(50):
        [row] = infinite_bench.number_string(Random(seed), 0, length_words=100)
        assert any(a == b for a, b in zip(row["references"][0], row["references"][0][1:], strict=False))


def test_a_key_has_its_value_in_the_json_object(tmp_path: Path) -> None:
    for question in made("infinite_bench/kv_retrieval", tmp_path, length_words=202):
        pairs = re.findall(r'"(\S+)": "(\S+)"', question.context)
        assert len(pairs) == 100
        [key] = re.findall(r'Key: "(\S+)"', question.question)
        assert dict(pairs)[key] == question.references[0]
        assert '"}\n\n\nKey: "' in question.prompt, "two line ends of the template, and one of the question"


@pytest.mark.covers("B13")
def test_places_of_keys_are_the_published_ones_evenly_spread_from_the_first_questions_on() -> None:
    def place(number: int, pairs: int) -> int:
        [row] = infinite_bench.kv_retrieval(Random(number), number, length_words=2 + 2 * pairs)
        return round(float(row["depth_ratio"]) * (pairs - 1))

    assert Counter(place(number, 100) for number in range(500)) == dict.fromkeys(range(100), 5)
    # published: question n of 500 asks for key 5 n of 2,500; here question n takes the place of question 309 n
    assert [place(number, 2500) for number in range(4)] == [0, 5 * 309, 5 * 118, 5 * 427]
    assert place(500, 100) == 0


def test_lengths_of_made_tasks_are_the_published_ones() -> None:
    subsets = read_benchmark(FOLDERS[0] / "infinite_bench.yaml").subsets
    for name, maker in (("passkey", infinite_bench.passkey), ("number_string", infinite_bench.number_string)):
        [row] = maker(Random(0), 1, length_words=subsets[name].length_words)
        assert row["context"].count("The grass is green.") == 5220, name
        assert row["depth_ratio"] == 90 / 5220, "59 depths in steps of 90 lines"
    [row] = infinite_bench.kv_retrieval(Random(0), 0, length_words=subsets["kv_retrieval"].length_words or 0)
    assert row["context"].count(": ") - row["context"].count("data: ") == 2500
    assert subsets["passkey"].template.startswith(
        "There is an important info hidden inside a lot of irrelevant text. Find it and memorize it. I will quiz you"
        " about the important information.\n\n"
    )


@pytest.mark.parametrize("task", MADE)
def test_a_length_that_is_too_short_is_one_line(task: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        made(task, tmp_path, length_words=4)
    [line] = caught.value.lines
    assert line.startswith(f"{task}: ")
    assert "or more" in line
    assert not list(tmp_path.iterdir()), "nothing is written"


@pytest.mark.covers("B13")
def test_the_mock_benchmark_has_five_questions_on_three_contexts(tmp_path: Path) -> None:
    subset = task_of("mock_benchmark", FOLDERS)
    found = questions(subset, cache=tmp_path)
    assert [each.cluster for each in found] == ["context 0", "context 0", "context 1", "context 2", "context 2"]
    assert len({each.context for each in found}) == 3
    for question in found:
        assert question.references[0] in question.context
        assert score(subset, question, f" {question.references[0]}.")["score"] == 1
    assert questions(subset, seed=7, cache=tmp_path) == found


def test_made_tasks_need_no_package_that_scores() -> None:
    for task in (*MADE, "mock_benchmark"):
        assert not SCORERS[task_of(task, FOLDERS).scorer].packages
