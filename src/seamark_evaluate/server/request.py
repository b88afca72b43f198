"""The body of a completion request, decoded; every mistake is one line with the allowed values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from seamark.errors import UserError, did_you_mean
from seamark_evaluate.attention.method import KERNELS, SPARSE_FROM, Kernel, Method, SparseFrom, read_method
from seamark_evaluate.server.errors import METHOD_NOT_SUPPORTED, RequestError, wrong
from seamark_evaluate.tasks.truncation import Truncate

DENSE = {"name": "dense", "summary": "Attention over all keys.", "maskers": []}
MOST_STOPS = 64
TRUNCATIONS = get_args(Truncate)
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


TAKEN = (
    *("model", "prompt", "context", "question", "answer_prefix", "attention", "sparse_from", "kernel", "max_tokens"),
    *("stream", "stream_options", "temperature", "seed", "chat_template", "truncate", "max_context_tokens"),
    *("measure_error_ratio", "stop", "ignore_eos", "reuse_context", "context_scope", "limit_s"),
)


def read_completion(document: object, *, served_model: str) -> Completion:
    """Return a request's body decoded. Raises RequestError with one line for each mistake."""
    if not isinstance(document, Mapping):
        raise wrong("the body is no JSON object")
    for name, value in document.items():
        if name in NEUTRAL and (value is None or value == NEUTRAL[name]):
            continue
        if name in NEUTRAL:
            raise wrong(f"{name}: this server takes {NEUTRAL[name]} alone.")
        if name not in TAKEN:
            raise wrong(f"{name}: unknown field.{did_you_mean(name, TAKEN)}")
    fields = {name: value for name, value in document.items() if value is not None}
    model = fields.get("model", served_model)
    if model != served_model:
        raise RequestError(404, "model_not_found", f"model: '{model}' is not served here, '{served_model}' is.")
    return Completion(
        method=_method(fields.get("attention", DENSE)),
        **_texts(fields),
        sparse_from=_one_of(fields, "sparse_from", SPARSE_FROM, "question"),
        kernel=_one_of(fields, "kernel", KERNELS, "gathered"),
        max_tokens=_whole(fields, "max_tokens", 32, least=1),
        stream=_switch(fields, "stream", False),
        include_usage=_includes_usage(fields),
        temperature=_number(fields, "temperature", 0.0, most=100.0),
        seed=_whole(fields, "seed", 0, least=0),
        chat_template=_switch(fields, "chat_template", False),
        truncate=_one_of(fields, "truncate", TRUNCATIONS, "middle"),
        max_context_tokens=_whole(fields, "max_context_tokens", 0, least=0)
        if "max_context_tokens" in fields
        else None,
        measure_error_ratio=_number(fields, "measure_error_ratio", 0.0, most=1.0),
        stop=_stops(fields),
        ignore_eos=_switch(fields, "ignore_eos", False),
        reuse_context=_switch(fields, "reuse_context", True),
        context_scope=_text(fields, "context_scope"),
        limit_s=_number(fields, "limit_s", 0.0, most=1e9) if "limit_s" in fields else None,
    )


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
        return {name: _text(fields, name) for name in ("context", "question", "answer_prefix")}
    if parts:
        raise wrong(f"prompt: given beside '{parts[0]}'. Give 'prompt' alone, or 'context' and 'question'.")
    prompt, prefix = fields["prompt"], _text(fields, "answer_prefix")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return {"question": prompt, "answer_prefix": prefix}
    if not isinstance(prompt, list) or not all(type(token) is int for token in prompt):
        raise wrong("prompt: not one text or one list of token ids.")
    if prefix or fields.get("chat_template"):
        raise wrong("prompt: token ids have no answer_prefix and no chat_template. Give a text.")
    return {"prompt_ids": tuple(prompt)}


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        raise wrong(f"{name}: {value!r} is not a text.")
    return value


def _one_of(fields: Mapping[str, Any], name: str, allowed: tuple[str, ...], otherwise: str) -> Any:
    value = fields.get(name, otherwise)
    if value not in allowed:
        raise wrong(f"{name}: {value!r} is not one of {', '.join(allowed)}.{did_you_mean(value, allowed)}")
    return value


def _switch(fields: Mapping[str, Any], name: str, otherwise: bool) -> bool:
    value = fields.get(name, otherwise)
    if not isinstance(value, bool):
        raise wrong(f"{name}: {value!r} is not true or false.")
    return value


def _whole(fields: Mapping[str, Any], name: str, otherwise: int, *, least: int) -> int:
    value = fields.get(name, otherwise)
    if type(value) is not int or not least <= value < 1 << 63:
        raise wrong(f"{name}: {value!r} is not a whole number from {least}.")
    return value


def _number(fields: Mapping[str, Any], name: str, otherwise: float, *, most: float) -> float:
    value = fields.get(name, otherwise)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise wrong(f"{name}: {value!r} is not a number from 0 to {most:g}.")
    return float(value)


def _stops(fields: Mapping[str, Any]) -> tuple[str, ...]:
    value = fields.get("stop", [])
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MOST_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise wrong(f"stop: not a text, nor a list of up to {MOST_STOPS} texts that are not empty.")
    return tuple(stops)


def _includes_usage(fields: Mapping[str, Any]) -> bool:
    options = fields.get("stream_options", {})
    if not isinstance(options, Mapping) or not isinstance(options.get("include_usage", False), bool):
        raise wrong("stream_options: not a mapping with include_usage: true or false.")
    return bool(options.get("include_usage", False))
