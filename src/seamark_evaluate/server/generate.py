"""One answer, token by token: context, question, then steps of one token; greedy, or drawn from a seed and the
tokens of its prompt, so that no two prompts share what is drawn. Its text comes in whole characters."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any, Literal

import numpy as np
import torch
from tokenizers.decoders import DecodeStream

from seamark_evaluate.server.attention import Pass, measure_errors
from seamark_evaluate.server.errors import CancelledRequestError, UnsupportedModelError
from seamark_evaluate.server.key_value_cache import ContextCache, KeyValueCache
from seamark_evaluate.server.measurements import Measurements, Phase
from seamark_evaluate.server.model import LoadedModel
from seamark_evaluate.server.prefill import Chunks
from seamark_evaluate.server.prompt import Prompt
from seamark_evaluate.server.request import Completion

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A token of an answer: the text that it completes, maybe none."""

    token: int
    text: str
    finish_reason: FinishReason | None = None


@dataclass(kw_only=True)
class Answer:
    """What is known of an answer beside its text, complete after its last piece."""

    prompt: Prompt
    cached_tokens: int = 0
    tokens: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)


def drawn_seed(seed: int, ids: Sequence[int]) -> int:
    """Return 64 bits that depend on a request's seed and on the tokens of its prompt or context."""
    tokens = np.asarray(ids, dtype=np.int64).tobytes()
    return int.from_bytes(sha256(seed.to_bytes(8) + tokens).digest()[:8])


