r"""Whole numbers in `\boxed{...}`, the answers to AIME problems, and pass@k over several samples.

Sources: the instruction of the AIME prompts; the unbiased estimator of Chen et al. 2021,
https://arxiv.org/abs/2107.03374.
"""

import re
from math import comb

_BOXED = re.compile(r"\\boxed\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_NUMBER = re.compile(r"\d+")
_ALONE = re.compile(r"\b\d{1,3}\b")


def boxed_number(answer: str) -> int | None:
    r"""Return the first number in the last `\boxed{}`, else the first of one to three digits in the last line.

    `033` is 33. None where neither has a number.
    """
    boxes = _BOXED.findall(answer)
    if boxes:
        found = _NUMBER.search(boxes[-1].replace(",", ""))
        return int(found.group()) if found else None
    lines = [line for line in answer.splitlines() if line.strip()]
    alone = _ALONE.search(lines[-1]) if lines else None
    return int(alone.group()) if alone else None


def boxed(answer: str, reference: str) -> dict[str, float]:
    """Return `score`, 1 for the right number, and `answered`, 1 where the answer has a number at all."""
    number = boxed_number(answer)
    return {"score": float(number == int(reference)), "answered": float(number is not None)}


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Return the probability that at least one of k of the samples is right: 1 - C(n - c, k) / C(n, k).

    Unbiased for k up to the number of samples. Raises ValueError for other numbers.
    """
    if not 0 <= right <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} of {samples} samples with {right} right is not defined.")
    return 1 - comb(samples - right, k) / comb(samples, k)
