"""What tests of the attention server ask inside of its environment, where torch and transformers are."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from forked_answers import TRANSFORMERS

PRELOADED = TRANSFORMERS
VOCABULARY = 400
"""Of a byte-level BPE: any text can be written, and words are several tokens."""
SYLLABLES = [consonant + vowel for consonant in "bdklmnprst" for vowel in "aeiou"]
CHAT = (
    "{{ bos_token }}{% for message in messages %}user: {{ message['content'] | trim }} end\n{% endfor %}"
    "{% if add_generation_prompt %}answer: {% endif %}"
)


def write_models(folder: str, prompts: list[str], tokens: int) -> dict[str, Any]:
    """Write a random Llama with grouped heads whose answers depend on all of a prompt, and four broken copies.

    Return their folders, and the answers of the first to prompts by transformers' own generate().
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator([" ".join(a + b for a in SYLLABLES for b in SYLLABLES)], trainer)
    bpe.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = CHAT
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.ndim > 1:
                weights.mul_(12 if "q_proj" in name or "k_proj" in name else 4)  # so that attention decides answers
    whole = Path(folder) / "whole"
    model.save_pretrained(whole)
    tokenizer.save_pretrained(whole)
    folders = {kind: str(_broken(whole, kind)) for kind in ("tokenizer", "weight", "config", "json")}
    return {"whole": str(whole), **folders, "generated": _generated(whole, prompts, tokens)}


def _broken(whole: Path, kind: str) -> Path:
    """Copy a model without its tokenizer, without one weight, with a type that nobody knows, or cut off."""
    from safetensors.torch import load_file, save_file

    copy = whole.with_name(f"without-{kind}")
    shutil.copytree(whole, copy)
    if kind == "tokenizer":
        (copy / "tokenizer.json").write_text("{")
    elif kind == "weight":
        weights = load_file(copy / "model.safetensors")
        del weights["model.layers.1.self_attn.k_proj.weight"]
        save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    else:
        (copy / "config.json").write_text('{"model_type": "unheard_of"}' if kind == "config" else "{")
    return copy


def _generated(folder: Path, prompts: list[str], tokens: int) -> list[list[Any]]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    answers = []
    for prompt in prompts:
        inputs = tokenizer(prompt, return_tensors="pt")
        ids = model.generate(**inputs, max_new_tokens=tokens, do_sample=False, pad_token_id=1)[0]
        new = ids[inputs["input_ids"].shape[1] :]
        answers.append([tokenizer.decode(new, skip_special_tokens=True), len(new)])
    return answers


def write_revisions(folder: str, cache: str) -> str:
    """Put a model into a cache of the hub as the revision `v1` of a repository whose branch `main` has a newer one
    that nobody knows; return the repository's name."""
    name = "of/two-revisions"
    repository = Path(cache) / "models--of--two-revisions"
    (repository / "refs").mkdir(parents=True)
    for revision, commit, source in (("v1", "1" * 40, Path(folder)), ("main", "2" * 40, None)):
        (repository / "refs" / revision).write_text(commit)
        snapshot = repository / "snapshots" / commit
        if source is not None:
            shutil.copytree(source, snapshot)
        else:
            snapshot.mkdir(parents=True)
            (snapshot / "config.json").write_text('{"model_type": "unheard_of"}')
    return name


def write_own_code(folder: str, own: str) -> str:
    """Copy a model into the folder `own` as one with code of its own, beside its weights; return the folder."""
    shutil.copytree(folder, own)
    config = json.loads((Path(own) / "config.json").read_text())
    config |= {"model_type": "own_llama", "architectures": ["OwnModel"]}
    config["auto_map"] = {"AutoConfig": "own_code.OwnConfig", "AutoModelForCausalLM": "own_code.OwnModel"}
    (Path(own) / "config.json").write_text(json.dumps(config))
    (Path(own) / "own_code.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n\n\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own_llama'\n\n\n"
        "class OwnModel(LlamaForCausalLM):\n    config_class = OwnConfig\n"
    )
    return own


def write_reader(folder: str) -> str:
    """Write the known reader; return its folder."""
    from seamark_evaluate.attention.known_reader import write_known_reader

    write_known_reader(Path(folder), keys=128, max_length=1024)
    return folder


def failures_of_starts(starts: list[list[str]]) -> list[list[str]]:
    """Return category and line of each start that fails, by a folder and options."""
    from seamark_evaluate.server.arguments import read_arguments
    from seamark_evaluate.server.errors import StartError
    from seamark_evaluate.server.model import load

    found = []
    for folder, *options in starts:
        try:
            load(read_arguments([f"--model={folder}", "--port=0", *options]))
        except StartError as error:
            found.append([error.code, str(error)])
        else:
            found.append(["", ""])
    return found


