"""The requests of a load in terms of no endpoint: seeded prompts and reply lengths, sessions, rows of a trace.

Lengths in tokens are drawn by the settings NAME, NAME_shape and NAME_spread.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import accumulate
from math import exp, log, log1p, sqrt
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from seamark.drivers.openai.dataset import DatasetPrompts
from seamark.drivers.openai.items import UNITS
from seamark.drivers.openai.prompts import (
    Ids,
    Prompt,
    Prompts,
    Texts,
    Tokens,
    ids_of,
    in_groups,
    read_tokenizer,
    texts_of,
)
from seamark.errors import SiteError, UserError, did_you_mean
from seamark.load.driver import whole
from seamark.model.service import Value
from seamark.patterns.trace_file import BLOCK_TOKENS, TraceRow

Shape = Literal["fixed", "uniform", "lognormal", "dataset"]
SHAPES: tuple[Shape, ...] = get_args(Shape)


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How lengths are spread about their mean.

    `spread` is half the width over the mean of a uniform shape, the standard deviation over the mean of a lognormal
    one.
    """

    name: str
    mean: int
    shape: Shape
    spread: float

    @staticmethod
    def of(settings: Mapping[str, Value], name: str) -> "Lengths":
        """Return the lengths that the settings NAME, NAME_shape and NAME_spread describe. Raises UserError."""
        shape = settings.get(f"{name}_shape") or "fixed"
        spread = float(settings.get(f"{name}_spread") or 0.0)
        if shape not in SHAPES:
            raise UserError(f"{name}_shape: '{shape}' is none of {', '.join(SHAPES)}.{did_you_mean(shape, SHAPES)}")
        if shape in ("fixed", "dataset") and spread:
            raise UserError(
                f"{name}_spread: has no effect while {name}_shape is {shape}. Set it to uniform or lognormal."
            )
        if shape == "uniform" and spread > 1:
            raise UserError(f"{name}_spread: {spread:g} would make lengths negative. A uniform shape takes 0 to 1.")
        return Lengths(name=name, mean=whole(settings, name, 128), shape=shape, spread=spread)

    @property
    def longest(self) -> int | None:
        """The longest there can be; None for a lognormal shape, which has no end."""
        return None if self.shape == "lognormal" and self.spread else round(self.mean * (1 + self.spread))

    def draw(self, count: int, rng: np.random.Generator, most: int | None = None) -> NDArray[np.int64]:
        """Return `count` lengths of 1 to `most` tokens in random order.

        One is from each of `count` equally likely parts of the distribution, so that a few of them have the mean of
        many. A lognormal shape is cut off at `most`; UserError when another does not fit, or the mean does not.
        """
        longest = self.longest or self.mean
        if most is not None and longest > most:
            raise UserError(
                f"{self.name}: {longest} tokens do not fit, there is room for {most}. "
                "Prompt and reply together may have max_model_len tokens."
            )
        if not self.spread:
            return np.full(count, self.mean, dtype=np.int64)
        parts = (rng.permutation(count) + rng.random(count)) / count
        if self.shape == "uniform":
            lengths = self.mean * (1 + self.spread * (2 * parts - 1))
        else:
            from statistics import NormalDist  # slow to import, and few loads need it

            sigma = sqrt(log1p(self.spread**2))
            normal = NormalDist(log(self.mean) - sigma**2 / 2, sigma)
            share = 1.0 if most is None else normal.cdf(log(most + 0.5))
            lengths = np.array([exp(normal.inv_cdf(min(max(part * share, 1e-12), 1 - 1e-12))) for part in parts])
        return np.clip(np.rint(lengths), 1, most).astype(np.int64)