class Generation:
    """The forward passes of one request, of which `contexts` has the last context. `is_cancelled` is called between
    them."""

    def __init__(
        self,
        model: LoadedModel,
        contexts: ContextCache,
        chunks: Chunks,
        completion: Completion,
        prompt: Prompt,
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._model, self._contexts, self._chunks = model, contexts, chunks
        self._completion, self._prompt, self._is_cancelled = completion, prompt, is_cancelled
        self._until_s = None if completion.limit_s is None else time.monotonic() + completion.limit_s
        chunks.enter(completion.context_scope)
        self._context_seed = self._seed = completion.seed
        if completion.is_drawn:
            self._seed = drawn_seed(completion.seed, (*prompt.context, *prompt.question))
        if completion.is_sparse_context and completion.method.is_sampled:
            self._context_seed = drawn_seed(completion.seed, prompt.context)
        self._measurements = Measurements(
            layers=self._model.layers, error_ratio=completion.measure_error_ratio, random=Random(self._seed)
        )
        self._generator = torch.Generator(device=self._model.device).manual_seed(self._seed)

    def pieces(self, answer: Answer) -> Iterator[Piece]:
        """Yield the pieces of an answer, and fill in `answer`.

        Raises CancelledRequestError, TimeoutError at `limit_s`, and what the model raises. The context stays in the
        cache in any case but a failure.
        """
        try:
            yield from self._pieces(answer)
            self._contexts.crop()
        except (CancelledRequestError, TimeoutError, GeneratorExit):
            self._contexts.crop()
            raise
        except BaseException:
            self._contexts.forget()
            raise

    def _pieces(self, answer: Answer) -> Iterator[Piece]:
        completion, prompt = self._completion, self._prompt
        answer.cached_tokens = self._bring_context()
        cache = self._contexts.keys_values
        logits = self._chunks.compute(prompt.question, cache, self._forward("question", cache))
        step = self._forward("answer", cache)
        text = TextStream(self._model.tokenizer, completion.stop)
        while True:
            token = self._choose(logits)
            answer.tokens += 1
            ended = token in self._model.end_tokens and not completion.ignore_eos
            new = "" if ended else text.add(token)
            finish: FinishReason | None = "stop" if ended or text.is_stopped else None
            if finish is None and answer.tokens == completion.max_tokens:
                finish = "length"
            if finish is not None:
                new += text.rest()
            yield Piece(token=token, text=new, finish_reason=finish)
            if finish is not None:
                break
            logits = step([token])
        self._measure(answer)

    def _bring_context(self) -> int:
        completion, prompt = self._completion, self._prompt

        def compute(ids: Sequence[int], cache: KeyValueCache, began: list[int]) -> None:
            self._chunks.compute(ids, cache, self._forward("context", cache), began=began)

        method = completion.method
        drawn_from = self._context_seed if method.is_sampled else None
        sparse = completion.is_sparse_context
        return self._contexts.bring(
            prompt.context,
            computed_as=(
                completion.context_scope,
                (method.document, completion.kernel, drawn_from) if sparse else None,
            ),
            reserve=prompt.tokens + completion.max_tokens,
            reuse=completion.reuse_context,
            compute=compute,
        )

    def _forward(self, phase: Phase, cache: KeyValueCache) -> Callable[[Sequence[int]], torch.Tensor]:
        completion = self._completion
        starts: dict[Phase, tuple[str, ...]] = {
            "context": ("prompt",),
            "question": ("prompt", "question"),
            "answer": ("prompt", "question", "generation"),
        }
        sparse = not completion.method.is_dense and completion.sparse_from in starts[phase]

        def forward(ids: Sequence[int]) -> torch.Tensor:
            self._check()
            with self._measurements.counted_if_done():
                return computed(ids)

        def computed(ids: Sequence[int]) -> torch.Tensor:
            step = Pass(
                phase=phase,
                measurements=self._measurements,
                method=completion.method if sparse else None,
                kernel=completion.kernel,
                seed=self._context_seed if phase == "context" else self._seed,
                positions=cache.positions,
                longest=self._model.max_model_len,
                sample_at=self._measurements.place_to_sample(phase, len(ids)) if sparse else None,
            )
            before = self._measurements.layers_counted
            logits = self._model.logits(ids, cache, step)
            if sparse and self._measurements.layers_counted - before != self._model.layers:
                raise UnsupportedModelError("this model does not pass its attention through transformers' interface")
            return logits

        return forward

    def _check(self) -> None:
        if self._is_cancelled():
            raise CancelledRequestError
        if self._until_s is not None and time.monotonic() > self._until_s:
            raise TimeoutError(f"the answer took longer than limit_s, {self._completion.limit_s:g} s")

    def _choose(self, logits: torch.Tensor) -> int:
        if not self._completion.temperature:
            return int(logits.argmax())
        odds = torch.softmax(logits.float() / self._completion.temperature, dim=-1)
        return int(torch.multinomial(odds, 1, generator=self._generator))

    def _measure(self, answer: Answer) -> None:
        completion, measurements = self._completion, self._measurements
        if measurements.sampled:
            cache = self._contexts.keys_values
            measure_errors(measurements, cache, completion.method, completion.kernel, self._seed)
        answer.counts = measurements.counts()
        answer.facts = measurements.document(
            kernel=completion.kernel,
            context_tokens=len(self._prompt.context),
            cut=self._prompt.cut,
            prefill_chunk=self._chunks.tokens,
            reused=bool(self._prompt.context) and answer.cached_tokens == len(self._prompt.context),
        )
        answer.facts["device"] = str(self._model.device)


class TextStream:
    """Decodes token by token. `is_stopped`: a stop string came; it and all after it are not part of the text.

    Text that may be the beginning of a stop string is held back until the next token decides. All pieces together are
    what the tokenizer makes of all tokens at once, incomplete characters at the end included.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str]) -> None:
        self._backend = tokenizer.backend_tokenizer
        self._decoding = DecodeStream(skip_special_tokens=True)
        self._stop = tuple(stop)
        self._tokens: list[int] = []
        self._decoded = 0
        self._held = ""
        self.is_stopped = False

    def add(self, token: int) -> str:
        """Take a token; return the text that is certain now, often that of the token, sometimes none."""
        self._tokens.append(token)
        new = self._decoding.step(self._backend, token) or ""
        self._decoded += len(new)
        self._held += new
        found = [at for stop in self._stop if (at := self._held.find(stop)) >= 0]
        if found:
            self.is_stopped = True
            text, self._held = self._held[: min(found)], ""
            return text
        keep = max((_begun(self._held, stop) for stop in self._stop), default=0)
        text, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return text

    def rest(self) -> str:
        """Return the text that was held back, with characters that no token completed: no more tokens come."""
        if self.is_stopped:
            return ""
        text: str = self._held + self._backend.decode(self._tokens, skip_special_tokens=True)[self._decoded :]
        self._held, self._decoded = "", self._decoded + len(text)
        return text


def _begun(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` with which `stop` begins."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)
