"""Synthetic prompts of exact lengths, seeded: token ids, or texts of common words. Independent of any protocol."""

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamark.errors import SiteError, UserError

Tokens = NDArray[np.int32]
Prompt = Tokens | str

_COMMON = """
the of and to in is that it was for on are as with they be at one have this from or had by but some what there we
can out other were all your when up use how said an each she which do their time if will way about many then them
would like so these her long make thing see him two has look more day could go come did my no most who over know
than call first people may down side been now find any new work part take get place made live where after back
little only round man year came show every good me give our under name very through just form much great think say
help low line before turn cause same mean right old too tell boy follow want also around small set put end does
another well large must big even such because here why ask men read need land different home us move try kind hand
picture again change off play air away house point page letter mother answer found study still learn should world
high near add food between own below country plant last school father keep tree never start city earth eye light
thought head story saw left few while along might close something seem next hard open example
"""
WORDS: Sequence[str] = tuple(_COMMON.split())
"""Each is one token, with the space before it, in the vocabularies of the usual models."""


VERIFIED_PROMPTS = 64
MOST_WORDS = 512
TRIED_WORDS = 4096
FEWEST_WORDS = 8


def in_groups(prefixes: Tokens, count: int, rng: np.random.Generator) -> Iterator[Tokens]:
    """Yield the prefix of each of `count` prompts: that of its group, drawn evenly. With one group nothing is
    drawn."""
    groups = rng.integers(len(prefixes), size=count) if len(prefixes) > 1 else np.zeros(count, dtype=int)
    yield from prefixes[groups]


@dataclass(frozen=True, kw_only=True)
class Ids:
    """Token ids, drawn evenly from `vocabulary`. `added`: tokens that the server adds to a prompt; they count for its
    length."""

    vocabulary: Tokens
    added: int = 0

    def draw(self, count: int, rng: np.random.Generator) -> Tokens:
        """Return `count` ids, int32."""
        return self.vocabulary[rng.integers(len(self.vocabulary), size=count)]

    def prompt(self, drawn: Tokens) -> Prompt:
        """Return the ids themselves."""
        return drawn

    def prefix(self, prompt: Prompt, length: int) -> Prompt | None:
        """Return the first `length` ids of a prompt, None of a shorter one."""
        return prompt[:length] if len(prompt) >= length else None

    def check(self, prompt: Prompt, length: int) -> None:
        """Ids are as many as they are."""

    def make(self, lengths: Sequence[int], shared: int, rng: np.random.Generator, groups: int = 1) -> list[Prompt]:
        """Return arrays of int32, shape (length,). In each of so many groups the first `shared` ids are the same."""
        prefixes = rng.choice(self.vocabulary, (groups, shared))
        drawn = self.vocabulary[rng.integers(len(self.vocabulary), size=sum(lengths))]
        made: list[Prompt] = []
        for ids, prefix in zip(
            np.split(drawn, np.cumsum(lengths)[:-1]), in_groups(prefixes, len(lengths), rng), strict=True
        ):
            ids[:shared] = prefix[: len(ids)]
            made.append(ids)
        return made


