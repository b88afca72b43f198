"""Memory of each GPU under a server of a language model: weights, activations, and room for keys and values. Reads no
file.

Everything is of one GPU, as memory of one GPU is of no use to another:
memory x utilisation - weights / (tensor x pipeline parallel) - activation - non-torch = room.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from seamark_simulate.simulation.model_architecture import ModelArchitecture

GIB = 1 << 30
GPU_KINDS: Mapping[str, float] = {
    "v100-32": 32.0,
    "a100-40": 40.0,
    "a100-80": 80.0,
    "h100-80": 80.0,
    "h200-141": 141.0,
}
"""Memory of kinds of GPU in GB of their data sheets. One GB is taken as 2**30 bytes, as llm-d's capacity planner
does: of an H100 with 80 GB a server sees 79.2 of these."""

NEAR = 0.1
"""Relative difference between the memory of a GPU's data sheet and that which it reports."""

ACTIVATION_GIB: Mapping[str, float] = {
    "LlamaForCausalLM": 4.8,
    "Qwen2ForCausalLM": 5.6,
    "Qwen3ForCausalLM": 5.6,
    "PixtralForConditionalGeneration": 2.5,
    "Mistral3ForConditionalGeneration": 2.5,
}
MOE_ACTIVATION_GIB, MULTIMODAL_ACTIVATION_GIB, DENSE_ACTIVATION_GIB = 8.0, 2.5, 5.5
"""Peak memory of activations on a GPU, by architecture, else by kind of model.

From llm-d-benchmark, config_explorer/empirical-vllm-memory-results.md: starts of vLLM on an H100 with its default
batch. It depends neither on the longest request nor on tensor parallelism.
"""
NON_TORCH_ALONE_GIB, NON_TORCH_GIB = 0.15, 0.6
"""Memory outside of PyTorch's allocator on a GPU, without and with tensor parallelism. Same source."""
BLOCK_TOKENS = 16
"""Tokens of a block of keys and values: vLLM's default on GPUs."""
UNKNOWN_LONGEST = 2048
"""Longest request where neither server nor model says: vLLM's default."""
MOST_GPUS = 64
"""Largest layout that is tried as a remedy."""

Quantity = Literal["gpus", "tensor_parallel", "pipeline_parallel", "max_model_len"]
RefusalKind = Literal[
    "gpus_missing",
    "heads_not_divided",
    "too_many_stages",
    "too_long_for_model",
    "weights_do_not_fit",
    "no_request_fits",
]
Change = Mapping[Quantity, int]


def gpu_kind(name: str, memory_bytes: int) -> str:
    """Return the kind of a GPU by the name and memory that it reports: `a100-40` for NVIDIA A100-SXM4-40GB.

    One that is not in GPU_KINDS is named by its words and its memory in GB.
    """
    memory_gb = memory_bytes / GIB
    for kind, kind_gb in GPU_KINDS.items():
        family = kind.partition("-")[0]
        if family in name.lower() and abs(memory_gb / kind_gb - 1) <= NEAR:
            return kind
    words = [word for word in name.lower().replace("nvidia", "").split() if word]
    return f"{'-'.join(words) or 'gpu'}-{memory_gb:.0f}"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Numbers of GPUs that share each layer, of pipeline stages, and of replicas."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1

    @property
    def replica_gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replica_gpus * self.data_parallel


@dataclass(frozen=True, kw_only=True)
class SizedModel:
    """A language model: its architecture, and the bytes of its weights by type, as in the headers of its files:
    `BF16`, `F8_E4M3`, `I32` ..."""

    architecture: ModelArchitecture
    weights: Mapping[str, int]

    def loaded_bytes(self, compute_bytes: int) -> int:
        """Return the bytes of the weights on all GPUs of a replica together.

        Floating-point weights are converted to the type of computation, those of quantised models are not.
        """
        if self.architecture.quantised:
            return sum(self.weights.values())
        return sum(
            count // FLOAT_BYTES[name] * compute_bytes if name in FLOAT_BYTES else count
            for name, count in self.weights.items()
        )


