"""RULER, aggregation and question answering: common words, frequent coded words, documents. Made by its published
rules.

Source: scripts/data/synthetic/common_words_extraction.py, freq_words_extraction.py and qa.py of NVIDIA/RULER.
Different here: lengths are in words; coined words stand for those of the package wonderwords; short documents of
our own, with questions of one and of two steps, stand for SQuAD and HotpotQA. So scores are not those of the
leaderboard.
"""

from collections.abc import Iterator
from random import Random
from string import ascii_lowercase
from typing import Any

from seamark_evaluate.tasks.benchmark import Row
from seamark_evaluate.tasks.benchmarks.words import NOUNS, coined_words, length_of, require_length, sentences


def common_words(
    random: Random, number: int, *, length_words: int, common: int = 10, short_words: int = 2048
) -> Iterator[Row]:
    """Yield a question for the `common` words that a numbered list repeats most often, with a solved example.

    Below `short_words` they are repeated 6 times and others once, else 30 and 3 times. Published, this changes at
    4,096 tokens: an entry of the list, such as `12. lantern`, is two words and about four tokens.
    """
    often, seldom, shown = (6, 1, (20, 3, 1)) if length_words < short_words else (30, 3, (40, 10, 3))
    example, solved = _listed(random, shown[0], common, shown[1], shown[2])
    text = f"{_COMMON.format(context=example)} {' '.join(f'{i + 1}. {word}' for i, word in enumerate(solved))}\n"
    require_length(length_words, length_of(text) + 2 * (common * often + seldom))
    others = ((length_words - length_of(text)) // 2 - common * often) // seldom
    context, right = _listed(random, common + others, common, often, seldom)
    yield {"context": context, "example": text, "references": tuple(right), "length_words": length_words}


_COMMON = (
    "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that"
    " appear most often.\n{context}\nQuestion: What are the 10 most common words in the above list? Answer: The top"
    " 10 words that appear most often in the list are:"
)


def _listed(random: Random, words: int, common: int, often: int, seldom: int) -> tuple[str, list[str]]:
    named = coined_words(random, words)
    entries = named[:common] * often + named[common:] * seldom
    random.shuffle(entries)
    return " ".join(f"{index + 1}. {word}" for index, word in enumerate(entries)), named[:common]


def frequent_words(
    random: Random, number: int, *, length_words: int, alpha: float = 2.0, letters: int = 6
) -> Iterator[Row]:
    """Yield a question for the three most frequent coded words of a text whose counts follow a zeta distribution.

    The word of rank k occurs `int(n * k ** -alpha / zeta(alpha))` times; the first rank is the noise `...`.
    """
    require_length(length_words, 60)
    vocabulary: dict[str, None] = {}
    while len(vocabulary) < max(length_words // 50, 8):
        vocabulary["".join(random.choices(ascii_lowercase, k=letters))] = None
    ranked = ["...", *list(vocabulary)[1:]]
    low, high = 1, 4 * length_words
    while low < high:  # the largest n whose text is not longer than asked for
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(_counts(middle, len(ranked), alpha)) <= length_words else (low, middle - 1)
    words = [word for word, times in zip(ranked, _counts(low, len(ranked), alpha), strict=True) for _ in range(times)]
    random.shuffle(words)
    yield {"context": " ".join(words), "references": tuple(ranked[1:4]), "length_words": length_words}


def _counts(total: int, ranks: int, alpha: float) -> list[int]:
    return [int(total * rank**-alpha / _zeta(alpha)) for rank in range(1, ranks + 1)]


def _zeta(alpha: float, terms: int = 200) -> float:
    """Riemann's zeta above 1, by Euler and Maclaurin's sum: right to 1e-9 and better."""
    head = sum(rank**-alpha for rank in range(1, terms))
    return float(head + terms ** (1 - alpha) / (alpha - 1) + terms**-alpha / 2 + alpha * terms ** (-alpha - 1) / 12)


def documents(random: Random, number: int, *, length_words: int, steps: int = 1) -> Iterator[Row]:
    """Yield a question on one of many short documents on invented towns; with two steps on two of them.

    One step asks for the craft of a town; two steps for the craft of the town where somebody was born.
    """
    require_length(length_words, 40 * steps)
    texts: list[str] = []
    facts: list[dict[str, Any]] = []
    room, made = length_words, sentences(random)
    for town, person in zip(_titles(random), _titles(random), strict=False):
        craft, age = random.choice(NOUNS), random.randint(200, 900)
        towns = f"{town}\n{town} is a town of {age} years. {next(made)} It is known for every {craft} made there."
        people = f"{person}\n{person} was born in {town}. {next(made)}"
        pair = [towns, people] if steps > 1 else [towns]
        room -= sum(length_of(text) + 2 for text in pair)
        if room < 0 and facts:
            break
        texts += pair
        facts.append({"town": town, "person": person, "craft": craft})
    asked = random.choice(facts)
    random.shuffle(texts)
    about = f"the town where {asked['person']} was born" if steps > 1 else f"the town {asked['town']}"
    place = next(i for i, text in enumerate(texts) if text.startswith(f"{asked['town']}\n"))
    yield {
        "context": "\n\n".join(f"Document {i + 1}:\n{text}" for i, text in enumerate(texts)),
        "query": f"What is made in {about}?",
        "references": (asked["craft"],),
        "depth_ratio": place / max(len(texts) - 1, 1),
        "length_words": length_words,
    }


def _titles(random: Random) -> Iterator[str]:
    """Invented names, each once."""
    seen: set[str] = set()
    while True:
        [name] = coined_words(random, 1)
        if name not in seen:
            seen.add(name)
            yield name.capitalize()
