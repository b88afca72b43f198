r"""Whole numbers in `\boxed{...}`, the answers to AIME problems.

Sources: benchmark/AIME2024 and benchmark/AIME2025 of xAlg-ai/sparse-attention-hub, which read an answer in two ways.
Published quirk: a box ends at its first closing brace.
"""

import re

from seamark_evaluate.tasks.scoring.matching import plain_digits

_BOX = re.compile(r"\\boxed\{([^}]*)\}")
_BARE_BOX = re.compile(r"boxed\{([^}]*)\}")
_DIGITS = re.compile(r"\d+")
_ALONE = re.compile(r"\b\d+\b")
_SHORT = re.compile(r"\b\d{1,3}\b")
_STATES = r"\s*(?:is|:)\s*(\d+)"
_STATED = tuple(
    re.compile(words + _STATES, re.IGNORECASE)
    for words in ("(?:answer|solution)", "answer", r"(?:therefore|thus|so)\s*(?:the\s+)?(?:answer|solution)")
)


def boxed(answer: str, reference: str) -> dict[str, float]:
    r"""Return `score`, 1 for the right number, and `answered`, 1 where the answer has a number at all (AIME 2024).

    The first number in the last `\boxed{}` counts, and nothing else where there is one. Else it is the first number
    of one to three digits in the last line that has one. `033` is 33.
    """
    return _scored(_boxed(answer), plain_digits(reference))


def boxed_or_stated(answer: str, reference: str) -> dict[str, float]:
    r"""Return `score` and `answered` as `boxed` (AIME 2025).

    The last number in the last `\boxed{}` counts, which may lack its backslash. Else it is the last one behind
    `answer is`, `answer:`, `solution is` or `solution:`, else the last number of a line, of the last line where
    that is one of 0 to 999, else the last such number anywhere. Published quirk: numbers in a box or behind such
    words are compared as text, so `033` is not 33 there.
    """
    return _scored(_boxed_or_stated(answer), reference)


def _scored(number: str | None, reference: str) -> dict[str, float]:
    return {"score": float(number == reference), "answered": float(number is not None)}


def _boxed(answer: str) -> str | None:
    if boxes := _BOX.findall(answer):
        found = _DIGITS.search(boxes[-1])
        return plain_digits(found.group()) if found else None
    lines = (found for line in reversed(answer.split("\n")) if (found := _SHORT.search(line)))
    return next((plain_digits(match.group()) for match in lines), None)


def _boxed_or_stated(answer: str) -> str | None:
    boxes = _BOX.findall(answer) or _BARE_BOX.findall(answer)
    if boxes and (numbers := _DIGITS.findall(boxes[-1])):
        return str(numbers[-1])
    for stated in _STATED:
        if (numbers := stated.findall(answer)) and _is_answer(numbers[-1]):
            return str(numbers[-1])
    by_line = [_ALONE.findall(line) for line in answer.split("\n")]
    last = [numbers[-1] for numbers in reversed(by_line) if numbers]
    every = [number for numbers in reversed(by_line) for number in reversed(numbers)]
    return next((plain_digits(number) for number in (*last, *every) if _is_answer(number)), None)


def _is_answer(number: str) -> bool:
    """Return whether a number is one of 0 to 999."""
    return len(plain_digits(number)) <= 3
