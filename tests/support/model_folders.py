"""Folders of language models without weights: config.json with published sizes, and safetensors files of which only
the header is written, byte by byte. The rest of a file is a hole that takes no space."""

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
}
LLAMA_70B = LLAMA_8B | {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64}
MIXTRAL = {
    "architectures": ["MixtralForCausalLM"],
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3 = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "n_routed_experts": 256,
    "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8"},
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
}
LLAMA_8B_PARAMETERS, LLAMA_70B_PARAMETERS, MIXTRAL_PARAMETERS = 8_030_261_248, 70_553_706_496, 46_702_792_704
SIZES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "I32": 4}
Tensors = Mapping[str, tuple[str, list[int]]]
"""Name of a tensor -> type and shape."""


def safetensors_header(tensors: Tensors) -> tuple[bytes, int]:
    """Return the first bytes of a safetensors file, and the length of its data."""
    entries, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + prod(shape) * SIZES[dtype]
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    return len(text).to_bytes(8, "little") + text, end


def write_weights(path: Path, tensors: Tensors) -> None:
    """Write a safetensors file with a hole in place of its data."""
    head, data_bytes = safetensors_header(tensors)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + data_bytes)


def write_model(folder: Path, config: Mapping[str, Any], parameters: int, dtype: str = "BF16") -> Path:
    """Write a model with one tensor of so many parameters."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_weights(folder / "model.safetensors", {"weights": (dtype, [parameters])})
    return folder
