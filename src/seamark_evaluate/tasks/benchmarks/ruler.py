"""RULER, retrieval: needles in a haystack, and variables that are assigned in chains. Made by its published rules.

Source: scripts/data/synthetic/niah.py, variable_tracking.py and scripts/synthetic.yaml of NVIDIA/RULER. Different
here: lengths are in words, not in tokens of a model; sentences of our own stand for the essays of Paul Graham,
words of our own for those of the package wonderwords. So scores are not those of the published leaderboard.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from random import Random
from string import ascii_uppercase
from typing import Any, Literal
from uuid import UUID

from seamark_evaluate.tasks.benchmark import Row
from seamark_evaluate.tasks.benchmarks.words import NOISE, compound, length_of, require_length, sentences

Kind = Literal["words", "numbers", "uuids"]
DEPTHS = tuple(round(100 * step / 39) / 100 for step in range(40))
"""Depths of needles among sentences: 40 from 0 to 1."""
LONGEST_STRAW = 19
"""Words of the longest line or sentence of a haystack: a context holds its needles and one of them at least."""


def niah(
    random: Random,
    number: int,
    *,
    length_words: int,
    haystack: Literal["noise", "essay", "needle"] = "essay",
    key_type: Kind = "words",
    value_type: Kind = "numbers",
    keys: int = 1,
    values: int = 1,
    queries: int = 1,
) -> Iterator[Row]:
    """Yield a question for the values of `queries` of `keys` keys with `values` values each.

    `haystack`: lines of noise, sentences, or lines with other needles. Facts: `depth_ratio` is the place of the first
    needle asked for among the sentences or lines.
    """
    keys = max(keys, queries)
    names = _distinct(random, key_type, keys)
    hidden = {name: [_value(random, value_type) for _ in range(values)] for name in names}
    needles = [_needle(value_type, name, value) for name in names for value in hidden[name]]
    random.shuffle(needles)
    require_length(length_words, sum(map(length_of, needles)) + LONGEST_STRAW)
    room = length_words - sum(map(length_of, needles))
    straws = _straws(random, haystack, (key_type, value_type), room, set(names))
    placed = _placed(random, straws, needles, haystack)
    asked = random.sample(names, queries)
    first = min(placed.index(_needle(value_type, asked[0], value)) for value in hidden[asked[0]])
    plural = queries * values > 1
    yield {
        "context": (" " if haystack == "essay" else "\n").join(placed),
        "query": ", ".join(asked[:-1]) + ", and " + asked[-1] if queries > 1 else asked[0],
        "type_needle_v": value_type if plural else value_type.removesuffix("s"),
        "references": tuple(value for name in asked for value in hidden[name]),
        "depth_ratio": first / max(len(placed) - 1, 1),
        "length_words": length_words,
    }


def variable_tracking(
    random: Random, number: int, *, length_words: int, chains: int = 1, hops: int = 4, example_lines: int = 15
) -> Iterator[Row]:
    """Yield a question for all variables of the first of `chains` chains, each of `hops` assignments in order.

    Column `example` is a solved one with names of three letters. Published, it has the lines of noise that fit into
    500 tokens of 4,096 or more: 15 of 25 tokens beside the 106 of the rest. Here it has `example_lines`, fewer where
    it would take more than an eighth of the length, and 5 at least.
    """
    fewer = min(hops, 10)
    frame = length_of(_TRACK) + length_of(_ASK) + _statements(chains, fewer) + fewer + 1
    fitting = (length_words // 8 - frame) // length_of(NOISE)
    example = _tracked(random, max(5, fewer + 1, min(example_lines, fitting)), chains, fewer, letters=3)
    shown = f"{_TRACK}{example['context']}{_ASK.format(**example)}{' '.join(example['references'])}\n"
    room = length_words - length_of(shown) - _statements(chains, hops)
    require_length(length_words, length_words - room + (hops + 1) * length_of(NOISE))
    lines = room // length_of(NOISE)
    yield {**_tracked(random, lines, chains, hops, letters=5), "example": shown, "length_words": length_words}


def _statements(chains: int, hops: int) -> int:
    """Return the number of words of all assignments."""
    return chains * (4 + 5 * hops)


_TRACK = "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
_ASK = (
    "\nQuestion: Find all variables that are assigned the value {query} in the text above."
    " Answer: According to the chain(s) of variable assignment in the text above, {num_v} variables are assigned the"
    " value {query}, they are:  "
)


def _tracked(random: Random, lines: int, chains: int, hops: int, letters: int) -> dict[str, Any]:
    names = _names(random, chains * (hops + 1), letters)
    starts = [names[first : first + hops + 1] for first in range(0, len(names), hops + 1)]
    text = [NOISE] * lines
    query = ""
    for chain in starts:
        value = str(random.randint(10_000, 99_999))
        query = query or value
        steps = [
            f"VAR {chain[0]} = {value}",
            *(f"VAR {b} = VAR {a} " for a, b in pairwise(chain)),
        ]
        for moved, (position, step) in enumerate(
            zip(sorted(random.sample(range(len(text)), hops + 1)), steps, strict=True)
        ):
            text.insert(position + moved, step)
    return {"context": "\n".join(text), "query": query, "num_v": str(hops + 1), "references": tuple(starts[0])}


def _names(random: Random, count: int, letters: int) -> list[str]:
    names: dict[str, None] = {}
    while len(names) < count:
        names["".join(random.choices(ascii_uppercase, k=letters))] = None
    return list(names)


def _needle(kind: Kind, key: str, value: str) -> str:
    return f"One of the special magic {kind} for {key} is: {value}."


def _value(random: Random, kind: Kind) -> str:
    if kind == "numbers":
        return str(random.randint(1_000_000, 9_999_999))
    return compound(random) if kind == "words" else str(UUID(int=random.getrandbits(128), version=4))


def _distinct(random: Random, kind: Kind, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found[_value(random, kind)] = None
    return list(found)


def _straws(random: Random, haystack: str, kinds: tuple[Kind, Kind], room: int, taken: set[str]) -> list[str]:
    """The haystack without its needles: at most `room` words, and one straw at least."""
    if haystack == "noise":
        return [NOISE] * (room // length_of(NOISE))
    if haystack == "needle":
        count = room // length_of(_needle(kinds[1], "key", "value"))
        return [_needle(kinds[1], _other(random, kinds[0], taken), _value(random, kinds[1])) for _ in range(count)]
    straws: list[str] = []
    for sentence in sentences(random):
        room -= length_of(sentence)
        if room < 0:
            return straws
        straws.append(sentence)
    raise AssertionError("sentences never end")


def _other(random: Random, kind: Kind, taken: set[str]) -> str:
    """A key of another needle. Published ones may by chance have the key that is asked for; these never do."""
    return next(value for value in iter(lambda: _value(random, kind), None) if value not in taken)


def _placed(random: Random, straws: list[str], needles: Sequence[str], haystack: str) -> list[str]:
    """Needles among straws: at 40 depths among sentences, at any place among lines."""
    if haystack == "essay":
        depths = sorted(random.sample(DEPTHS, len(needles)))
        places = [int(len(straws) * depth) for depth in depths]
    else:
        places = sorted(random.sample(range(max(len(straws), len(needles))), len(needles)))
    placed, straw = [], iter(straws)
    for before, position, needle in zip([0, *places], places, needles, strict=False):
        placed += [*islice(straw, position - before), needle]
    return [*placed, *straw]