KEPT_BYTES = 64 << 20
"""Memory limit of a trial's distinct requests."""
TOKEN_BYTES = 6
"""Approximate size of a prompt token in a request, as an id or a word."""
MOST_BODIES, FEWEST_BODIES = 4096, 16
FIRST_ID, LAST_ID = 1000, 30000
"""Ids that are plain tokens in the vocabularies of the usual models: special ones lie below or above."""
PER_REQUEST = (
    *(f"{name}{more}" for name in ("prompt_len", "gen_tokens") for more in ("", "_shape", "_spread")),
    *("prefix_len", "prefix_groups", "batch", "prompt_form", "token_id_min", "token_id_max", "tokenizer"),
    *("ignore_eos", "temperature", "extra_body", "served_model", "endpoint", "base_path", "api_key_env", "headers"),
)
"""Settings that one request may have and another of the same load not."""
FORMS = {"completions": ("ids", "text"), "chat": ("text",), "embeddings": ("text", "ids"), "rerank": ("text",)}
"""Endpoint -> forms of its prompts, the usual one first."""
VERIFIED_ROWS = 64
KEPT_BLOCKS = 8192
CONTENT, BLOCK, SHARED = 0, 1, 2
"""What a sequence of random numbers is for: the tokens of one row, of one block, and those that all rows share."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """Content of one request: prompts, their length in tokens, and the token limit of each reply.

    `blocks` name the first blocks of a prompt of ids, of `block_tokens` each, which other requests share. With
    `turn`, the prompts are the conversation of a session so far. `roles` are those of a chat's messages; none: user
    and model in turn.
    """

    prompts: Sequence[Prompt]
    prompt_units: int
    gen_tokens: int
    blocks: tuple[int, ...] = field(default=(), repr=False)
    block_tokens: int = BLOCK_TOKENS
    turn: int = 0
    roles: tuple[str, ...] = ()


class Asks:
    """Generates the contents of the requests of one trial, seeded. Raises UserError for impossible settings."""

    def __init__(self, settings: Mapping[str, Value], endpoint: str, turns: int) -> None:
        self._settings = settings
        self._endpoint = endpoint
        self.items = whole(settings, "batch", 1)
        self._batch = self.items + (endpoint == "rerank")  # the first is the query
        self.shared = whole(settings, "prefix_len", 0)
        self._groups = whole(settings, "prefix_groups", 1)
        self._turns = turns
        self._prompt_lengths = Lengths.of(settings, "prompt_len")
        self._gen_lengths = Lengths.of({"gen_tokens": 1} if endpoint in UNITS else settings, "gen_tokens")
        self._limit = None if settings.get("max_model_len") is None else whole(settings, "max_model_len")
        if endpoint == "chat" and self._batch != 1:
            raise UserError(f"batch: {self._batch} prompts in one request are for completions only. Set it to 1.")
        if self._turns > 1 and endpoint in UNITS:
            raise UserError(f"turns: a request for {endpoint} is no conversation. Set turns to 1.")
        if self._turns > 1 and self._batch != 1:
            raise UserError(f"batch: {self._batch} prompts in one request have no turns. Set batch or turns to 1.")
        self._whole = self._prompt_lengths.shape == "dataset"
        if settings.get("dataset") is None and self._whole:
            raise UserError("prompt_len_shape: dataset is that of `dataset`, which is not set. Set it.")
        if settings.get("dataset") is not None and self._turns > 1:
            raise UserError("turns: prompts of a data set have no later turns. Set turns to 1, or remove dataset.")
        if self._whole and self.shared:
            raise UserError("prefix_len: prompts of a data set that are sent whole have none. Set it to 0.")
        self._block = lru_cache(KEPT_BLOCKS)(self._new_block)

    @property
    def kinds(self) -> Sequence[str]:
        """Names of the kinds of request: of a session, its turns."""
        return [f"turn-{turn + 1}" for turn in range(self._turns)] if self._turns > 1 else [self._endpoint]

    @property
    def count(self) -> int:
        """How many different requests are worth their memory; whole sessions."""
        prompt, gen, turns = self._prompt_lengths.mean, self._gen_lengths.mean, self._turns
        mean = self._batch * (prompt * (turns + 1) + gen * (turns - 1)) / 2
        most = max(FEWEST_BODIES, min(MOST_BODIES, int(KEPT_BYTES / (TOKEN_BYTES * mean))))
        return max(1, most // turns) * turns

    @cached_property
    def _tokenizer(self) -> Any:
        path = self._settings.get("tokenizer")
        return None if path is None else read_tokenizer(str(path))

    @cached_property
    def count_tokens(self) -> Callable[[str], int] | None:
        """Return the token counter of a text, without special tokens; None without a tokenizer."""
        tokenizer = self._tokenizer
        return None if tokenizer is None else lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)

    @cached_property
    def _prompts(self) -> Prompts:
        settings = self._settings
        form = one_of(settings, "prompt_form", FORMS[self._endpoint])
        tokenizer = self._tokenizer
        if form == "text":
            return Texts() if tokenizer is None else texts_of(tokenizer, whole=self._endpoint != "chat")
        if tokenizer is not None:
            return ids_of(tokenizer)
        first, last = whole(settings, "token_id_min", FIRST_ID), whole(settings, "token_id_max", LAST_ID)
        if last <= first:
            raise UserError(f"token_id_max: {last} is not more than token_id_min, {first}.")
        return Ids(vocabulary=np.arange(first, last + 1, dtype=np.int32))

    @cached_property
    def _data(self) -> DatasetPrompts | None:
        """The prompts of the data set. Tokens are those of the tokenizer, else of the one in the model's folder."""
        settings, chat = self._settings, self._endpoint == "chat"
        if (folder := settings.get("dataset")) is None:
            return None
        ids = (
            one_of(settings, "prompt_form", ("text", "ids") if "ids" in FORMS[self._endpoint] else ("text",)) == "ids"
        )
        tokenizer, model = self._tokenizer, str(settings.get("model") or "")
        if tokenizer is None and model and (Path(model).expanduser() / "tokenizer.json").is_file():
            with suppress(SiteError):
                tokenizer = read_tokenizer(model)
        if ids and tokenizer is None:
            raise UserError("prompt_form: ids of a data set need a tokenizer. Set 'tokenizer' to the model's folder.")
        return DatasetPrompts.read(str(folder), tokenizer, ids=ids, whole=not chat)

    def drawn(self, count: int, seed: int) -> list[Ask]:
        """Return the contents of `count` requests; of sessions, as many whole ones as fit."""
        longest = self._prompt_lengths.longest
        if longest is not None and self.shared > longest:
            raise UserError(f"prefix_len: {self.shared} tokens are more than the {longest} of the longest prompt.")
        if self._turns > 1:
            sessions = self._sessions(max(1, count // self._turns), np.random.default_rng(seed))
            return [ask for session in sessions for ask in session]
        rng = np.random.default_rng(seed)
        gens = self._gen_lengths.draw(count, rng, None if self._limit is None else self._limit - 1)
        room = None if self._limit is None else self._limit - int(gens.max())
        data = self._data
        if data is not None and self._whole:
            return list(self._whole_asks(data, gens.tolist(), rng, room))
        lengths = self._prompt_lengths.draw(count * self._batch, rng, room).tolist()
        prompts = (data or self._prompts).make(lengths, self.shared, rng, self._groups)
        if data is not None:
            lengths = [data.units(prompt) for prompt in prompts]
        return [
            Ask(
                prompts=prompts[at : at + self._batch],
                prompt_units=sum(lengths[at : at + self._batch]),
                gen_tokens=int(gens[at // self._batch]),
            )
            for at in range(0, len(prompts), self._batch)
        ]

    def _whole_asks(
        self, data: DatasetPrompts, gens: Sequence[int], rng: np.random.Generator, room: int | None
    ) -> Iterator[Ask]:
        """Yield a request for each reply length, with rows as they are: of a chat with their roles."""
        rows = data.whole(len(gens) * self._batch, rng, room)
        for gen in gens:
            batch = [next(rows) for _ in range(self._batch)]
            chat = self._endpoint == "chat"
            prompts = [text for _, text in batch[0]] if chat else [data.prompt(row) for row in batch]
            roles = tuple(role for role, _ in batch[0]) if chat else ()
            yield Ask(prompts=prompts, prompt_units=sum(map(data.units, prompts)), gen_tokens=gen, roles=roles)

    def _sessions(self, count: int, rng: np.random.Generator) -> Iterator[list[Ask]]:
        """Yield sessions. The prompt of a turn is the conversation so far, with made-up replies, and a new part."""
        turns, prompts = self._turns, self._prompts
        news = self._prompt_lengths.draw(count * turns, rng).reshape(count, turns).tolist()
        gens = self._gen_lengths.draw(count * turns, rng).reshape(count, turns).tolist()
        size = max(0, self.shared - prompts.added)
        prefixes = prompts.draw(self._groups * size, rng).reshape(self._groups, size)
        for new, gen, prefix in zip(news, gens, in_groups(prefixes, count, rng), strict=True):
            turn_lengths = [length for pair in zip(new, gen, strict=True) for length in pair]
            self._check_session(sum(turn_lengths), new[0])
            ends = [end - prompts.added for end in accumulate(turn_lengths)]
            tokens = prompts.draw(ends[-2], rng)
            tokens[: min(len(prefix), ends[0])] = prefix[: ends[0]]
            yield [
                Ask(
                    prompts=self._conversation(tokens, ends[: 2 * turn + 1]),
                    prompt_units=ends[2 * turn] + prompts.added,
                    gen_tokens=gen[turn],
                    turn=turn,
                )
                for turn in range(turns)
            ]

    def _check_session(self, tokens: int, first: int) -> None:
        if first <= self._prompts.added:
            raise UserError(
                f"prompt_len: {first} is too short, the tokenizer itself adds {self._prompts.added} tokens."
            )
        if self._limit is not None and tokens > self._limit:
            raise UserError(
                f"turns: the {self._turns} turns of a session come to {tokens} tokens, prompts and replies together, "
                f"and max_model_len is {self._limit}. Lower turns, prompt_len or gen_tokens."
            )

    def _conversation(self, tokens: Tokens, ends: Sequence[int]) -> list[Prompt]:
        """Return the conversation: separate messages for a chat, else one text."""
        if self._endpoint != "chat":
            return [self._prompts.prompt(tokens[: ends[-1]])]
        return [self._prompts.prompt(tokens[start:end]) for start, end in zip([0, *ends], ends, strict=False)]

    def prefixes(self, ask: Ask) -> Iterator[Prompt]:
        """Yield the first `prefix_len` tokens of each prompt; nothing for a shorter one, and for later turns."""
        if self.shared and not ask.turn:
            for prompt in ask.prompts[: 1 if self._endpoint == "chat" else None]:
                if (prefix := (self._data or self._prompts).prefix(prompt, self.shared)) is not None:
                    yield prefix

    def row(self, number: int, row: TraceRow, seed: int) -> Ask:
        """Return the content for row `number` of a trace; a missing length is drawn by the settings."""
        if self._settings.get("dataset") is not None:
            raise UserError("trace_lengths: prompts are those of the data set. Set trace_lengths to false.")
        if self._turns > 1 or self._batch != 1 or self._groups > 1:
            what = "turns" if self._turns > 1 else "batch" if self._batch != 1 else "prefix_groups"
            raise UserError(f"{what}: a row of a trace is one prompt. Set {what} to 1, or trace_lengths to false.")
        rng = np.random.default_rng([seed, CONTENT, number])
        prompts = self._prompts
        length = row.prompt_tokens or int(self._prompt_lengths.draw(1, rng)[0])
        gen = row.output_tokens or int(self._gen_lengths.draw(1, rng)[0])
        if self._limit is not None and length + gen > self._limit:
            raise UserError(
                f"trace: request {number + 1} has a prompt of {length} tokens and a reply of {gen}; max_model_len is "
                f"{self._limit}. Raise it, or set trace_lengths to false."
            )
        if length <= prompts.added:
            raise UserError(
                f"trace: request {number + 1} has {length} tokens; the tokenizer alone adds {prompts.added}."
            )
        wanted = length - prompts.added
        size = row.block_tokens
        names = row.blocks[: -(-wanted // size)]
        pieces = [self._block(seed, name, size) for name in names]
        pieces.append(prompts.draw(max(0, wanted - size * len(names)), rng))
        tokens = np.concatenate(pieces)[:wanted]
        if not names and self.shared:
            shared = prompts.draw(max(0, self.shared - prompts.added), np.random.default_rng([seed, SHARED]))
            tokens[: len(shared)] = shared[: len(tokens)]
        prompt = prompts.prompt(tokens)
        if number < VERIFIED_ROWS:
            prompts.check(prompt, length)
        whole_blocks = names[: (wanted - 1) // size] if isinstance(prompts, Ids) else ()
        return Ask(prompts=[prompt], prompt_units=length, gen_tokens=gen, blocks=whole_blocks, block_tokens=size)

    def _new_block(self, seed: int, name: int, size: int) -> Tokens:
        return self._prompts.draw(size, np.random.default_rng([seed, BLOCK, name % 2**63]))


def one_of(settings: Mapping[str, Value], name: str, allowed: tuple[str, ...]) -> str:
    """Return a setting with allowed values, the first if it is not set. Raises UserError."""
    value = settings.get(name) or allowed[0]
    if value not in allowed:
        raise UserError(f"{name}: '{value}' is none of {', '.join(allowed)}.{did_you_mean(value, allowed)}")
    return str(value)
