"""Scorers against cases worked out by hand from the published rules, quirks among them. Sources: their modules."""

import pytest

from seamark.errors import UserError
from seamark.report.page.answer_costs import pass_at_k
from seamark_evaluate.tasks.benchmark import Question, Source, Subset, Value
from seamark_evaluate.tasks.scoring.choices import retrieval
from seamark_evaluate.tasks.scoring.table import SCORERS, score

CLASSES = ("person", "Description of a person", "city", "Other")
PAIR = '{"<mask-0>": "Bob Hope", "<mask-1>": "Paris"}'


def scored(
    scorer: str, answer: str, references: tuple[str, ...], facts: dict[str, Value] | None = None, first: bool = False
) -> dict[str, float | None]:
    qualities = SCORERS[scorer].qualities if scorer in SCORERS else ("score",)
    source = Source(file="none.jsonl")
    subset = Subset(
        benchmark="tried", name="", source=source, template="", scorer=scorer, qualities=qualities, first_line=first
    )
    question = Question(id="0", context="", question="", references=references, cluster="0", facts=facts or {})
    return dict(score(subset, question, answer))


ONE = [
    # LongBench, metrics.py: qa_f1_score
    ("qa_f1", "Maren Dahl", "Maren Dahl", 1),
    ("qa_f1", "The engineer Maren Dahl.", "Maren Dahl", 0.8),  # precision 2/3, recall 1
    ("qa_f1", "Dahl, Dahl", "a Dahl", 2 / 3),  # counted as often as in both: precision 1/2, recall 1
    ("qa_f1", "", "Maren Dahl", 0),
    ("qa_f1", "the", "a", 0),  # nothing is left of either: not equal
    ("qa_f1", "well-known", "well known", 0),  # the hyphen goes without a blank
    # ZeroSCROLLS: the same without accents
    ("qa_f1_ascii", "Malmö", "Malmo", 1),
    ("qa_f1_ascii", "café noir", "cafe", 2 / 3),
    ("qa_f1_ascii", "ÉTÉ", "ete", 1),
    ("qa_f1_ascii", "", "ete", 0),
    ("qa_f1_ascii", "winter", "ete", 0),
    # InfiniteBench, compute_scores.py: qa_f1_score_zh
    ("qa_f1_characters", "北京，", "北京", 1),
    ("qa_f1_characters", "北京市", "北京", 0.8),
    ("qa_f1_characters", "《北京》", "北京", 0.8),  # one of the two brackets is no punctuation there
    ("qa_f1_characters", "AB c", "abc", 1),
    ("qa_f1_characters", "", "北京", 0),
    # LongBench: count_score, retrieval_score, retrieval_zh_score
    ("count", "5", "5", 1),
    ("count", "There are 5 of 12", "5", 1 / 2),
    ("count", "5, 5 and 5", "5", 1),
    ("count", "five", "5", 0),
    ("count", "07", "7", 0),
    ("count", "3.5", "5", 1 / 2),
    ("retrieval", "Paragraph 7", "Paragraph 7", 1),
    ("retrieval", "7, or 12", "Paragraph 7", 1 / 2),
    ("retrieval", "Paragraph 17", "Paragraph 7", 0),
    ("retrieval", "段落7", "段落7", 1),
    ("retrieval", "", "段落7", 0),
    # LongBench: code_sim_score
    ("code_similarity", "return x", "return x", 1),
    ("code_similarity", "```python\nreturn x\n```", "return x", 1),
    ("code_similarity", "# returns\nreturn y", "return x", 0.88),  # 14 of 16 characters, rounded to hundredths
    ("code_similarity", 'u = "http://x"\nu = 1', "u = 1", 1),  # a line with // counts as a comment
    ("code_similarity", "abcd", "bcde", 0.75),
    ("code_similarity", "# a\n# b", "return x", 0),
    ("code_similarity", "", "return x", 0),
    # LongBench v2, pred.py: extract_answer
    ("stated_letter", "The correct answer is (B).", "B", 1),
    ("stated_letter", "So: The correct answer is **B**", "B", 1),
    ("stated_letter", "The correct answer is (C), not B", "B", 0),
    ("stated_letter", "B", "B", 0),
    ("stated_letter", "the correct answer is (B)", "B", 0),
    ("stated_letter", "", "B", 0),
    # ZeroSCROLLS, section 4 of the paper: accuracy, exponential similarity, concordance index
    ("letter", "B", "B", 1),
    ("letter", "The answer is (C), not A", "C", 1),
    ("letter", "I choose D.", "D", 1),
    ("letter", "A dog", "D", 0),
    ("letter", "", "B", 0),
    ("digest_share", "50%", "50%", 1),
    ("digest_share", "40%", "50%", 1 / 2),  # 2 ** (-10 * 0.1)
    ("digest_share", "2 of 4, so 30%", "50%", 1 / 4),
    ("digest_share", "about 60", "50%", 1 / 2),
    ("digest_share", "most of them", "50%", 0),
    ("order", "1, 2, 3", "1,2,3", 1),
    ("order", "1 3 2", "1,2,3", 2 / 3),
    ("order", "3 2 1", "1,2,3", 0),
    ("order", "2 3 1", "2,3,1", 1),
    ("order", "1 2", "1,2,3", 0),
    ("order", "", "1,2,3", 0),
]


