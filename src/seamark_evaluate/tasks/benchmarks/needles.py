"""needles: `key value` pairs of words among filler words, for models whose answers are known from positions alone.

Every word of the vocabulary is one token of a word-level tokenizer, so positions in words are positions in tokens.
"""

from collections.abc import Iterator, Sequence
from random import Random

from seamark_evaluate.attention.known_answers import FILLERS, needle_keys, needle_values
from seamark_evaluate.tasks.benchmark import Row

KEYS = 128
"""Number of keys of the shipped task; it has as many values."""


def rows(
    random: Random,
    number: int,
    *,
    length_words: int,
    depths: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0),
    keys: int = KEYS,
) -> Iterator[Row]:
    """Yield one question for each depth, all on one context of exactly `length_words` words.

    The key at depth d stands at word `round(d * (length_words - 2))`, counted from 0, or at the next free pair of
    words; its value follows it. Facts: `needle_position` is that place, `depth_ratio` that place over the last one
    that a key can have, `length_words` the length. Raises ValueError for a context that cannot hold its pairs.
    """
    if length_words < 2 * len(depths) or len(depths) > keys or not all(0 <= depth <= 1 for depth in depths):
        raise ValueError(
            f"{len(depths)} pairs of {keys} keys do not fit {length_words} words: give 0 to 1 for each of 'depths',"
            f" at most {keys} of them, and a length of {2 * len(depths)} words or more."
        )
    words = random.choices(FILLERS, k=length_words)
    asked = random.sample(needle_keys(keys), len(depths))
    values = random.sample(needle_values(keys), len(depths))
    places = _places(sorted(depths), length_words)
    for position, key, value in zip(places, asked, values, strict=True):
        words[position : position + 2] = [key, value]
    for position, key, value in zip(places, asked, values, strict=True):
        yield {
            "context": " ".join(words),
            "question": key,
            "references": (value,),
            "cluster": f"context {number}",
            "depth_ratio": position / max(length_words - 2, 1),
            "needle_position": position,
            "length_words": length_words,
        }


def _places(depths: Sequence[float], length_words: int) -> list[int]:
    """Places of pairs that do not overlap, as near to the depths as a walk from both ends gives."""
    places: list[int] = []
    for depth in depths:
        places.append(max(round(depth * (length_words - 2)), places[-1] + 2 if places else 0))
    last = length_words - 2
    for index in range(len(places) - 1, -1, -1):
        places[index] = min(places[index], last)
        last = places[index] - 2
    return places
