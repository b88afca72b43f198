"""Classes, numbers of paragraphs and letters of choices, as LongBench, InfiniteBench and ZeroSCROLLS judge them.

Sources: metrics.py and pred.py of THUDM/LongBench; src/compute_scores.py of OpenBMB/InfiniteBench as it is since
August 2024 (its pull request 22); xAlg-ai/sparse-attention-hub has the same in benchmark/infinite_bench.
"""

import re
from collections.abc import Sequence

_LETTERS = "ABCD"
_NUMBER = re.compile(r"\d+")
_PARAGRAPH = re.compile(r"(?:Paragraph |段落)(\d+)")
_SAYS = (re.compile(r"The correct answer is \(([A-D])\)"), re.compile(r"The correct answer is ([A-D])"))
_LAST_OF_FOUR, _LAST_OF_TEN = (re.compile(rf"\b[{span}]\b(?!.*\b[{span}]\b)") for span in ("A-D", "A-J"))
_BEFORE_LETTER = ("answer is:", "answer:", "answer is", "option is")
_BEFORE_ERROR = ("answer is:", "is:", "answer:")
_ZERO_SCROLLS = (
    re.compile(r"\b(?:answer is|option is|choice is)[^A-D]*\(?([A-D])\b"),
    re.compile(r"\(([A-D])\)"),
    re.compile(r"\b([A-D])\b"),
)


def classification(answer: str, reference: str, classes: Sequence[str]) -> float:
    """Return 1 / n if the class is among the n that the answer names, else 0.

    Classes inside of the right one do not count, as every answer that names `Description of a person` also has
    `person`. Published quirk: they are removed while the list is walked, so the one after a removed class stays.
    """
    named = [label for label in classes if label in answer]
    place = 0
    while place < len(named):
        if named[place] in reference and named[place] != reference:
            named.remove(named[place])
        place += 1
    return 1 / len(named) if reference in named else 0.0


def count(answer: str, reference: str) -> float:
    """Return the share of the right number among all numbers of an answer, 0 for none. Numbers are compared as text:
    `07` is not `7`, `3.5` is 3 and 5."""
    numbers = _NUMBER.findall(answer)
    return numbers.count(reference) / len(numbers) if numbers else 0.0


def retrieval(answer: str, reference: str) -> float:
    """Return `count` for the number in `Paragraph 7` or `段落7`. Raises ValueError for another form."""
    number = _PARAGRAPH.search(reference)
    if number is None:
        raise ValueError(f"the reference '{reference}' has no number of a paragraph.")
    return count(answer, number.group(1))


def stated_letter(answer: str, reference: str) -> float:
    """Return 1 if the answer says `The correct answer is (B)`, with or without brackets and stars (LongBench v2).

    A letter alone counts as no answer, as published.
    """
    plain = answer.strip().replace("*", "")
    for pattern in _SAYS:
        if found := pattern.search(plain):
            return float(found.group(1) == reference)
    return 0.0


def book_choice(answer: str, references: Sequence[str]) -> float:
    """Return 1 for the letter of the right option, or its text (InfiniteBench, longbook_choice_eng).

    The last letter of a line counts that is a word from A to D; of several lines with one, the first. Where it is not
    the right one, so does the first letter of the answer if it is one of these, so `Don't know` is D; else the whole
    answer, the text behind `answer is` or the like, or the first word that is a part of `ABCD`.
    """
    plain = answer.strip()
    if _ends_with(_LAST_OF_FOUR, plain, references):
        return 1.0
    if not plain:
        return 0.0
    if plain[0] in _LETTERS:
        return float(plain[0] in references)
    if plain in references:
        return 1.0
    plain = _blanked(plain, "\n\"'.,?!{}")
    for prefix in _BEFORE_LETTER:
        if (start := plain.find(prefix)) >= 0:
            return float(any(plain[start + len(prefix) + 1 :].startswith(reference) for reference in references))
    for word in plain.split():
        if word in _LETTERS:
            return float(word in references)
    return 0.0


def code_debug(answer: str, references: Sequence[str]) -> float:
    """Return 1 for the letter of the function with the error, or its name (InfiniteBench). References: name, letter.

    The last letter of a line counts that is a word from A to J; of several lines with one, the first. Where it is not
    the right one, so does an answer that begins with letter or name, as `Bad` does for B, or letter or name behind
    `answer is:`, `is:` or `answer:`.
    """
    name, letter = references[0], references[1]
    plain = answer.strip()
    if _ends_with(_LAST_OF_TEN, plain, (letter,)):
        return 1.0
    for mark in ("\n", "`", "'", '"', "-", "*", "Option", "option"):
        plain = plain.replace(mark, " ")
    plain = re.sub(" +", " ", plain)
    if plain.startswith((letter, name)):
        return 1.0
    for prefix in _BEFORE_ERROR:
        if (start := plain.find(prefix)) >= 0:
            rest = plain[start + len(prefix) + 1 :]
            return float(rest.startswith((letter, name)) if rest else 0.0)
    return 0.0


def _ends_with(last: re.Pattern[str], answer: str, references: Sequence[str]) -> bool:
    found = last.search(answer)
    return found is not None and found.group() in references


def letter(answer: str, reference: str) -> float:
    """Return 1 for the right letter of A to D: behind `answer is`, else the first in brackets, else the first alone.

    ZeroSCROLLS publishes no program for this; its paper compares the letter that an answer names.
    """
    for pattern in _ZERO_SCROLLS:
        if found := pattern.search(answer):
            return float(found.group(1) == reference)
    return 0.0


def digest_share(answer: str, reference: str) -> float:
    """Return 2 ** (-10 * d) for shares that differ by d (ZeroSCROLLS, SpaceDigest). The first percentage of an answer
    counts, else its first number; an answer without one gives 0."""
    found = re.search(r"(\d+(?:\.\d+)?)\s*%", answer) or re.search(r"(\d+(?:\.\d+)?)", answer)
    right = re.search(r"\d+(?:\.\d+)?", reference)
    if found is None or right is None:
        return 0.0
    return float(2 ** (-10 * abs(float(found.group(1)) - float(right.group())) / 100))


def order(answer: str, reference: str) -> float:
    """Return the concordance index: the share of pairs in the right order (ZeroSCROLLS, BookSumSort).

    An answer that is no permutation of the reference's numbers gives 0.
    """
    given, right = _NUMBER.findall(answer), _NUMBER.findall(reference)
    if len(right) < 2 or sorted(given) != sorted(right) or len(set(right)) < len(right):
        return 0.0
    rank = {number: index for index, number in enumerate(right)}
    ranks = [rank[number] for number in given]
    pairs = [(a, b) for i, a in enumerate(ranks) for b in ranks[i + 1 :]]
    return sum(a < b for a, b in pairs) / len(pairs)


def _blanked(text: str, marks: str) -> str:
    return re.sub(" +", " ", text.translate(str.maketrans(marks, " " * len(marks))))