@pytest.mark.covers("B13")
@pytest.mark.parametrize(("scorer", "answer", "reference", "right"), ONE)
def test_a_scorer_of_one_reference_gives_the_published_score(
    scorer: str, answer: str, reference: str, right: float
) -> None:
    assert scored(scorer, answer, (reference,)) == {"score": pytest.approx(right)}


SEVERAL = [
    # RULER, constants.py and evaluate.py
    ("string_match_all", "123 and 456", ("123", "456"), 1),
    ("string_match_all", "123", ("123", "456"), 1 / 2),
    ("string_match_all", "x1234", ("123", "456"), 1 / 2),  # inside of words too
    ("string_match_all", "ab", ("AB",), 1),
    ("string_match_all", "12\x003", ("123",), 0),  # unprintable characters become line ends
    ("string_match_all", "", ("123", "456"), 0),
    ("string_match_part", "in oslo", ("Bergen", "Oslo"), 1),
    ("string_match_part", "Bergenfield", ("Bergen", "Oslo"), 1),
    ("string_match_part", "Bergen and Oslo", ("Bergen", "Oslo"), 1),
    ("string_match_part", "Berg", ("Bergen", "Oslo"), 0),
    ("string_match_part", "", ("Bergen",), 0),
    # InfiniteBench, compute_scores.py
    ("first_number", "The key is 71432.", ("71432",), 1),
    ("first_number", "5 digits: 71432", ("71432",), 0),
    ("first_number", "714321", ("71432",), 0),
    ("first_number", "7143", ("07143",), 0),
    ("first_number", "", ("71432",), 0),
    ("whole_word", 'value: "ab-1".', ("ab-1",), 1),
    ("whole_word", "ab-1", ("ab-1",), 1),
    ("whole_word", "ab-12", ("ab-1",), 0),
    ("whole_word", "AB-1", ("ab-1",), 0),
    ("whole_word", "", ("ab-1",), 0),
    ("speaker", "It is Ace.", ("ACE", "ACE ROTHSTEIN"), 1),
    ("speaker", "Ace Rothstein", ("ACE", "ACE ROTHSTEIN"), 1),
    ("speaker", "Rothstein", ("ACE", "ACE ROTHSTEIN"), 0),
    ("speaker", "Ace Rothstein", ("ACE ROTHSTEIN",), 1),
    ("speaker", "Bill Ecker", ("ADRIAN", "ECKER"), 1),  # any of the references
    ("speaker", "a place", ("ACE",), 1),  # inside of a word
    ("speaker", "", ("ACE",), 0),
    ("last_number", "The value is 7.", ("7",), 1),
    ("last_number", "-7", ("-7",), 1),
    ("last_number", "3.7", ("7",), 1),  # the full stop cuts the number
    ("last_number", "7 apples", ("7",), 0),
    ("last_number", "", ("7",), 0),
    ("found_number", "is 4 or 5", ("4",), 1),
    ("found_number", "-4", ("4",), 1),  # signs are not read
    ("found_number", "4.0", ("4",), 0),  # the published scorer fails here
    ("found_number", "1.50", ("1.5",), 1),
    ("found_number", "", ("4",), 0),
    ("counted_prefix", "[1, 4, 8]", ("1", "4", "8"), 1),
    ("counted_prefix", "1 4 9 8", ("1", "4", "8"), 2 / 3),
    ("counted_prefix", "1, 4", ("1", "4", "8"), 2 / 3),
    ("counted_prefix", "2 4 8", ("1", "4", "8"), 0),
    ("counted_prefix", "", ("1", "4", "8"), 0),
    ("book_choice", "B", ("a garden", "B"), 1),
    ("book_choice", "The answer is: B", ("a garden", "B"), 1),
    ("book_choice", "Don't know", ("a garden", "D"), 1),  # the first letter is D
    ("book_choice", "the answer is a garden", ("a garden", "B"), 1),
    ("book_choice", "It is C, or B", ("a garden", "B"), 1),  # the last letter counts
    ("book_choice", "the answer is", ("a garden", "B"), 0),
    ("book_choice", "", ("a garden", "B"), 0),
    ("book_choice", " B. a garden", ("a garden", "B"), 1),  # a model begins with a blank
    ("book_choice", " C. a house", ("a garden", "B"), 0),
    ("book_choice", "not C but B", ("a garden", "B"), 1),  # the last letter of the line
    ("book_choice", "not B but C", ("a garden", "B"), 1),  # else the first word that is one
    ("book_choice", "not C but D", ("a garden", "B"), 0),
    ("book_choice", "C, not D, or B?\nOr A", ("a garden", "D"), 0),
    ("book_choice", "B, not C", ("a garden", "B"), 1),  # not the last one, but the first letter of the answer
    ("book_choice", "So B.\nC is wrong", ("a garden", "B"), 1),  # the first line with a letter
    ("book_choice", "\n a garden ", ("a garden", "B"), 1),  # the text of the option and nothing else
    ("book_choice", "the garden", ("a garden", "B"), 0),
    ("code_debug", "C. run", ("run", "C"), 1),
    ("code_debug", "The answer is: run", ("run", "C"), 1),
    ("code_debug", "It is: D", ("run", "C"), 0),
    ("code_debug", "C", ("run", "C"), 1),
    ("code_debug", "", ("run", "C"), 0),
    ("code_debug", " C. run", ("run", "C"), 1),  # a model begins with a blank
    ("code_debug", " B. walk", ("run", "C"), 0),
    ("code_debug", "not B but C", ("run", "C"), 1),  # the last letter of the line
    ("code_debug", "not C but B", ("run", "C"), 0),
    ("code_debug", "I think C", ("run", "C"), 1),  # I is a letter from A to J too, but not the last one
    ("code_debug", "runner", ("run", "C"), 1),  # begins with the name
    ("code_debug", "Code has none", ("run", "C"), 1),  # begins with the letter, as published
    ("code_debug", "Option C", ("run", "C"), 1),
    ("code_debug", "The answer is: C, and A is not", ("run", "C"), 1),  # behind 'answer is:', though A is the last
    # ours
    ("exact_word", " value3 and", ("value3",), 1),
    ("exact_word", "value31", ("value3",), 0),
    ("exact_word", "Value3", ("value3",), 0),
    ("exact_word", "so value3", ("value3",), 0),
    ("exact_word", "", ("value3",), 0),
    ("accuracy", " Yes ", ("yes",), 1),
    ("accuracy", "B", ("a", "b"), 1),
    ("accuracy", "yes.", ("yes",), 0),
    ("accuracy", "no", ("yes",), 0),
    ("accuracy", "", ("yes",), 0),
]


