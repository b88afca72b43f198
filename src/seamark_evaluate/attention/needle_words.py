"""Words of the task `needles`: keys, values and filler. Each is one token of the known reader's tokenizer."""

from collections.abc import Sequence

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
