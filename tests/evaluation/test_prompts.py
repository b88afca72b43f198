"""Templates: what is context and what question, and how their places are filled."""

import pytest

from seamark_evaluate.tasks.question_files import filled, parts, places


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
