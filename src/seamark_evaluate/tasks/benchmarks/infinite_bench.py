"""InfiniteBench: passkey, number_string and kv_retrieval made by their published rules, rows of the other tasks.

Source: data/construct_synthetic_dataset.py and src/eval_utils.py of OpenBMB/InfiniteBench, in the version with 2,500
pairs, which has the 121,100 tokens that the paper states. Published tasks take 590 or 500 questions of one length in
tokens; here the length is in words. Places are the published ones in another order: all 59 depths, then the same
again, or steps of 309 through the 500 places of keys. So few questions are spread over the whole context as well.
"""

import re
from collections.abc import Iterator
from random import Random
from uuid import UUID

from seamark_evaluate.tasks.benchmark import Row
from seamark_evaluate.tasks.benchmarks.words import NOISE, length_of, require_length

PLACES, STRIDE = 500, 309
"""Places of keys, and the step from that of one question to that of the next, which visits each of them once."""
_CALL = re.compile(r"func_[0-9]+\(-?[0-9]+\)")
_TARGET = re.compile(r"The (.+) of")
_LETTERS = "ABCD"


def passkey(random: Random, number: int, *, length_words: int, depths: int = 59) -> Iterator[Row]:
    """Yield a question for five digits, which may begin with 0, between lines of noise."""
    key = "".join(str(random.randint(0, 9)) for _ in range(5))
    hidden = f"The pass key is {key}. Remember it. {key} is the pass key."
    yield {"question": "What is the pass key?", "references": (key,), **_hidden(hidden, number, length_words, depths)}


def number_string(random: Random, number: int, *, length_words: int, depths: int = 59) -> Iterator[Row]:
    """Yield a question for ten digits: five, and five times one of those so far beside itself."""
    digits = [str(random.randint(0, 9)) for _ in range(5)]
    for more in range(5):
        place = random.randint(0, 4 + more)
        digits.insert(place, digits[place])
    key = "".join(digits)
    hidden = f"The sequence of digits is {key}. Remember it. {key} is the sequence of digits."
    found = _hidden(hidden, number, length_words, depths)
    yield {"question": "What is the sequence of digits?", "references": (key,), **found}


def kv_retrieval(random: Random, number: int, *, length_words: int) -> Iterator[Row]:
    """Yield a question for the value of one of `(length_words - 2) // 2` keys of a JSON object, all of them UUIDs.

    The places of 500 questions are evenly spread over the object, from the first key on.
    """
    require_length(length_words, 6)
    pairs = [(_uuid(random), _uuid(random)) for _ in range((length_words - 2) // 2)]
    place = number * STRIDE % PLACES * len(pairs) // PLACES
    key, value = pairs[place]
    yield {
        "context": "JSON data:\n{" + ", ".join(f'"{a}": "{b}"' for a, b in pairs) + "}",
        "question": f'\nKey: "{key}"\nThe value associated with the specified key is: ',
        "references": (value,),
        "depth_ratio": place / (len(pairs) - 1),
        "length_words": length_words,
    }


def with_options(row: Row) -> Iterator[Row]:
    """Yield a row of longbook_choice_eng or code_debug with its options as columns; references: text and letter."""
    options = [str(option) for option in row["options"]]
    answer = row["answer"] if isinstance(row["answer"], str) else row["answer"][0]
    named = {f"OPTION_{letter}": text for letter, text in zip(_LETTERS, options, strict=True)}
    yield {**row, **named, "answer": (answer, _LETTERS[options.index(answer)])}


def with_call(row: Row) -> Iterator[Row]:
    """Yield a row of code_run with the call that it asks for, and the name of its function."""
    found = _CALL.search(row["input"])
    if found is None:
        raise ValueError(f"no call of a function in '{row['input']}'.")
    yield {**row, "func_call": found.group(), "func": found.group().partition("(")[0]}


def with_target(row: Row) -> Iterator[Row]:
    """Yield a row of math_find with the sentence before its list: `What is the largest number in the following
    list?`.
    """
    found = _TARGET.search(row["input"])
    if found is None:
        raise ValueError(f"no number to find in '{row['input']}'.")
    yield {**row, "prefix": f"What is the {found.group(1).lower()} in the following list?"}


def _hidden(hidden: str, number: int, length_words: int, depths: int) -> Row:
    """Lines of noise with the line to find among them, as many as the length has room for."""
    require_length(length_words, length_of(hidden) + length_of(NOISE))
    lines = (length_words - length_of(hidden)) // length_of(NOISE)
    before = _step(number, depths, lines)
    return {
        "context": f"{NOISE}\n" * before + f"{hidden}\n" + f"{NOISE}\n" * (lines - before),
        "depth_ratio": before / lines,
        "length_words": length_words,
    }


def _step(number: int, depths: int, last: int) -> int:
    """Place of the number-th question, from 0 to the last: all depths before one of them comes again."""
    return round(number % depths * last / max(depths - 1, 1))


def _uuid(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128), version=4))