def categories() -> dict[str, str]:
    """Return the category of exceptions by what they are."""
    import torch

    from seamark_evaluate.server.errors import category_of

    def of_cuda(code: int) -> BaseException:
        error = torch.AcceleratorError("CUDA error: out of memory")
        error.error_code = code
        return error

    def of_cpu() -> BaseException:
        try:
            torch.empty(1 << 60, dtype=torch.uint8)
        except RuntimeError as error:
            return error
        raise AssertionError

    errors = {
        "torch on the CPU": of_cpu(),
        "no memory for a file": OSError(12, "Cannot allocate memory"),
        "torch out of memory": torch.OutOfMemoryError("x"),
        "cuda 2": of_cuda(2),
        "cuda 700": of_cuda(700),
        "host": MemoryError("x"),
        "time": TimeoutError("x"),
        "no permission": PermissionError(13, "Permission denied"),
        "input or output": OSError(5, "Input/output error"),
        "no file": FileNotFoundError(2, "No such file"),
        "words alone": RuntimeError("CUDA out of memory"),
    }
    return {name: category_of(error) for name, error in errors.items()}


def prefilled(folder: str, tokens: int, chunk: int, fits: int, on_cpu: bool = False) -> dict[str, Any]:
    """Compute a prompt whole, in chunks, and in chunks on a device for `fits` tokens at a time, whose failures leave
    the layers of the cache with different lengths; return the distance of their logits and caches, and the chunks."""
    import torch

    from seamark_evaluate.server.arguments import read_arguments
    from seamark_evaluate.server.errors import category_of
    from seamark_evaluate.server.key_value_cache import KeyValueCache
    from seamark_evaluate.server.model import load
    from seamark_evaluate.server.prefill import Chunks

    model = load(read_arguments([f"--model={folder}", "--port=0", "--dtype=float32", "--threads=1"]))
    ids = torch.randint(2, VOCABULARY, (tokens,), generator=torch.Generator().manual_seed(1)).tolist()

    def run(size: int, most: int) -> tuple[Any, KeyValueCache, Chunks, list[int]]:
        cache, chunks, began = KeyValueCache(model.layers), Chunks(tokens=size), []

        def forward(part: Any) -> Any:
            if len(part) > most:
                state = torch.zeros(1, 2, len(part), 16)
                cache.update(state, state, 0)  # the first layer is done when the second finds no memory
                if on_cpu:
                    torch.empty(1 << 60)
                raise torch.OutOfMemoryError("injected")
            return model.logits(part, cache, None)

        return chunks.compute(ids, cache, forward, began=began), cache, chunks, began

    whole, whole_cache, _, _ = run(tokens, tokens)
    chunked, _, _, chunks_began = run(chunk, chunk)
    halved, halved_cache, halving, began = run(chunk, fits)
    keys = [
        float((a.keys - b.keys).abs().max()) for a, b in zip(whole_cache.layers, halved_cache.layers, strict=True)
    ]
    try:
        run(chunk, 0)
        refused = ""
    except RuntimeError as error:
        refused = category_of(error)
    return {
        "chunked": float((whole - chunked).abs().max()),
        "halved": float((whole - halved).abs().max()),
        "keys": max(keys),
        "positions": [layer.get_seq_length() for layer in halved_cache.layers],
        "chunks_began": chunks_began,
        "began": began,
        "halvings": halving.halvings,
        "refused": refused,
    }


def ended_in_its_context(folder: str, tokens: int, chunk: int, passes: list[int]) -> dict[str, Any]:
    """Ask a question on a context of `tokens`, and end it after a number of forward passes, again and again, then let
    it be; return which were ended, the tokens that were there for the last one, its answer, and that of a new one."""
    import torch

    from seamark_evaluate.server.errors import CancelledRequestError

    context = torch.randint(2, VOCABULARY, (tokens,), generator=torch.Generator().manual_seed(1)).tolist()
    ended, engine = [], _engine(folder, chunk)
    for most in passes:
        try:
            _answer(engine, context, most=most)
        except CancelledRequestError:
            ended.append(True)
    answer, given = _answer(engine, context)
    anew, _ = _answer(_engine(folder, chunk), context)
    return {"ended": ended, "tokens": answer, "anew": anew, "cached": given.cached_tokens}


