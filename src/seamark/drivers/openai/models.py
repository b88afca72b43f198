"""The tiny model of an embedded vLLM: a Llama of random weights and a byte-level BPE, generated from a seed.

Models by name or folder are left to the server. Workers of loads import this module too and have no torch.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from seamark.drivers.openai.prompts import WORDS
from seamark.load.driver import Target
from seamark.model.service import Value

TINY = "tiny"
"""The `model` that is generated here, in a folder of that name below the deployment's; the server runs there."""

VOCABULARY = 32000
"""Size of a usual vocabulary, so prompts for usual models are prompts for this one."""
HIDDEN, HEADS, LAYERS, HEAD_DIM = 128, 4, 2, 32
LONGEST = 32768
"""Longest prompt and reply in tokens: more than any load here needs, at no cost."""

UNKNOWN, BEGIN, END, PADDING = "<unk>", "<s>", "</s>", "<pad>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def stage(target: Target, seed: int) -> Mapping[str, Value]:
    """Write the tiny model if the settings ask for it; say how large it is. Byte for byte the same for a seed."""
    if target.settings.get("model") != TINY:
        return {}
    return write_tiny(target.data / TINY, seed)


def lacking(settings: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """Yield a model that is named by a folder which is not there, or is no model's. Names are left to the server."""
    model = str(settings.get("model") or "")
    if model.startswith(("/", "./", "../", "~")):
        folder = Path(model)
        if not folder.is_dir():
            yield "model", f"there is no folder {model}. Correct it, or download the model there."
        elif not (folder / "config.json").is_file():
            yield "model", f"{model} has no config.json. Name the folder of a model."


def write_tiny(folder: Path, seed: int) -> Mapping[str, Value]:
    """Write model and tokenizer into `folder`, as Hugging Face libraries do; return their size in several units."""
    tokenizer = _tokenizer(seed)
    tokenizer.save_pretrained(folder)
    model = _model(tokenizer, seed)
    model.save_pretrained(folder)
    return {
        "model_parameters": sum(weights.numel() for weights in model.parameters()),
        "model_bytes": sum(path.stat().st_size for path in folder.iterdir()),
        "model_vocabulary": VOCABULARY,
    }


def _tokenizer(seed: int) -> Any:
    """Return a byte-level BPE trained on made-up words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    learnt = Tokenizer(models.BPE())
    learnt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learnt.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[UNKNOWN, BEGIN, END, PADDING, *ROLES],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learnt.train_from_iterator(_sentences(Random(seed)), trainer)
    whole = PreTrainedTokenizerFast(
        tokenizer_object=learnt,
        unk_token=UNKNOWN,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=PADDING,
        model_max_length=LONGEST,
        clean_up_tokenization_spaces=False,
    )
    whole.chat_template = CHAT
    return whole


def _model(tokenizer: Any, seed: int) -> Any:
    """Return a Llama of random weights that answers with plain text only.

    A server holds back a partial character until the rest arrives, and an end token would end a reply early.
    Therefore the first dimension is equal for every token, no layer changes it, and the head reads it for those
    tokens only, as a large negative number.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        head_dim=HEAD_DIM,
        max_position_embeddings=LONGEST,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    model: Any = LlamaForCausalLM(config)
    texts = [tokenizer.decode([token], skip_special_tokens=True) for token in range(VOCABULARY)]
    unspoken = torch.tensor([not (text.isascii() and text.isprintable() and text) for text in texts])
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 0] = 0.1
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[0] = 0
            layer.mlp.down_proj.weight[0] = 0
        model.lm_head.weight[:, 0] = torch.where(unspoken, -100.0, 0.0)
    return model.to(torch.bfloat16)


def _sentences(random: Random) -> Iterator[str]:
    """Yield the training texts of the tokenizer: made-up words of a few syllables, and the words of prompts, so that
    each of these is one token at the start of a text and inside."""
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvz" for vowel in "aeiou"]
    words = ["".join(random.choices(syllables, k=random.randint(1, 4))) for _ in range(40_000)]
    for _ in range(4000):
        yield " ".join(random.choices(words, k=40)) + "."
    for word in WORDS:
        yield from [f"{word} {word}"] * 100