@pytest.mark.covers("B13")
@pytest.mark.parametrize(("scorer", "answer", "references", "right"), SEVERAL)
def test_a_scorer_of_all_references_gives_the_published_score(
    scorer: str, answer: str, references: tuple[str, ...], right: float
) -> None:
    assert scored(scorer, answer, references) == {"score": pytest.approx(right)}


@pytest.mark.covers("B13")
@pytest.mark.parametrize(
    ("answer", "reference", "classes", "right"),
    [
        ("Description of a person", "Description of a person", CLASSES, 1),  # `person` is inside of it
        ("person", "person", CLASSES, 1),
        ("person or city", "person", CLASSES, 1 / 2),
        ("Description of a person", "person", CLASSES, 1 / 2),  # the outer class stays for the inner one
        ("abc", "abc", ("a", "ab", "abc"), 1 / 2),  # `ab` is skipped when `a` is removed, as published
        ("village", "city", CLASSES, 0),
        ("", "city", CLASSES, 0),
    ],
)
def test_classes_inside_of_classes_are_counted_as_published(
    answer: str, reference: str, classes: tuple[str, ...], right: float
) -> None:
    found = scored("classification", answer, (reference,), {"all_classes": classes})
    assert found == {"score": pytest.approx(right)}


@pytest.mark.parametrize(
    ("answer", "right", "answered"),
    [
        (r"so \boxed{33}", 1, 1),
        (r"\boxed{033}", 1, 1),
        (r"\boxed{1}, no: \boxed{33}", 1, 1),
        (r"33 first, \boxed{34} last", 0, 1),
        ("Then\nthe answer is 33.", 1, 1),
        ("It is 33 of 50.\n\nDone.", 1, 1),  # the last line that has a number, and its first one
        ("1033", 0, 0),  # more than three digits
        (r"\boxed{} or 33", 0, 0),  # nothing else counts where there is a box
        (r"\boxed{33 of 40}", 1, 1),
        (r"\boxed{\textbf{33}}", 1, 1),
        (r"\boxed{\text{about } 33}", 0, 0),  # a box ends at its first closing brace
        ("boxed{34}, 33", 0, 1),  # no box: the first number of the line
        (r"\boxed{\text{none}}", 0, 0),
        ("", 0, 0),
    ],
)
@pytest.mark.covers("B13")
def test_the_last_boxed_number_counts_and_else_the_last_line(answer: str, right: float, answered: float) -> None:
    assert scored("boxed", answer, ("33",)) == {"score": right, "answered": answered}


