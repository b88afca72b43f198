"""References that must be found in an answer: RULER, the retrieval tasks of InfiniteBench, and our own needles.

Sources: scripts/eval/synthetic/constants.py and evaluate.py of NVIDIA/RULER; src/compute_scores.py of
OpenBMB/InfiniteBench as it is since August 2024 (its issue 18).
"""

import re
from collections.abc import Sequence

_UNPRINTABLE = re.compile(r"[\x00-\x1f]")
_DECIMAL = re.compile(r"\d+\.\d+|\d+")
_WORD_MARKS = "\n:\"'.,?!{}"
_CALL_MARKS = "\n.`'\":"


def string_match_all(answer: str, references: Sequence[str]) -> float:
    """Return the share of the references that occur in the answer, in any case and inside of words too (RULER)."""
    text = _printable(answer)
    return sum(reference.lower() in text for reference in references) / len(references)


def string_match_part(answer: str, references: Sequence[str]) -> float:
    """Return 1 if any reference occurs in the answer, in any case and inside of words too (RULER, question
    answering).
    """
    text = _printable(answer)
    return float(any(reference.lower() in text for reference in references))


def first_number(answer: str, references: Sequence[str]) -> float:
    """Return 1 if the first run of digits is the reference (InfiniteBench, passkey and number_string)."""
    found = re.search("[0-9]+", answer)
    return float(found is not None and found.group() in references)


def whole_word(answer: str, references: Sequence[str]) -> float:
    """Return 1 if a reference is a word of the answer, between blanks and punctuation (InfiniteBench,
    kv_retrieval).
    """
    return float(any(reference in _words(answer, _WORD_MARKS) for reference in references))


def speaker(answer: str, references: Sequence[str]) -> float:
    """Return 1 if a reference occurs in the answer, in any case and inside of words too (InfiniteBench,
    longdialogue_qa_eng)."""
    text = answer.strip().upper()
    return float(any(reference.upper() in text for reference in references))


def last_number(answer: str, references: Sequence[str]) -> float:
    """Return 1 if the last word is the number (InfiniteBench, code_run). A full stop within a number cuts it."""
    words = _words(answer.strip(), _CALL_MARKS)
    try:
        return float(bool(words) and int(words[-1]) in [int(reference) for reference in references])
    except ValueError:
        return 0.0


def found_number(answer: str, references: Sequence[str]) -> float:
    """Return 1 if the first number of the answer is the reference (InfiniteBench, math_find).

    Published quirks: signs are not read, and `4.0` is no answer where a whole number is right: the published scorer
    fails there, which gives 0 here.
    """
    found, right = _DECIMAL.search(answer), references[0]
    if found is None:
        return 0.0
    if "." in right:
        return float(float(found.group()) == float(right))
    return float("." not in found.group() and plain_digits(found.group()) == plain_digits(right))


def counted_prefix(answer: str, references: Sequence[str]) -> float:
    """Return the share of right intermediate values before the first wrong one (InfiniteBench, math_calc)."""
    given = [plain_digits(number) for number in re.findall("[0-9]+", answer)]
    right = 0
    for value, reference in zip(given, references, strict=False):
        if value != plain_digits(reference):
            break
        right += 1
    return right / len(references)


def exact_word(answer: str, references: Sequence[str]) -> float:
    """Return 1 if the first word of the answer is the reference, case and all (ours, for known answers)."""
    words = answer.split()
    return float(bool(words) and words[0] in references)


def accuracy(answer: str, references: Sequence[str]) -> float:
    """Return 1 if the answer is a reference, apart from blanks around it and its case."""
    return float(answer.strip().lower() in [reference.strip().lower() for reference in references])


def plain_digits(digits: str) -> str:
    """Return digits without blanks around and zeros before them: as text, since Python reads no number of more than
    4,300 digits."""
    return digits.strip().lstrip("0") or "0"


def _printable(answer: str) -> str:
    return _UNPRINTABLE.sub("\n", answer.strip()).strip().lower()


def _words(answer: str, marks: str) -> list[str]:
    return answer.translate(str.maketrans(marks, " " * len(marks))).split()