FLOAT_BYTES: Mapping[str, int] = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""Types that a server converts, as safetensors names them."""


@dataclass(frozen=True, kw_only=True)
class ServerMemory:
    """What is asked of a server of a language model: layout, longest request, and its share of each GPU.

    `max_model_len` None: the longest of the model. `gpu_gb` is the memory of a GPU (1 GB as 2**30 bytes).
    `measured_bytes` is the memory beside weights, keys and values that a start of the model took of such a GPU, in
    place of the constants; None: there was none.
    """

    layout: Layout
    gpu_gb: float
    gpu_memory_utilization: float = 0.9
    max_model_len: int | None = None
    dtype: str = "auto"
    measured_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Memory of the GPU that is used most, in bytes, and the requests of the greatest length that it bears.

    With `is_measured`, `activation_bytes` has all that a real start took beside weights, keys and values.
    `room_bytes` is negative where weights and activations alone are too large. `kv_token_bytes` is a token's keys and
    values on that GPU. `kv_tokens` and `requests_per_replica` count whole blocks.
    """

    granted_bytes: int
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    room_bytes: int
    kv_token_bytes: int
    kv_tokens: int
    max_model_len: int
    requests_per_replica: int
    requests: int
    is_measured: bool = False

    @property
    def fixed_text(self) -> str:
        """The parts that no request shares, in GiB: `weights 14.96 + activation 4.80 + non-torch 0.15`."""
        if self.is_measured:
            return f"weights {gib(self.weights_bytes)} + measured {gib(self.activation_bytes)}"
        return (
            f"weights {gib(self.weights_bytes)} + activation {gib(self.activation_bytes)} + non-torch"
            f" {gib(self.non_torch_bytes)}"
        )


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a layout cannot serve a model. Each of `changes` would do; without any, `otherwise` is the remedy."""

    kind: RefusalKind
    why: str
    changes: tuple[Change, ...]
    otherwise: str = ""


def kv_token_bytes(model: ModelArchitecture, layout: Layout, compute_bytes: int) -> int:
    """Return the bytes of a token's keys and values on a GPU of the stage with the most layers.

    A GPU has its share of the heads, and at least one. The latent vector of MLA is whole on each.
    """
    layers = max(model.stage_layers(layout.pipeline_parallel))
    if model.latent_dim is not None:
        return layers * model.latent_dim * compute_bytes
    heads = max(1, model.kv_heads // layout.tensor_parallel)
    return layers * 2 * heads * model.head_dim * compute_bytes


def kv_tokens(room_bytes: int, token_bytes: int, block_tokens: int = BLOCK_TOKENS) -> int:
    """Return the tokens whose keys and values fit, in whole blocks."""
    return max(0, room_bytes) // (token_bytes * block_tokens) * block_tokens


def activation_bytes(model: ModelArchitecture) -> int:
    """Return the peak memory of activations on a GPU."""
    if model.name in ACTIVATION_GIB:
        return round(ACTIVATION_GIB[model.name] * GIB)
    if model.experts:
        return round(MOE_ACTIVATION_GIB * GIB)
    return round((MULTIMODAL_ACTIVATION_GIB if model.multimodal else DENSE_ACTIVATION_GIB) * GIB)


def estimate_memory(sized: SizedModel, asked: ServerMemory) -> MemoryEstimate:
    """Return the memory of a GPU under the server, whether it fits or not."""
    model, layout = sized.architecture, asked.layout
    compute_bytes = model.compute_bytes(asked.dtype)
    granted = int(asked.gpu_gb * GIB * asked.gpu_memory_utilization)
    weights_bytes = -(-sized.loaded_bytes(compute_bytes) // layout.replica_gpus)
    activation = activation_bytes(model)
    non_torch = round((NON_TORCH_ALONE_GIB if layout.tensor_parallel == 1 else NON_TORCH_GIB) * GIB)
    if asked.measured_bytes is not None:
        activation, non_torch = asked.measured_bytes, 0
    room = granted - weights_bytes - activation - non_torch
    token_bytes = kv_token_bytes(model, layout, compute_bytes)
    longest = asked.max_model_len or model.longest_tokens or UNKNOWN_LONGEST
    tokens = kv_tokens(room, token_bytes)
    requests = tokens // (-(-longest // BLOCK_TOKENS) * BLOCK_TOKENS)
    return MemoryEstimate(
        granted_bytes=granted,
        weights_bytes=weights_bytes,
        activation_bytes=activation,
        non_torch_bytes=non_torch,
        room_bytes=room,
        kv_token_bytes=token_bytes,
        kv_tokens=tokens,
        max_model_len=longest,
        requests_per_replica=requests,
        requests=requests * layout.data_parallel,
        is_measured=asked.measured_bytes is not None,
    )


def measured_bytes(sized: SizedModel, asked: ServerMemory, tokens: int) -> int:
    """Return the memory beside weights, keys and values of a start that had room for so many tokens."""
    memory = estimate_memory(sized, asked)
    return memory.granted_bytes - memory.weights_bytes - tokens * memory.kv_token_bytes


def refusals(
    sized: SizedModel,
    asked: ServerMemory,
    *,
    gpus: int,
    node_gpus: int | None = None,
    has_pipeline: bool = True,
) -> tuple[Refusal, ...]:
    """Return why the server cannot run on `gpus` GPUs; empty if it can.

    Layouts as remedies keep tensor parallelism on the GPUs of one node, `node_gpus` (None: not known), and have
    pipeline stages over several only where the server can (`has_pipeline`).
    """
    model, layout = sized.architecture, asked.layout
    against = []
    if layout.gpus > gpus:
        why = f"{_product(layout)} needs {layout.gpus} GPUs, and there {'is' if gpus == 1 else 'are'} {gpus}"
        against.append(Refusal(kind="gpus_missing", why=why, changes=({"gpus": layout.gpus},)))
    if not _shares_heads(model, layout.tensor_parallel):
        heads = f"{model.attention_heads} attention heads and {model.kv_heads} of keys and values"
        why = f"{layout.tensor_parallel} tensor-parallel GPUs cannot share {heads} evenly"
        divisor = _next_divisor(model, layout)
        against.append(Refusal(kind="heads_not_divided", why=why, changes=({"tensor_parallel": divisor},)))
    if layout.pipeline_parallel > model.layers:
        why = f"{layout.pipeline_parallel} pipeline stages are more than the {model.layers} layers of the model"
        against.append(Refusal(kind="too_many_stages", why=why, changes=({"pipeline_parallel": model.layers},)))
    longest = model.longest_tokens
    if longest is not None and asked.max_model_len is not None and asked.max_model_len > longest:
        why = f"{asked.max_model_len} tokens are more than the {longest} of the model"
        against.append(Refusal(kind="too_long_for_model", why=why, changes=({"max_model_len": longest},)))
        asked = replace(asked, max_model_len=longest)
    divided = replace(
        layout,
        tensor_parallel=_next_divisor(model, layout),
        pipeline_parallel=min(layout.pipeline_parallel, model.layers),
    )
    short = _short(sized, replace(asked, layout=divided), node_gpus, has_pipeline)
    return (*against, short) if short else tuple(against)


def _short(sized: SizedModel, asked: ServerMemory, node_gpus: int | None, has_pipeline: bool) -> Refusal | None:
    """Return the refusal of a server whose memory does not suffice, None where it does."""
    needs = estimate_memory(sized, asked)
    if needs.requests_per_replica:
        return None
    better = _smallest_layout(sized, asked, node_gpus, has_pipeline)
    changes = [_change(asked.layout, better)] if better else []
    fixed = needs.weights_bytes + needs.activation_bytes + needs.non_torch_bytes
    granted = f"{asked.gpu_memory_utilization:g} x {asked.gpu_gb:g} GB = {gib(needs.granted_bytes)} GiB"
    if needs.room_bytes <= 0:
        where = "the GPU" if asked.layout.gpus == 1 else f"each of {asked.layout.gpus} GPUs"
        why = f"{needs.fixed_text} = {gib(fixed)} GiB on {where}, of {granted}"
        kind: RefusalKind = "weights_do_not_fit"
        otherwise = "Use GPUs with more memory, or quantised weights"
    else:
        request = -(-needs.max_model_len // BLOCK_TOKENS) * BLOCK_TOKENS * needs.kv_token_bytes
        why = (
            f"a request of {needs.max_model_len} tokens needs {gib(request)} GiB for keys and values on each GPU, and"
            f" {granted} less {needs.fixed_text} leave {gib(needs.room_bytes)} GiB"
        )
        kind = "no_request_fits"
        otherwise = "Use GPUs with more memory"
        if needs.kv_tokens:
            changes = [{"max_model_len": needs.kv_tokens}, *changes]
    return Refusal(kind=kind, why=why, changes=tuple(changes), otherwise=otherwise)


def _change(layout: Layout, better: Layout) -> Change:
    """Return what another layout changes, with the GPUs that it needs."""
    change: dict[Quantity, int] = {"gpus": better.gpus}
    if better.tensor_parallel != layout.tensor_parallel:
        change["tensor_parallel"] = better.tensor_parallel
    if better.pipeline_parallel != layout.pipeline_parallel:
        change["pipeline_parallel"] = better.pipeline_parallel
    return change


def _smallest_layout(
    sized: SizedModel, asked: ServerMemory, node_gpus: int | None, has_pipeline: bool
) -> Layout | None:
    """Return the layout of the fewest GPUs that bears a request, None for none.

    Tensor parallelism comes first, on the GPUs of a node; pipeline stages of whole nodes follow.
    """
    model = sized.architecture
    tensors = [count for count in range(1, min(MOST_GPUS, node_gpus or MOST_GPUS) + 1) if _shares_heads(model, count)]
    stages = range(2, min(MOST_GPUS // tensors[-1], model.layers) + 1) if has_pipeline else ()
    first = 1 if has_pipeline else asked.layout.pipeline_parallel
    for tensor, stage in (*((tensor, first) for tensor in tensors), *((tensors[-1], stage) for stage in stages)):
        layout = replace(asked.layout, tensor_parallel=tensor, pipeline_parallel=stage)
        if estimate_memory(sized, replace(asked, layout=layout)).requests_per_replica:
            return layout
    return None


def _shares_heads(model: ModelArchitecture, tensor: int) -> bool:
    """Return whether that many GPUs share the heads evenly; each key-value head is on one GPU, or on equally many."""
    kv_heads = model.attention_heads if model.latent_dim is not None else model.kv_heads
    return model.attention_heads % tensor == 0 and (kv_heads % tensor == 0 or tensor % kv_heads == 0)


def _next_divisor(model: ModelArchitecture, layout: Layout) -> int:
    """Return the greatest tensor parallelism up to the layout's that divides the heads."""
    return next(count for count in range(layout.tensor_parallel, 0, -1) if _shares_heads(model, count))


def _product(layout: Layout) -> str:
    parts = [
        ("tensor", layout.tensor_parallel),
        ("pipeline", layout.pipeline_parallel),
        ("data", layout.data_parallel),
    ]
    named = [f"{name} parallel {count}" for name, count in parts if count > 1]
    return " x ".join(named) or "a server"


def gib(count: int) -> str:
    """Return bytes in GiB with two decimals: 14.96."""
    return f"{count / GIB:.2f}"