@pytest.mark.parametrize(
    ("answer", "right", "answered"),
    [
        (r"so \boxed{33}", 1, 1),
        (r"\boxed{1}, no: \boxed{33}", 1, 1),
        (r"\boxed{40 - 7 = 33}", 1, 1),  # the last number of the box
        (r"\boxed{33 of 40}", 0, 1),
        (r"\boxed{033}", 0, 1),  # compared as text
        ("boxed{33}", 1, 1),  # without its backslash
        (r"\boxed{x}. The answer is 33, of 40.", 1, 1),  # a box without a number
        ("Solution: 12.\nSo the ANSWER is 33. I had 7.", 1, 1),  # the last statement, in any case
        ("The answer is 1033.\nOr 33", 1, 1),  # a statement beyond 999 counts not
        (
            "The answer is 33. The solution is 1033.",
            1,
            1,
        ),  # the last 'answer is', where the last statement is too large
        ("The answer is 033.", 0, 1),
        ("50 and 33\nDone.", 1, 1),  # the last line with a number, and its last one
        ("033", 1, 1),  # no box, no statement: a number
        ("33\n5 of 1000", 1, 1),  # a line that ends beyond 999: the line before it
        ("33 of 1000", 1, 1),  # any number from the end
        ("1000", 0, 0),
        ("none", 0, 0),
        ("", 0, 0),
    ],
)
@pytest.mark.covers("B13")
def test_a_number_in_a_box_counts_else_a_stated_one_else_the_last(answer: str, right: float, answered: float) -> None:
    assert scored("boxed_or_stated", answer, ("33",)) == {"score": right, "answered": answered}


