"""What test_known_reader.py asks of written models in the environment `evaluation`. Every answer is JSON."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import torch
from forked_answers import TRANSFORMERS
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer

from seamark_evaluate.attention.attend import Attended, attend
from seamark_evaluate.attention.known_answers import (
    FILLERS,
    expected_density,
    expected_right,
    needle_keys,
    needle_values,
)
from seamark_evaluate.attention.known_reader import write_known_reader, write_random_model
from seamark_evaluate.attention.method import Method, read_method

torch.set_num_threads(1)

PRELOADED = TRANSFORMERS
KEYS = 16
DENSE = Method(name="dense")


@dataclass
class Hooked:
    """A model whose attention is `attend` under the method that is set."""

    folder: Path
    method: Method = DENSE
    kernel: str = "gathered"
    steps: list[Attended] = field(default_factory=list)

    def __post_init__(self) -> None:
        AttentionInterface.register("under_test", self.attention)
        self.tokenizer = AutoTokenizer.from_pretrained(self.folder)
        self.model = AutoModelForCausalLM.from_pretrained(self.folder, attn_implementation="under_test")

    def attention(self, module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float, **_: Any) -> Any:
        attended = attend(
            query[0],
            key[0],
            value[0],
            method=self.method,
            kernel=self.kernel,  # type: ignore[arg-type]
            scale=scaling,
            layer=module.layer_idx,
            generator=torch.Generator().manual_seed(7),
        )
        self.steps.append(attended)
        return attended.output.transpose(0, 1)[None], None

    def logits(
        self, words: Sequence[str], method: Method, past: Any = None, kernel: str = "gathered"
    ) -> tuple[Any, Any]:
        """Return the logits of every position [tokens, vocabulary] and the cache after them."""
        self.method, self.kernel, self.steps = method, kernel, []
        ids = self.tokenizer(" ".join(words), return_tensors="pt").input_ids
        assert ids.shape[1] == len(words), "every word is one token"
        with torch.no_grad():
            answer = self.model(ids, past_key_values=past, use_cache=True)
        return answer.logits[0], answer.past_key_values


def needles(length: int, seed: int) -> tuple[list[str], list[tuple[int, str, str]]]:
    """Return a context and its needles: place of the key, key, value. Some stand at both ends and side by side."""
    random = Random(seed)
    words = random.choices(FILLERS, k=length)
    places = [0, 2, 4, length // 2, length // 2 + 2, length - 70, length - 9, length - 4, length - 2]
    keys, values = (random.sample(each(KEYS), len(places)) for each in (needle_keys, needle_values))
    hidden = list(zip(places, keys, values, strict=True))
    for place, key, value in hidden:
        words[place : place + 2] = [key, value]
    return words, hidden


def outcomes(
    folder: str, length: int, methods: Mapping[str, Sequence[Mapping[str, Any]]], starts: Sequence[str]
) -> Any:
    """Give, for each method, start of sparseness and needle, what is expected and what the known reader answers."""
    reader = _reader(folder)
    words, hidden = needles(length, seed=length)
    _, context = reader.logits(words, DENSE)
    answer = []
    for (name, maskers), start in product(methods.items(), starts):
        method = read_method({"name": name, "maskers": list(maskers)}, "here")
        past = reader.logits(words, method)[1] if start == "prompt" else context
        for place, key, value in hidden:
            facts = {"needle_position": place, "length_words": length}
            logits, past = reader.logits([key], DENSE if start == "generation" else method, past)
            past.crop(-1)
            said = reader.tokenizer.decode(logits[-1].argmax())
            answer.append([name, start, place, expected_right(facts, method, start), said == value])  # type: ignore[arg-type]
            for attended in reader.steps:
                used = DENSE if start == "generation" else method
                assert attended.kept / attended.allowed == expected_density(length + 1, used), (name, start)
    return answer


def chosen(folder: str, length: int, methods: Mapping[str, Sequence[Mapping[str, Any]]]) -> Any:
    """Give how many needles the known reader finds under methods that look at keys, and how many there are."""
    reader = _reader(folder)
    words, hidden = needles(length, seed=length)
    _, past = reader.logits(words, DENSE)
    right = {}
    for name, maskers in methods.items():
        method = read_method({"name": name, "maskers": list(maskers)}, "here")
        right[name] = 0
        for _, key, value in hidden:
            logits, past = reader.logits([key], method, past)
            past.crop(-1)
            right[name] += reader.tokenizer.decode(logits[-1].argmax()) == value
    return [right, len(hidden)]


def several_tokens(folder: str, maskers: Sequence[Mapping[str, Any]]) -> Any:
    """Give what follows a key token by token: dense, and with the method from the first token that is fed back."""
    reader = _reader(folder)
    words, hidden = needles(200, seed=1)
    place, key, value = hidden[3]
    method = read_method({"name": "here", "maskers": list(maskers)}, "here")
    said = []
    for of_answer in (DENSE, method):
        _, past = reader.logits(words, DENSE)
        logits, past = reader.logits([key], DENSE, past)
        tokens = [reader.tokenizer.decode(logits[-1].argmax())]
        for _ in range(2):
            logits, past = reader.logits(tokens[-1:], of_answer, past)
            tokens.append(reader.tokenizer.decode(logits[-1].argmax()))
        said.append(tokens)
    return {"dense": said[0], "sparse": said[1], "context": words[place + 1 : place + 4], "value": value}


def random_model(folder: str, methods: Sequence[Sequence[Mapping[str, Any]]]) -> Any:
    """Give, for a random model with grouped heads, how far logits of each method are apart by kernel and from
    transformers' own attention, and whether tokens are the same."""
    path = Path(folder) / "random"
    write_random_model(path, seed=3, keys=KEYS, max_length=512)
    words, _ = needles(160, seed=2)
    reader = Hooked(path)
    own = AutoModelForCausalLM.from_pretrained(path, attn_implementation="sdpa")
    with torch.no_grad():
        plain = own(reader.tokenizer(" ".join(words), return_tensors="pt").input_ids).logits[0]
    answer = []
    for maskers in methods:
        method = read_method({"name": "here", "maskers": list(maskers)}, "here")
        by_kernel = []
        for kernel in ("masked", "gathered"):
            whole, _ = reader.logits(words, method, kernel=kernel)
            _, past = reader.logits(words[:150], method, kernel=kernel)
            rest, _ = reader.logits(words[150:], method, past, kernel=kernel)
            by_kernel.append((whole, rest))
        (masked, masked_rest), (gathered, gathered_rest) = by_kernel
        answer.append(
            {
                "apart": max(_far(masked, gathered), _far(masked_rest, gathered_rest)),
                "from_plain": _far(gathered, plain),
                "in_parts": _far(gathered[150:], gathered_rest),
                "tokens": bool((gathered.argmax(-1) == masked.argmax(-1)).all()),
                "spread": float(plain.std()),
            }
        )
    return answer


def written(folder: str, seeds: Sequence[int]) -> Any:
    """Give digests of the weights of the known reader, twice, and of random models of some seeds."""
    models = []
    for number in range(2):
        write_known_reader(Path(folder) / f"reader{number}", keys=KEYS, max_length=512)
        models.append(Path(folder) / f"reader{number}")
    for number, seed in enumerate(seeds):
        write_random_model(Path(folder) / f"random{number}", seed=seed, keys=KEYS, max_length=512)
        models.append(Path(folder) / f"random{number}")
    return [hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest() for path in models]


def _reader(folder: str) -> Hooked:
    path = Path(folder) / "reader"
    if not path.exists():
        write_known_reader(path, keys=KEYS, max_length=8192)
    return Hooked(path)


def _far(one: Any, other: Any) -> float:
    return float((one - other).abs().max())
