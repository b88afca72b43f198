"""The body of a completion request, decoded; every mistake is one line with the allowed values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from seamark.errors import UserError, did_you_mean
from seamark_evaluate.attention.method import KERNELS, SPARSE_FROM, Kernel, Method, SparseFrom, read_method
from seamark_evaluate.server.errors import METHOD_NOT_SUPPORTED, RequestError, wrong

Truncate = Literal["middle", "end", "error"]
"""What long contexts lose: their middle, their end, or nothing, as they are an error."""
DENSE = Method(name="dense", summary="Attention over all keys.")
MOST_STOPS = 64
NEUTRAL: Mapping[str, Any] = {
    "n": 1,
    "best_of": 1,
    "top_p": 1,
    "echo": False,
    "logprobs": None,
    "suffix": None,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logit_bias": None,
    "user": None,
}
"""Fields of the OpenAI API that are taken with these values alone, which change nothing."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One request: a context and a question, or the ids of a prompt that is all question (`prompt_ids`).

    `method` applies from `sparse_from` on. `limit_s` ends a generation, None for none. `measure_error_ratio` is the
    share of positions whose output is compared with dense attention. A context is reused for requests of one
    `context_scope`, such as those of one load, alone. `max_context_tokens` None: what fits the model.
    """

    method: Method
    context: str = ""
    question: str = ""
    answer_prefix: str = ""
    prompt_ids: tuple[int, ...] | None = None
    sparse_from: SparseFrom = "question"
    kernel: Kernel = "gathered"
    max_tokens: int = 32
    stream: bool = False
    include_usage: bool = False
    temperature: float = 0.0
    seed: int = 0
    chat_template: bool = False
    truncate: Truncate = "middle"
    max_context_tokens: int | None = None
    measure_error_ratio: float = 0.0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    reuse_context: bool = True
    context_scope: str = ""
    limit_s: float | None = None

    @property
    def is_sparse_context(self) -> bool:
        """Whether the method applies to the context too."""
        return self.sparse_from == "prompt" and not self.method.is_dense

    @property
    def is_drawn(self) -> bool:
        """Whether anything depends on the seed: tokens, keys, or the positions whose error is measured."""
        return self.temperature > 0 or self.method.is_sampled or self.measure_error_ratio > 0


def read_completion(document: object, *, served_model: str) -> Completion:
    """Return a request's body decoded. Raises RequestError with one line for each mistake."""
    if not isinstance(document, Mapping):
        raise wrong("the body is no JSON object")
    taken = ("model", "prompt", *TEXTS, "attention", *READERS)
    for name, value in document.items():
        if name in NEUTRAL and (value is None or value == NEUTRAL[name]):
            continue
        if name in NEUTRAL:
            raise wrong(f"{name}: this server takes {NEUTRAL[name]} alone.")
        if name not in taken:
            raise wrong(f"{name}: unknown field.{did_you_mean(name, taken)}")
    fields = {name: value for name, value in document.items() if value is not None}
    model = fields.get("model", served_model)
    if model != served_model:
        raise RequestError(404, "model_not_found", f"model: '{model}' is not served here, '{served_model}' is.")
    method = _method(fields["attention"]) if "attention" in fields else DENSE
    texts = _texts(fields)
    read = {name: reader(name, fields[name]) for name, reader in READERS.items() if name in fields}
    include_usage = read.pop("stream_options", False)
    return Completion(method=method, include_usage=include_usage, **texts, **read)


def _method(document: object) -> Method:
    if not isinstance(document, Mapping):
        raise wrong("attention: not a mapping. Give a method document, as {'name': 'dense', 'maskers': []}.")
    try:
        return read_method(document, "attention")
    except UserError as error:
        raise RequestError(400, METHOD_NOT_SUPPORTED, " ".join(str(error).split("\n"))) from error


def _texts(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the texts of a request: a prompt, or a context and a question."""
    parts = [name for name in ("context", "question") if name in fields]
    if "prompt" not in fields:
        if "question" not in fields:
            raise wrong("question: missing. Give 'prompt', or 'question' and, before it, 'context'.")
        return {name: _text(name, fields.get(name, "")) for name in TEXTS}
    if parts:
        raise wrong(f"prompt: given beside '{parts[0]}'. Give 'prompt' alone, or 'context' and 'question'.")
    prompt, prefix = fields["prompt"], _text("answer_prefix", fields.get("answer_prefix", ""))
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return {"question": prompt, "answer_prefix": prefix}
    if not isinstance(prompt, list) or not all(type(token) is int for token in prompt):
        raise wrong("prompt: not one text or one list of token ids.")
    if prefix or fields.get("chat_template"):
        raise wrong("prompt: token ids have no answer_prefix and no chat_template. Give a text.")
    return {"prompt_ids": tuple(prompt)}


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong(f"{name}: {value!r} is not a text.")
    return value


def _one_of(name: str, value: Any, *, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise wrong(f"{name}: {value!r} is not one of {', '.join(allowed)}.{did_you_mean(value, allowed)}")
    return str(value)


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong(f"{name}: {value!r} is not true or false.")
    return value


def _whole(name: str, value: Any, *, least: int) -> int:
    if type(value) is not int or not least <= value < 1 << 63:
        raise wrong(f"{name}: {value!r} is not a whole number from {least}.")
    return value


def _number(name: str, value: Any, *, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise wrong(f"{name}: {value!r} is not a number from 0 to {most:g}.")
    return float(value)


def _stops(_: str, value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MOST_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise wrong(f"stop: not a text, nor a list of up to {MOST_STOPS} texts that are not empty.")
    return tuple(stops)


def _includes_usage(_: str, options: Any) -> bool:
    if not isinstance(options, Mapping) or not isinstance(options.get("include_usage", False), bool):
        raise wrong("stream_options: not a mapping with include_usage: true or false.")
    return bool(options.get("include_usage", False))


TEXTS = ("context", "question", "answer_prefix")
READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "sparse_from": partial(_one_of, allowed=SPARSE_FROM),
    "kernel": partial(_one_of, allowed=KERNELS),
    "max_tokens": partial(_whole, least=1),
    "stream": _switch,
    "stream_options": _includes_usage,
    "temperature": partial(_number, most=100.0),
    "seed": partial(_whole, least=0),
    "chat_template": _switch,
    "truncate": partial(_one_of, allowed=get_args(Truncate)),
    "max_context_tokens": partial(_whole, least=0),
    "measure_error_ratio": partial(_number, most=1.0),
    "stop": _stops,
    "ignore_eos": _switch,
    "reuse_context": _switch,
    "context_scope": _text,
    "limit_s": partial(_number, most=1e9),
}
"""Fields of a request that are read alone, each with what decodes it or raises RequestError."""
