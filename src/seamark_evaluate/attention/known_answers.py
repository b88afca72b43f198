"""Words of the task `needles`, and the outcome of each question to the known reader, from positions alone. No torch:
reports and tests compute it anywhere.

A prompt of `needles` is a context of `length_words` words and one word more, the key that is asked for; every word is
one token. The key stands at `needle_position` in the context and its value follows. The reader's layer 1 copies the
word before each position; layer 2 looks from the last position for one whose word before is the key. So the positions
that decide are:

- layer 2, the row of the question: it must keep the position of the value;
- layer 1, the row of the value: it must keep the position of the key. With `sparse_from: question` that row is dense.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from seamark_evaluate.attention.method import Method, SparseFrom

FILLERS = ("and", "but", "then", "so", "still", "also", "here", "there", "now", "once", "soon", "again")


def needle_keys(keys: int) -> tuple[str, ...]:
    """Return the words that are asked for."""
    return tuple(f"key{number}" for number in range(keys))


def needle_values(keys: int) -> tuple[str, ...]:
    """Return the words that answer."""
    return tuple(f"value{number}" for number in range(keys))


def needle_vocabulary(keys: int) -> Sequence[str]:
    """Return every word of contexts, questions and answers: fillers, keys, values."""
    return (*FILLERS, *needle_keys(keys), *needle_values(keys))


def expected_right(question_facts: Mapping[str, Any], method: Method, sparse_from: SparseFrom) -> bool:
    """Return whether the known reader's one-token answer is right under a fixed method.

    `question_facts` are those of `needles`: `needle_position` of the key and `length_words` of the context, in words.
    Raises ValueError for a method whose kept positions do not follow from positions alone.
    """
    if not method.is_fixed:
        raise ValueError(f"what '{method.name}' keeps depends on queries and keys: {method.document}")
    key, asked_at = int(question_facts["needle_position"]), int(question_facts["length_words"])
    value = key + 1
    if sparse_from == "generation":
        return True
    copied = sparse_from == "question" or method.keeps(key, value)
    return copied and method.keeps(value, asked_at)


def expected_density(prompt_tokens: int, method: Method) -> float:
    """Return kept keys over allowed ones of a fixed method in the row of the last token of a prompt."""
    sinks, start = method.fixed_window(prompt_tokens - 1)
    return (min(sinks, start) + prompt_tokens - start) / prompt_tokens
