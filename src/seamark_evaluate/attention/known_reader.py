"""The known reader: a Llama of two layers that is written, not trained, and looks keys up exactly.

Words are one-hot codes. The hidden state has three parts of the size of the vocabulary: the word itself, the word
before, and the answer.

- Layer 1 attends to the token before and copies its code. Its queries and keys are biases alone, in the dimensions of
  high rotary frequency, with a phase of one position: the score is the sum of cos(frequency * (distance - 1)).
- Layer 2 attends to the position whose word before is the query's word, and copies its word to the answer. Queries
  and keys lie in dimensions of so low a frequency that position does not matter. A key is the code of the word before
  minus the code of the word itself, so a row in which layer 1 could see nothing but itself matches nothing.

The output head reads the answer alone. Codes are orthogonal, so a word that no kept position holds is never the
answer. Needs torch, transformers and tokenizers, imported inside the functions.
"""

from collections.abc import Sequence
from math import ceil, log10, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from seamark_evaluate.attention.known_answers import needle_vocabulary

UNKNOWN, PADDING, END = "<unk>", "<pad>", "<eos>"
ROTARY_BASE = 1e30
"""The frequency of pair i of D is this to the power -i / D: from 1 a token to far below 1 a context."""
LEAST_PAIRS = 160
"""Pairs of dimensions of a head: enough for several high frequencies."""
LOWEST_HIGH = 0.03
"""Frequencies from 1 to this one, in radians a token, tell the token before from all others."""
MOST_TURN = 0.01
"""Radians by which a low frequency may turn over the longest context."""
GAP = 60.0
"""Score of the right position above all others: e to the power -60 is left for them."""
LOGIT = 10.0
"""Output of the answer; all other words have 0."""
CHAT = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


def write_known_reader(folder: Path, *, keys: int, max_length: int, words: Sequence[str] = ()) -> None:
    """Write the reader and its word-level tokenizer, for AutoModelForCausalLM and AutoTokenizer.

    Its vocabulary is that of `needles` with `keys` keys, and further `words`; any other word is read as `<unk>`.
    `max_length` is the longest prompt and reply in tokens. Weights are float32.
    """
    import torch

    tokenizer = word_tokenizer((*needle_vocabulary(keys), *words), max_length)
    size = len(tokenizer)
    above_low = (log10(max_length) - log10(MOST_TURN)) / log10(ROTARY_BASE)
    pairs = max(LEAST_PAIRS, ceil(ceil(size / 2) / (1 - above_low)) + 1)
    model = _llama(
        tokenizer,
        max_length,
        hidden_size=3 * size,
        intermediate_size=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=2 * pairs,
        attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": ROTARY_BASE},
        rms_norm_eps=1e-12,
    )
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.zero_()
        word, before, answer = (slice(part * size, (part + 1) * size) for part in range(3))
        one = torch.eye(size)
        model.model.embed_tokens.weight[:, word] = one
        first, second = (layer.self_attn for layer in model.model.layers)
        frequencies, strength = _high_frequencies(pairs, max_length)
        high = slice(0, len(frequencies))
        turned = slice(pairs, pairs + len(frequencies))
        first.q_proj.bias[high] = strength
        first.k_proj.bias[high] = strength * torch.tensor(np.cos(frequencies), dtype=torch.float32)
        first.k_proj.bias[turned] = strength * torch.tensor(np.sin(frequencies), dtype=torch.float32)
        first.v_proj.weight[:size, word] = one / _normed(size, parts=1)
        first.o_proj.weight[before, :size] = one
        dimensions = _low_dimensions(size, pairs)
        second.q_proj.weight[dimensions, word] = one * GAP * sqrt(2 * pairs) / _normed(size, parts=2)
        second.k_proj.weight[dimensions, before] = one / _normed(size, parts=2)
        second.k_proj.weight[dimensions, word] = -one / _normed(size, parts=2)
        second.v_proj.weight[:size, word] = one / _normed(size, parts=2)
        second.o_proj.weight[answer, :size] = one
        model.lm_head.weight[:, answer] = one * LOGIT / _normed(size, parts=3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_random_model(folder: Path, *, seed: int, keys: int, max_length: int, words: Sequence[str] = ()) -> None:
    """Write a tiny Llama of random weights, 4 heads in 2 groups, and the known reader's tokenizer; the same for a
    seed."""
    import torch

    tokenizer = word_tokenizer((*needle_vocabulary(keys), *words), max_length)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _llama(
            tokenizer,
            max_length,
            hidden_size=64,
            intermediate_size=128,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            initializer_range=0.2,
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def word_tokenizer(words: Sequence[str], max_length: int) -> Any:
    """Return a tokenizer for which every word between white space is one token. It adds no tokens of its own."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: index for index, word in enumerate(dict.fromkeys((UNKNOWN, PADDING, END, *words)))}
    whole = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    whole.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=whole,
        unk_token=UNKNOWN,
        pad_token=PADDING,
        eos_token=END,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT
    return tokenizer


def _llama(tokenizer: Any, max_length: int, **sizes: Any) -> Any:
    """Return a Llama of two layers with the words of a tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        num_hidden_layers=2,
        max_position_embeddings=max_length,
        tie_word_embeddings=False,
        **sizes,
    )
    return LlamaForCausalLM(config)


def _normed(size: int, parts: int) -> float:
    """Return the value that RMSNorm gives to a 1 in a hidden state of three parts, `parts` of which have one 1."""
    return sqrt(3 * size / parts)


def _high_frequencies(pairs: int, max_length: int) -> tuple[np.ndarray, float]:
    """Return the frequencies of layer 1 and the strength of its biases: the token before leads by GAP."""
    every = ROTARY_BASE ** (-np.arange(pairs) / pairs)
    high = every[every >= LOWEST_HIGH]
    others = np.delete(np.arange(-1, max_length), 1)  # distances less 1; 0 is the token before
    lead = (1 - np.cos(high[:, None] * others)).sum(axis=0).min()
    return high, float(sqrt(GAP * sqrt(2 * pairs) / lead))


def _low_dimensions(size: int, pairs: int) -> list[int]:
    """Return the dimensions of a head for the codes of layer 2: the pairs of lowest frequency, both of each."""
    half = ceil(size / 2)
    return [(pairs - half if index < half else 2 * pairs - 2 * half) + index for index in range(size)]
