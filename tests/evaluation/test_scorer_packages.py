"""Scorers that need packages of the environment `evaluation`, against cases worked out by hand from their rules."""

import pytest

from seamark_evaluate.tasks.scoring import summaries, words

pytestmark = pytest.mark.slow
WHERE = "the environment 'evaluation' has this package"


@pytest.mark.covers("B13")
@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        ("a b c", "a b d", 2 / 3),
        ("a b c", "a b c", 1),
        ("b a", "a b", 1 / 2),
        ("a. b", "a b", 1),  # cut at the full stop: the order of sentences does not count
        ("a a a", "a", 1),  # each word counts once
        ("A b", "a b", 1 / 2),  # capitals differ
        ("", "a b", 0),
        ("...", "a b", 0),
    ],
)
def test_rouge_l_is_that_of_the_package_rouge(answer: str, reference: str, right: float) -> None:
    pytest.importorskip("rouge", reason=WHERE)
    assert summaries.rouge_l(answer, reference) == pytest.approx(right, abs=1e-7)


def test_equal_texts_have_less_than_1_as_published() -> None:
    pytest.importorskip("rouge", reason=WHERE)
    assert summaries.rouge_l("a b", "a b") == pytest.approx(0.999999995, abs=1e-12)


@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        ("a b", "a b c d", (1 / 2, 1 / 2, 1 / 3)),
        ("a b c d", "a b", (1, 1, 1)),
        ("d c b a", "a b c d", (1 / 4, 1, 0)),
        ("", "None of it", (1 / 3, 1 / 3, 0)),  # an empty answer counts as 'None'
        ("x", "a b", (0, 0, 0)),
    ],
)
def test_recall_of_rouge_is_that_of_loogle(answer: str, reference: str, right: tuple[float, float, float]) -> None:
    pytest.importorskip("rouge", reason=WHERE)
    found = summaries.rouge_recall(answer, reference)
    assert (found["score"], found["rouge1"], found["rouge2"]) == pytest.approx(right)


@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        ("The Cat sat", "the cat sat", 1),  # case and punctuation do not count
        ("one two three", "one two four", 2 / 3),
        ("two\none", "one two", 1),  # sentences are lines
        ("", "one", 0),
        ("cats", "cat", 0),  # no stemmer
    ],
)
def test_rouge_lsum_is_that_of_infinitebench(answer: str, reference: str, right: float) -> None:
    pytest.importorskip("rouge_score", reason=WHERE)
    assert summaries.rouge_l_sum(answer, reference) == pytest.approx(right)


@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        ("one two three", "one two four", ((2 / 3 * 1 / 2 * 2 / 3) ** (1 / 3), 2 / 3, 1 / 2, 2 / 3)),
        ("one two", "one two", (1, 1, 1, 1)),
        ("bridges stood", "bridge stood", (1, 1, 1, 1)),  # a stemmer
        ("two one", "one two", (0, 1, 0, 1 / 2)),
        ("", "one two", (0, 0, 0, 0)),
    ],
)
def test_the_geometric_mean_of_rouge_is_that_of_zero_scrolls(
    answer: str, reference: str, right: tuple[float, ...]
) -> None:
    pytest.importorskip("rouge_score", reason=WHERE)
    assert tuple(summaries.rouge_geometric(answer, reference).values()) == pytest.approx(right)


@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        ("我来到北京", "北京", 1 / 2),  # three words, one of them right
        ("北京。", "北京", 1),
        ("北京 北京", "北京", 2 / 3),
        ("上海", "北京", 0),
        ("", "北京", 0),
    ],
)
def test_chinese_words_are_those_of_jieba(answer: str, reference: str, right: float) -> None:
    pytest.importorskip("jieba", reason=WHERE)
    assert words.qa_f1_chinese(answer, reference) == pytest.approx(right)


@pytest.mark.parametrize(
    ("answer", "reference", "right"),
    [
        ("我来到北京", "我来到北京", 1),
        ("我来到北京", "北京", 1 / 2),
        ("北京", "我来到北京", 1 / 2),
        ("上海", "北京", 0),
        ("", "北京", 0),
    ],
)
def test_rouge_of_chinese_texts_counts_the_words_of_jieba(answer: str, reference: str, right: float) -> None:
    pytest.importorskip("jieba", reason=WHERE)
    pytest.importorskip("rouge", reason=WHERE)
    assert summaries.rouge_l_chinese(answer, reference) == pytest.approx(right, abs=1e-7)