def halved_in_loads(folder: str, tokens: int, chunk: int, fits: int, scopes: list[str]) -> dict[str, Any]:
    """Answer a question in each scope on a device with memory for `fits` tokens at a time, for all in the last scope;
    return the chunk of each reply, and the halvings so far."""
    import torch

    context = torch.randint(2, VOCABULARY, (tokens,), generator=torch.Generator().manual_seed(1)).tolist()
    most = [fits]

    def limited(model: Any) -> Any:
        def network(**given: Any) -> Any:
            if given["input_ids"].shape[1] > most[0]:
                raise torch.OutOfMemoryError("injected")
            return model.network(**given)

        return network

    engine = _engine(folder, chunk, network=limited)
    chunks, halvings = [], []
    for scope in scopes:
        if scope == scopes[-1]:
            most[0] = tokens
        _, answer = _answer(engine, context, context_scope=scope, reuse_context=False)
        chunks.append(answer.facts["prefill_chunk"])
        halvings.append(engine[-1].halvings)
    return {"chunks": chunks, "halvings": halvings}


def halved_in_a_question(folder: str, tokens: int, chunk: int, fits: int) -> list[dict[str, Any]]:
    """Answer a question of `tokens` in chunks of `fits`, and in chunks of `chunk` on a device whose memory ends in
    the last layer for more than `fits`; return both facts of both methods."""
    import torch

    from seamark_evaluate.attention.method import read_method

    def limited(model: Any) -> Any:
        def end_of_memory(_: Any, given: Any) -> None:
            if given[0].shape[1] > fits:
                raise torch.OutOfMemoryError("injected")

        model.network.model.layers[-1].register_forward_pre_hook(end_of_memory)
        return model.network

    question = torch.randint(2, VOCABULARY, (tokens,), generator=torch.Generator().manual_seed(1)).tolist()
    sampled = {"masker": "adaptive_sampling", "base_rate": 0.1, "epsilon": 0.3, "delta": 0.2}
    found = []
    for maskers in ([], [{"masker": "sink", "keys": 4}, sampled]):
        fields = {"method": read_method({"name": "m", "maskers": maskers}, "m"), "measure_error_ratio": 1.0}
        for size in (fits, chunk):
            engine = _engine(folder, size, network=limited)
            found.append(_answer(engine, [2, 3], question=question, **fields)[1].facts)
    return found


def _engine(folder: str, chunk: int, **changes: Any) -> tuple[Any, ...]:
    """Return a model, its cache and chunks of that many tokens: what all answers have in common."""
    from dataclasses import replace

    from seamark_evaluate.server.arguments import read_arguments
    from seamark_evaluate.server.key_value_cache import ContextCache
    from seamark_evaluate.server.model import load
    from seamark_evaluate.server.prefill import Chunks

    model = load(read_arguments([f"--model={folder}", "--port=0", "--dtype=float32", "--threads=1"]))
    model = replace(model, **{name: change(model) for name, change in changes.items()})
    return model, ContextCache(model.layers), Chunks(tokens=chunk)


def _answer(
    engine: tuple[Any, ...],
    context: list[int],
    *,
    most: int = 1000,
    question: Sequence[int] = (5, 6, 7),
    **fields: Any,
) -> tuple[list[int], Any]:
    """Return the tokens of an answer to one question on a context, and what is known of it; it is cancelled before
    its forward pass `most`, counted from 0."""
    from itertools import count

    from seamark_evaluate.attention.method import Method
    from seamark_evaluate.server.generate import Answer, Generation
    from seamark_evaluate.server.prompt import Prompt
    from seamark_evaluate.server.request import Completion

    passes = count()
    completion = Completion(**{"method": Method(name="dense"), "max_tokens": 8, "ignore_eos": True, **fields})
    answer = Answer(prompt=Prompt(context=tuple(context), question=tuple(question)))
    generation = Generation(*engine, completion, answer.prompt, lambda: next(passes) >= most)
    return [piece.token for piece in generation.pieces(answer)], answer


def texts(folder: str, cases: list[list[Any]]) -> list[dict[str, Any]]:
    """Return the pieces of a text stream, what the tokenizer makes of all tokens, and whether the stream stopped.

    A case is a text, the number of its last tokens to leave out, and stop strings.
    """
    from transformers import AutoTokenizer

    from seamark_evaluate.server.generate import TextStream

    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = []
    for text, without, stop in cases:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        ids = ids[: len(ids) - without]
        stream, pieces = TextStream(tokenizer, stop), []
        for token in ids:
            pieces.append(stream.add(token))
            if stream.is_stopped:
                break
        pieces.append(stream.rest())
        found.append({"pieces": pieces, "whole": tokenizer.decode(ids), "stopped": stream.is_stopped})
    return found


def encoded(folder: str, texts: list[str]) -> list[list[int]]:
    """Return the tokens of texts without special ones."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
