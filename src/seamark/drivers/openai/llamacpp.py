"""llama.cpp's server from the wheel xllamacpp: `main` serves until it is ended, and `stage` makes the tiny model.

Workers of loads import this module too; only a server has xllamacpp, and only its preparation gguf.
"""

import sys
import threading
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from seamark.drivers.openai import driver
from seamark.drivers.openai.driver import OpenAi
from seamark.drivers.openai.models import CHAT, HIDDEN, LAYERS, LONGEST, TINY, VOCABULARY
from seamark.drivers.openai.prompts import WORDS
from seamark.errors import UserError
from seamark.load.driver import Target
from seamark.model.service import Value

HEADS = 4
END = "</s>"
BYTES = [chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\x{byte:02x}" for byte in range(256)]
"""Every byte as a token, as the tokenizer of RWKV writes it."""


class LlamaCpp(OpenAi):
    """Requests to llama.cpp. It announces Keep-Alive and closes the connection after a streamed reply, so each
    request for one asks for that."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        if self.unit == "token" and self._asks.items > 1:
            raise UserError("batch: llama.cpp counts the tokens of one completion in a request. Set batch to 1.")
        if self._streams:
            self._headers = {**self._headers, "Connection": "close"}


def stage(target: Target, seed: int) -> Mapping[str, Value]:
    """Write the tiny model if the settings ask for it; say how large it is. Byte for byte the same for a seed."""
    if target.settings.get("model") != TINY:
        return {}
    return write_tiny(target.data / TINY, seed)


def lacking(settings: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """Yield a model that is no file here, and an endpoint that a server started for another one does not serve."""
    model = str(settings.get("model"))
    if model != TINY and not Path(model).expanduser().is_file():
        yield "model", f"there is no file {model}. Name a file of the form GGUF, or {TINY}."
    serves, endpoint = settings.get("serves"), str(settings.get("endpoint"))
    if serves not in (endpoint, None) and not (serves == "completions" and endpoint == "chat"):
        yield "endpoint", f"a server that serves {serves} has no {endpoint}. Set serves and endpoint alike."


def write_tiny(path: Path, seed: int) -> Mapping[str, Value]:
    """Write a Llama of random weights and its vocabulary as GGUF; return its size in several units.

    Its tokenizer takes the longest token that fits, so that each word of a prompt is one token. As in models.py, the
    first dimension is the same for all tokens, and the head reads it to keep ends and single bytes out of replies.
    """
    import gguf

    rng = np.random.default_rng(seed)

    def drawn(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(0.1)

    tokens = [END, *BYTES, *islice(_words(Random(seed)), VOCABULARY - 1 - len(BYTES))]
    writer: Any = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(LONGEST)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(2 * HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * (VOCABULARY - 1)])
    writer.add_eos_token_id(0)
    writer.add_chat_template(CHAT)
    weights = {"token_embd": drawn(VOCABULARY, HIDDEN), "output": drawn(VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights[f"blk.{layer}.{name}"] = drawn(HIDDEN, HIDDEN)
        weights[f"blk.{layer}.ffn_gate"] = drawn(2 * HIDDEN, HIDDEN)
        weights[f"blk.{layer}.ffn_up"] = drawn(2 * HIDDEN, HIDDEN)
        weights[f"blk.{layer}.ffn_down"] = drawn(HIDDEN, 2 * HIDDEN)
        for name in ("attn_output", "ffn_down"):
            weights[f"blk.{layer}.{name}"][0] = 0
        for name in ("attn_norm", "ffn_norm"):
            weights[f"blk.{layer}.{name}"] = np.ones(HIDDEN, dtype=np.float32)
    weights["token_embd"][:, 0] = 0.1
    weights["output"][: 1 + len(BYTES), 0] = -100
    weights["output_norm"] = np.ones(HIDDEN, dtype=np.float32)
    for name, values in weights.items():
        writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {
        "model_parameters": sum(values.size for values in weights.values()),
        "model_bytes": path.stat().st_size,
        "model_vocabulary": VOCABULARY,
    }


def _words(random: Random) -> Iterator[str]:
    """Yield different tokens: the words of prompts, alone and after a space, and made-up words after a space."""
    yield from WORDS
    yield from (f" {word}" for word in WORDS)
    seen = set(WORDS)
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvz" for vowel in "aeiou"]
    while True:
        word = "".join(random.choices(syllables, k=random.randint(2, 5)))
        if word not in seen:
            seen.add(word)
            yield f" {word}"


def main(argv: Sequence[str]) -> int:
    """Serve one model by the options of the recipe until a signal ends the process."""
    parser = ArgumentParser()
    for name in ("model", "alias", "host", "serves", "pooling"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("port", "threads", "max-model-len", "max-num-seqs"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--enable-prefix-caching", action="store_true")
    parser.add_argument("--no-enable-prefix-caching", dest="enable_prefix_caching", action="store_false")
    options = parser.parse_args(argv)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = options.model, {options.alias}
    params.hostnames, params.port = [options.host], options.port
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    params.n_ctx, params.n_parallel = options.max_model_len * options.max_num_seqs, options.max_num_seqs
    params.cache_prompt = options.enable_prefix_caching
    params.cache_ram_mib = params.cache_ram_mib if options.enable_prefix_caching else 0
    params.endpoint_metrics, params.ui, params.offline, params.fit_params = True, False, True, False
    if options.serves != "completions":
        pooling = "rank" if options.serves == "rerank" else options.pooling
        params.embedding = True
        params.n_batch = params.n_ubatch = options.max_model_len  # one text is computed in one piece
        if pooling != "model":
            params.pooling_type = xllamacpp.llama_pooling_type[f"LLAMA_POOLING_TYPE_{pooling.upper()}"]
    server = xllamacpp.Server(params)
    print(f"serving at {server.listening_address}", file=sys.stderr, flush=True)
    threading.Event().wait()
    return 0


HOOKS = replace(driver.HOOKS, stage=stage, lacking=lacking)
