"""bench memory: the memory of each GPU under a server of a language model, before one is started."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from seamark.cli.options import FiniteRange, json_option, option, options
from seamark.cli.output import print_json
from seamark.errors import UserError, did_you_mean
from seamark.model.plurals import counted

if TYPE_CHECKING:
    from seamark_simulate.config.model_folder import ModelFolder
    from seamark_simulate.simulation.gpu_memory import MemoryEstimate, Refusal, ServerMemory


@dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """A server of a language model, and the GPUs that it is for."""

    model: Path = option(required=True, help="Folder of the model.")
    gpu: str = option(required=True, help="Kind of GPU, such as a100-40, or its GB.")
    tensor_parallel: int = option(type=click.IntRange(1, 1024), default=1, help="GPUs of a layer.")
    pipeline_parallel: int = option(type=click.IntRange(1, 1024), default=1, help="Stages.")
    data_parallel: int = option(type=click.IntRange(1, 1024), default=1, help="Replicas.")
    max_model_len: int | None = option(
        type=click.IntRange(1), help="Longest request in tokens. Default: the model's."
    )
    gpu_memory_utilization: float = option(
        type=FiniteRange(0, 1, min_open=True), default=0.9, help="Share of each GPU for the server."
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = option(
        default="auto", help="Type of weights and activations."
    )


@click.command("memory")
@options(MemoryOptions)
@json_option
def command(asked: MemoryOptions, as_json: bool) -> None:
    """Show what a language model needs of each GPU: weights, activations, room for keys and values.

    Only config.json and the headers of the safetensors files are read.

    \b
    Examples:
      bench memory --model /data/llama-3.1-8b --gpu a100-40 --max-model-len 16000
      bench memory --model /data/llama-3.1-70b --gpu 80 --tensor-parallel 4 --json

    Exit code 2 for a layout that does not fit, and for files that cannot be read.
    """
    from seamark.storage.codec import encode
    from seamark_simulate.simulation.gpu_memory import Layout, ServerMemory, estimate_memory, refusals

    layout = Layout(
        tensor_parallel=asked.tensor_parallel,
        pipeline_parallel=asked.pipeline_parallel,
        data_parallel=asked.data_parallel,
    )
    server = ServerMemory(
        layout=layout,
        gpu_gb=_gpu_gb(asked.gpu),
        gpu_memory_utilization=asked.gpu_memory_utilization,
        max_model_len=asked.max_model_len,
        dtype=asked.dtype,
    )
    folder = read_model(asked.model)
    found = refusals(folder, server, gpus=layout.gpus)
    if found:
        raise UserError(*(f"{asked.model}: {refusal.kind}: {refusal.why}. {_remedy(refusal)}." for refusal in found))
    memory = estimate_memory(folder, server)
    if as_json:
        print_json(architecture=encode(folder.architecture), memory=encode(memory), asked=encode(server))
    else:
        click.echo("\n".join(_table(folder.architecture.name, server, memory)))


def read_model(folder: Path) -> "ModelFolder":
    """Return the model of a folder. Raises UserError for one whose size is not known."""
    from seamark_simulate.config.model_folder import read_model_folder
    from seamark_simulate.simulation.model_architecture import UnsizedError

    try:
        return read_model_folder(folder)
    except UnsizedError as error:
        raise UserError(f"{error}. Name the folder of a language model in the form of Hugging Face.") from None


def _gpu_gb(gpu: str) -> float:
    """Return the memory of a kind of GPU in GB. Raises UserError."""
    from seamark_simulate.simulation.gpu_memory import GPU_KINDS

    if gpu in GPU_KINDS:
        return GPU_KINDS[gpu]
    try:
        memory_gb = float(gpu)
    except ValueError:
        memory_gb = 0.0
    if not 1 <= memory_gb <= 10_000:
        known = f"{', '.join(GPU_KINDS)}, or the GB of one GPU: 24"
        raise UserError(f"--gpu {gpu}: no known kind of GPU. Known: {known}.{did_you_mean(gpu, GPU_KINDS)}")
    return memory_gb


def _remedy(refusal: "Refusal") -> str:
    """Return what would do, as options of this command."""
    options = [
        " ".join(f"--{key.replace('_', '-')} {value}" for key, value in sorted(change.items()) if key != "gpus")
        for change in refusal.changes
    ]
    return f"Use {' or '.join(options)}" if options else refusal.otherwise


def _table(name: str, asked: "ServerMemory", memory: "MemoryEstimate") -> Iterator[str]:
    """Yield the lines of the table."""
    from seamark_simulate.simulation.gpu_memory import gib

    yield f"{name} on {counted(asked.layout.gpus, 'GPU')} of {asked.gpu_gb:g} GB; of each"
    rows = (
        ("granted", gib(memory.granted_bytes), f"{asked.gpu_memory_utilization:g} of it"),
        ("weights", gib(memory.weights_bytes), ""),
        ("activation", gib(memory.activation_bytes), ""),
        ("non-torch", gib(memory.non_torch_bytes), ""),
        ("room", gib(memory.room_bytes), f"{memory.kv_tokens:,} tokens of {memory.kv_token_bytes:,} bytes"),
    )
    for row, amount, remark in rows:
        yield f"  {row:<12} {amount:>9} GiB  {remark}".rstrip()
    replicas = f", {memory.requests_per_replica:,} a replica" if asked.layout.data_parallel > 1 else ""
    yield f"  {'requests':<12} {memory.requests:>9,}      of {memory.max_model_len:,} tokens at a time{replicas}"