@pytest.mark.parametrize(
    ("samples", "right", "k", "probability"),
    [(10, 3, 1, 0.3), (4, 2, 2, 5 / 6), (5, 0, 2, 0), (10, 3, 8, 1), (1, 1, 1, 1)],
)
def test_pass_at_k_is_unbiased(samples: int, right: int, k: int, probability: float) -> None:
    assert pass_at_k(samples, right, k) == pytest.approx(probability)


@pytest.mark.parametrize(("samples", "right", "k"), [(3, 4, 1), (3, 1, 4), (0, 0, 1), (3, 1, 0)])
def test_pass_at_k_of_more_than_there_are_is_an_error(samples: int, right: int, k: int) -> None:
    with pytest.raises(ValueError, match="not defined"):
        pass_at_k(samples, right, k)


@pytest.mark.covers("B13")
@pytest.mark.parametrize(
    ("answer", "exact", "partial"),
    [
        ("{'<mask-0>': 'Bob Hope', '<mask-1>': 'Paris'}", 1, 1),
        ("{'<mask-0>': 'Bob', '<mask-1>': 'Rome'}", 0, 1 / 2),
        ("{'<mask-1>': 'Paris', '<mask-7>': 'Bob'}", 1 / 2, 1 / 2),
        ("Answer: {'<mask-1>': 'Paris'}", 0, 0),
        ('{"<mask-1>": null}', 0, 0),
        ("{'<mask-1>': __import__('os').getpid()}", 0, 0),
        ("", 0, 0),
    ],
)
def test_clozes_are_scored_by_mask_and_never_run(answer: str, exact: float, partial: float) -> None:
    assert scored("cloze", answer, (PAIR,)) == {"score": exact, "partial": partial, "masks": 2}


def test_the_best_of_several_references_counts() -> None:
    assert scored("qa_f1", "sixteen hours", ("16", "sixteen", "hours")) == {"score": pytest.approx(2 / 3)}


@pytest.mark.covers("B13")
def test_only_the_first_line_counts_where_longbench_says_so() -> None:
    assert scored("qa_f1", "\nBergen\nQuestion: more", ("Bergen",), first=True) == {"score": 1}
    assert scored("qa_f1", "\nBergen\nQuestion: more", ("Bergen",)) == {"score": pytest.approx(1 / 2)}


def test_a_question_that_its_scorer_cannot_score_is_named() -> None:
    with pytest.raises(ValueError, match=r"tried: question 0 lacks 'all_classes' for its scorer"):
        scored("classification", "person", ("person",))
    with pytest.raises(ValueError, match="no number of a paragraph"):
        retrieval("7", "seven")


def test_a_scorer_of_the_users_own_has_answer_and_question(tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "own_scorer.py").write_text(
        "def score(answer, question):\n    return {'score': float(answer.endswith(question.references[0]))}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert scored("own_scorer:score", "it is so", ("so",)) == {"score": 1}


@pytest.mark.slow
def test_scores_lie_between_0_and_1_for_any_answer() -> None:
    odd = [
        "",
        " ",
        "\n\n",
        "```",
        "#",
        "ABCD",
        "0" * 50,
        "{'a'",
        "答案：",
        "\x00",
        "\\boxed{",
        "A" * 5000,
        "9" * 5000,
    ]
    references = {"order": "1,2", "retrieval": "Paragraph 1", "cloze": PAIR, "digest_share": "5%"}
    for name, scorer in SCORERS.items():
        if scorer.packages:
            continue
        reference = (references.get(name, "7"), "B")[: 1 if name in references else 2]
        if name.startswith("boxed"):
            reference = ("7",)
        for answer in odd:
            try:
                found = scored(name, answer, reference, {"all_classes": CLASSES})
            except UserError as error:
                raise AssertionError(f"{name}: {answer!r}") from error
            assert 0 <= (found["score"] or 0) <= 1, (name, answer)
