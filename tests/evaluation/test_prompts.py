"""Templates and truncation: what is context and what question, and which tokens of a long context are kept."""

import pytest

from seamark_evaluate.tasks.question_files import filled, parts, places
from seamark_evaluate.tasks.truncation import ContextTooLongError, truncated


@pytest.mark.parametrize(
    ("template", "context", "question"),
    [
        (
            "Read.\n{context}\n\nQuestion: {question}\nAnswer:",
            "Read.\n{context}",
            "\n\nQuestion: {question}\nAnswer:",
        ),
        ("{context}{question}Next line of code:\n", "{context}", "{question}Next line of code:\n"),
        ("Summarize.\n{context}", "Summarize.\n{context}", ""),
        ("Problem: {question}", "", "Problem: {question}"),
        ("{context} and again {context} {question}", "{context} and again {context}", " {question}"),
    ],
)
def test_a_template_is_cut_behind_its_last_context(template: str, context: str, question: str) -> None:
    assert parts(template) == (context, question)


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("{context}|{question}", {"context": "c", "question": "q"}, "c|q"),
        ("{context}", {"context": "a {question} {0} {}"}, "a {question} {0} {}"),  # braces of the text stay
        ("put it into \\boxed{...}: {q}", {"q": "1"}, "put it into \\boxed{...}: 1"),
        ("{'<mask-0>': 'Bob'} {q}", {"q": "1"}, "{'<mask-0>': 'Bob'} 1"),
        ("nothing", {}, "nothing"),
    ],
)
def test_places_are_filled_once_and_other_braces_stay(template: str, values: dict[str, str], text: str) -> None:
    assert filled(template, values) == text


def test_a_place_without_a_value_is_an_error_that_names_it() -> None:
    with pytest.raises(KeyError, match="question"):
        filled("{context} {question}", {"context": ""})
    assert places("{b} {a} {b}") == ("b", "a")


TOKENS = list(range(10))


@pytest.mark.parametrize(
    ("limit", "how", "kept"),
    [
        (10, "middle", TOKENS),
        (4, "middle", [0, 1, 8, 9]),
        (5, "middle", [0, 1, 8, 9]),  # half of an odd limit: one token fewer, as LongBench has it
        (9, "middle", [0, 1, 2, 3, 6, 7, 8, 9]),
        (2, "middle", [0, 9]),
        (3, "end", [0, 1, 2]),
        (1, "end", [0]),
        (10, "error", TOKENS),
        (None, "middle", TOKENS),
    ],
)
def test_a_context_keeps_its_ends_or_its_beginning(limit: int | None, how: str, kept: list[int]) -> None:
    assert truncated(TOKENS, limit, how) == (kept, 10 - len(kept))  # type: ignore[arg-type]


def test_a_context_that_is_too_long_can_be_an_error() -> None:
    with pytest.raises(ContextTooLongError, match="has 10 tokens, 9 at most"):
        truncated(TOKENS, 9, "error")


@pytest.mark.parametrize(("limit", "how"), [(1, "middle"), (0, "end"), (-1, "middle"), (0, "error")])
def test_a_limit_that_keeps_nothing_is_an_error(limit: int, how: str) -> None:
    with pytest.raises(ValueError, match="cannot be kept"):
        truncated(TOKENS, limit, how)  # type: ignore[arg-type]


def test_tokens_given_are_not_changed() -> None:
    tokens = tuple(range(6))
    assert truncated(tokens, 4) == ([0, 1, 4, 5], 2)
    assert tokens == (0, 1, 2, 3, 4, 5)
