"""Prompts of a data set: cut and joined to given lengths, or whole. Independent of any protocol."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seamark.drivers.openai.prompts import Prompt
from seamark.errors import UserError

CHARACTERS = 4
"""Characters that count as a token where no tokenizer is known: OpenAI's rule of thumb for English."""
FILE = "prompts.jsonl"
BETWEEN = "\n\n"
Turns = Sequence[tuple[str, str]]
"""Role and text of each turn of a conversation."""


@dataclass(frozen=True, kw_only=True)
class DatasetPrompts:
    """Prompts out of the rows of a data set. `ids`: they are ids of tokens, else texts. `added`: tokens that the
    server adds to a text; they count for its length."""

    rows: Sequence[Turns]
    tokenizer: Any = None
    ids: bool = False
    added: int = 0

    @staticmethod
    def read(folder: str, tokenizer: Any, *, ids: bool, whole: bool) -> "DatasetPrompts":
        """Return the prompts of a folder that `datasets/prepare.py` has made. `whole`: a text is the model's entire
        input, with the special tokens that the tokenizer adds. Raises OSError."""
        with (Path(folder) / FILE).open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        added = 0
        if whole and tokenizer is not None and not ids:
            added = len(tokenizer.encode("a").ids) - len(tokenizer.encode("a", add_special_tokens=False).ids)
        return DatasetPrompts(rows=rows, tokenizer=tokenizer, ids=ids, added=added)

    def make(self, lengths: Sequence[int], shared: int, rng: np.random.Generator, groups: int = 1) -> list[Prompt]:
        """Return prompts of these lengths: rows in seeded order, a long one cut, a short one joined with the next.

        In each of so many groups the first `shared` tokens are the same. A text may have a few tokens more or less
        when it is read as a whole; `units` counts them. Raises UserError.
        """
        rows = self._in_order(rng)

        def joined(length: int) -> list[Any]:
            tokens: list[Any] = []
            while len(tokens) < length:
                tokens += self._tokens(self._text(next(rows)) + BETWEEN)
            return tokens[:length]

        prefixes = [joined(max(0, shared - self.added)) for _ in range(groups)]
        prompts = []
        for length, group in zip(lengths, rng.integers(groups, size=len(lengths)), strict=True):
            if length <= self.added:
                raise UserError(f"prompt_len: {length} is too short, the tokenizer itself adds {self.added} tokens.")
            prefix = prefixes[group][: length - self.added]
            prompts.append(self._prompt(prefix + joined(length - self.added - len(prefix))))
        return prompts

    def whole(self, count: int, rng: np.random.Generator, most: int | None = None) -> Iterator[Turns]:
        """Yield `count` rows in seeded order, again and again, without those of more than `most` tokens. Raises
        UserError if none is left."""
        passed = 0
        for row in self._in_order(rng):
            if most is not None and sum(self.units(text) for _, text in row) > most:
                passed += 1
                if passed == len(self.rows):
                    raise UserError(f"dataset: none of its prompts fits into {most} tokens. Raise max_model_len.")
                continue
            yield row
            passed, count = 0, count - 1
            if count == 0:
                return

    def prompt(self, row: Turns) -> Prompt:
        """Return the texts of a row as one prompt."""
        return self._prompt(self._tokens(self._text(row))) if self.ids else self._text(row)

    def prefix(self, prompt: Prompt, length: int) -> Prompt | None:
        """Return the first `length` tokens of a prompt, with those that the server adds; None of a shorter one."""
        tokens = self._tokens(prompt) if isinstance(prompt, str) else prompt.tolist()
        inside = length - self.added
        return self._prompt(tokens[:inside]) if 0 < inside <= len(tokens) else None

    def units(self, prompt: Prompt) -> int:
        """Return the number of tokens of a prompt: counted by the tokenizer, or estimated."""
        return len(self._tokens(prompt)) + self.added if isinstance(prompt, str) else len(prompt)

    def _in_order(self, rng: np.random.Generator) -> Iterator[Turns]:
        while True:
            yield from [self.rows[at] for at in rng.permutation(len(self.rows))]

    def _text(self, row: Turns) -> str:
        return BETWEEN.join(text for _, text in row)

    def _tokens(self, text: str) -> list[Any]:
        """Return the ids of a text, or without a tokenizer its pieces of CHARACTERS."""
        if self.tokenizer is None:
            return [text[at : at + CHARACTERS] for at in range(0, len(text), CHARACTERS)]
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def _prompt(self, tokens: list[Any]) -> Prompt:
        if self.ids:
            return np.array(tokens, dtype=np.int32)
        return str("".join(tokens) if self.tokenizer is None else self.tokenizer.decode(tokens))
