"""The command line of the server."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Validate = Literal["none", "load", "token"]
TAKEN = ("dtype", "torch_dtype", "attn_implementation", "output_loading_info", "device_map")
"""Arguments of `from_pretrained` that no option may set."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What is served, where, and how. `max_model_len` None: the model's own; `threads` None: torch's own. Options are
    further arguments of `from_pretrained`."""

    model: str
    served_model: str
    host: str
    port: int
    dtype: Dtype
    device: str
    prefill_chunk: int
    max_model_len: int | None
    threads: int | None
    validate: Validate
    model_options: Mapping[str, Any] = field(default_factory=dict)
    tokenizer_options: Mapping[str, Any] = field(default_factory=dict)


def read_arguments(argv: list[str]) -> Arguments:
    """Return the command line decoded. Exits with status 2 and one line for a mistake."""
    parser = argparse.ArgumentParser(
        prog="seamark_evaluate.server", description="Serve a model of transformers.", allow_abbrev=False
    )
    add = parser.add_argument
    add("--model", required=True, help="folder of a model and its tokenizer, or a name in the cache of Hugging Face")
    add("--served-model", help="name of the model in requests; as --model by default")
    add("--host", default="127.0.0.1")
    add("--port", type=int, required=True, help="0: any; it is printed")
    add("--dtype", choices=get_args(Dtype), default="auto", help="type of weights; auto: as in the model's files")
    add("--device", default="auto", help="cpu, cuda, cuda:1; auto: cuda if there is one")
    add("--prefill-chunk", type=_count, default=512, help="tokens of a prompt that are computed at a time")
    add("--max-model-len", type=_none_or_count, help="longest prompt with its answer, in tokens; none: the model's")
    add("--threads", type=_none_or_count, help="threads of the CPU; none: as many as torch takes")
    add("--validate", choices=get_args(Validate), default="token", help="what is tried before the server is healthy")
    add("--model-options", type=_options, default={}, help="JSON object: arguments of the model's from_pretrained")
    add("--tokenizer-options", type=_options, default={}, help="the same for the tokenizer's")
    known = parser.parse_args(argv)
    return Arguments(**{**vars(known), "served_model": known.served_model or known.model})


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1")
    return int(text)


def _options(text: str) -> Mapping[str, Any]:
    """Return the object in a JSON text; recipes write none as an empty text."""
    try:
        options = json.loads(text or "{}")
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no JSON: {error}") from None
    if not isinstance(options, dict):
        raise argparse.ArgumentTypeError(f'\'{text}\' is no JSON object, such as {{"padding_side": "left"}}')
    if taken := [name for name in TAKEN if name in options]:
        raise argparse.ArgumentTypeError(f"'{taken[0]}' is set by the server itself")
    return options


def _none_or_count(text: str) -> int | None:
    """Return a number; recipes write none as an empty text."""
    return None if text.lower() in ("", "none") else _count(text)
