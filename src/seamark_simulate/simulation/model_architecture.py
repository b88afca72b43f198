"""Architecture of a language model: the sizes in its config.json that decide the memory of its server. Reads no
file."""

from collections.abc import Mapping
from dataclasses import dataclass

DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}
"""Bytes of a number, by the names that servers take."""
LARGEST = 2**53

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups")
HIDDEN = ("hidden_size", "n_embd", "d_model")
LONGEST = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length")
EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
"""Names that architectures give one size, as vLLM 0.32 reads them; the first that a file has counts."""
LONGEST_IS_SCALED = ("su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling")
"""Kinds of RoPE scaling with which `max_position_embeddings` is the scaled length already, as in vLLM 0.32. Files
that keep the length before it also name that as the original one."""


class UnsizedError(ValueError):
    """A config.json without a size that the memory depends on: an architecture that is not known here."""


@dataclass(frozen=True, kw_only=True)
class ModelArchitecture:
    """Sizes of a language model.

    `latent_dim` is the length of the vector that multi-head latent attention (MLA) keeps of a token in each layer,
    None for keys and values by head. The weights of a `quantised` model stay in the types of their
    files. `longest_tokens` is the longest prompt and reply together, None if the file does not say.
    """

    name: str
    layers: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    latent_dim: int | None = None
    longest_tokens: int | None = None
    quantised: bool = False
    experts: int = 0
    multimodal: bool = False

    def compute_bytes(self, dtype: str = "auto") -> int:
        """Return the bytes of a number in computation, so also of a key and a value; `dtype` is that of the server.

        `auto` has 16 bits whatever the files have: vLLM computes in 16 bits for models of float32 too.
        """
        return DTYPE_BYTES.get(dtype, 2)

    def stage_layers(self, stages: int) -> tuple[int, ...]:
        """Return the layers of each pipeline stage.

        Layers that cannot be divided go to the stages before the last, one each from the back (vLLM,
        `get_pp_indices`): the last one has the output head.
        """
        layers, rest = divmod(self.layers, stages)
        return tuple(layers + (stages - 1 - rest <= stage < stages - 1) for stage in range(stages))


def architecture_of(config: Mapping[str, object]) -> ModelArchitecture:
    """Return the architecture that a parsed config.json describes; of a multimodal model that of its `text_config`.

    Raises UnsizedError if a size is missing, ValueError for a value that cannot be.
    """
    nested = config.get("text_config")
    text: Mapping[str, object] = nested if isinstance(nested, Mapping) else config
    layers, heads = _required(text, LAYERS), _required(text, HEADS)
    multi_query = text.get("multi_query") is True and not any(name in text for name in KV_HEADS)
    kv_heads = 1 if multi_query else _count(text, KV_HEADS) or heads
    names = config.get("architectures")
    named = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    latent, rotary = _count(text, ("kv_lora_rank",)), _count(text, ("qk_rope_head_dim",))
    return ModelArchitecture(
        name=named[0] if named else str(config.get("model_type", "unknown")),
        layers=layers,
        attention_heads=heads,
        kv_heads=kv_heads,
        head_dim=_count(text, ("head_dim",)) or max(1, _required(text, HIDDEN) // heads),
        latent_dim=latent + rotary if latent and rotary else None,
        longest_tokens=_longest_tokens(config, text),
        quantised=any(
            section.get(key) for section in (config, text) for key in ("quantization_config", "compression_config")
        ),
        experts=_count(text, EXPERTS) or 0,
        multimodal="vision_config" in config,
    )


def _required(config: Mapping[str, object], names: tuple[str, ...]) -> int:
    count = _count(config, names)
    if count is None:
        raise UnsizedError(f"has no '{names[0]}'")
    return count


def _count(config: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    """Return the size under the first of the names, None without one. Raises ValueError for anything but a whole
    number from 1."""
    for name in names:
        value = config.get(name)
        if value is None or (name in ("head_dim", *EXPERTS) and value == 0):
            continue
        if type(value) is not int or not 1 <= value <= LARGEST:
            raise ValueError(f"{name}: expected a whole number from 1, but it is {str(value)[:40]!r}")
        return value
    return None


def _longest_tokens(config: Mapping[str, object], text: Mapping[str, object]) -> int | None:
    """Return the longest prompt and reply together: the positions, times the factor of RoPE scaling where they are
    those before it. A larger `model_max_length` overrides both, as in vLLM."""
    longest = _count(text, LONGEST)
    if longest is None:
        return None
    scaling = text.get("rope_scaling") or text.get("rope_parameters")
    factor = scaling.get("factor") if isinstance(scaling, Mapping) else None
    if isinstance(scaling, Mapping) and isinstance(factor, (int, float)) and 1 <= factor <= LARGEST:
        kind = scaling.get("rope_type", scaling.get("type"))
        is_scaled = kind in LONGEST_IS_SCALED or "gemma3" in str(text.get("model_type"))
        original = _count(scaling, ("original_max_position_embeddings",)) if is_scaled else longest
        longest = max(longest, int((original or 0) * factor))
    return max(longest, _count(config, ("model_max_length",)) or 0)