@dataclass(frozen=True, kw_only=True)
class Texts:
    """Words of one token each. `added`: tokens that the server adds to them. `count` returns the tokens of a text,
    including those; None without a tokenizer."""

    words: Sequence[str] = WORDS
    start: str = ""
    added: int = 0
    count: Callable[[str], int] | None = None

    def make(self, lengths: Sequence[int], shared: int, rng: np.random.Generator, groups: int = 1) -> list[Prompt]:
        """Return texts. In each of so many groups the first `shared` tokens are the same. Raises UserError for a
        length that the tokenizer does not find in its text."""
        size = max(0, shared - self.added)
        prefixes = self.draw(groups * size, rng).reshape(groups, size)
        of_each = in_groups(prefixes, len(lengths), rng)
        made: list[Prompt] = []
        for number, (length, prefix) in enumerate(zip(lengths, of_each, strict=True)):
            if length <= self.added:
                raise UserError(f"prompt_len: {length} is too short, the tokenizer itself adds {self.added} tokens.")
            drawn = self.draw(length - self.added, rng)
            drawn[: len(prefix)] = prefix[: len(drawn)]
            text = self.prompt(drawn)
            if number < VERIFIED_PROMPTS:
                self.check(text, length)
            made.append(text)
        return made

    def draw(self, count: int, rng: np.random.Generator) -> Tokens:
        """Return the numbers of `count` random words, which only `prompt` understands."""
        return rng.integers(len(self.words), size=count).astype(np.int32)

    def prompt(self, drawn: Tokens) -> Prompt:
        """Return words as a text."""
        return self.start + " ".join([self.words[at] for at in drawn])

    def prefix(self, prompt: Prompt, length: int) -> Prompt | None:
        """Return the first `length` tokens of a prompt, with those that the server adds; None of a shorter one."""
        words, size = str(prompt).removeprefix(self.start).split(" "), length - self.added
        return self.start + " ".join(words[:size]) if 0 < size <= len(words) else None

    def check(self, prompt: Prompt, length: int) -> None:
        """Raise UserError where a tokenizer finds another length in it."""
        if self.count is not None and (found := self.count(str(prompt))) != length:
            raise UserError(
                f"tokenizer: it finds {found} tokens in a text made to have {length}. "
                "Its tokens cannot be counted word by word: remove 'tokenizer', or set 'prompt_form' to ids."
            )


Prompts = Ids | Texts
"""Makes prompts of given lengths, or out of tokens that are drawn piece by piece."""


def read_tokenizer(path: str) -> Any:
    """Return the tokenizer of a model's folder, or of a tokenizer.json. Raises UserError, SiteError."""
    file = Path(path).expanduser()
    file = file / "tokenizer.json" if file.is_dir() else file
    if not file.is_file():
        raise UserError(
            f"tokenizer: there is no {file}. Name a folder with a tokenizer.json, or leave 'tokenizer' out."
        )
    try:
        tokenizers: Any = importlib.import_module("tokenizers")
    except ImportError as cause:
        raise SiteError(
            "tokenizer: the package 'tokenizers' is not in the environment of this service. Leave 'tokenizer' out: "
            "prompts are then checked against what the server counts."
        ) from cause
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as cause:
        raise UserError(f"tokenizer: {file} is not a tokenizer: {cause}") from cause


def ids_of(tokenizer: Any) -> Ids:
    """Return prompts of all tokens of a tokenizer but its special ones."""
    special = set(tokenizer.get_added_tokens_decoder())
    ids = [token for token in range(tokenizer.get_vocab_size(with_added_tokens=False)) if token not in special]
    return Ids(vocabulary=np.array(ids, dtype=np.int32))


def texts_of(tokenizer: Any, *, whole: bool) -> Texts:
    """Return prompt words that are one token each to this tokenizer. Raises UserError if there are too few.

    `whole`: the text is the model's entire input, with the special tokens that the tokenizer adds.
    """

    def count(text: str, special: bool = False) -> int:
        return len(tokenizer.encode(text, add_special_tokens=special).ids)

    names = sorted(tokenizer.get_vocab().items(), key=lambda item: int(item[1]))
    marked = [name[1:] for name, _ in names if name[:1] in ("Ġ", "▁") and name[1:].isascii() and name[1:].isalpha()]
    best = Texts(words=())
    for start in ("", " "):
        words = [word for word in dict.fromkeys([*WORDS, *marked[:TRIED_WORDS]]) if count(start + word) == 1]
        words = [word for word in words if count(f"{start}{word} {word}") == 2][:MOST_WORDS]
        if len(words) > len(best.words):
            best = Texts(words=words, start=start)
    if len(best.words) < FEWEST_WORDS:
        raise UserError(
            f"tokenizer: only {len(best.words)} words are one token each to it, too few for texts of exact lengths. "
            "Set 'prompt_form' to ids."
        )
    added = count("a", special=True) - count("a") if whole else 0
    return Texts(words=best.words, start=best.start, added=added, count=lambda text: count(text, special=whole))
