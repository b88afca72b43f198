"""Fitted models of services whose truth is given, as `bench fit` writes them. Nothing was measured."""

from dataclasses import replace
from pathlib import Path

from planted_replicas import COST, LIMITS

from seamark.storage.documents import write
from seamark_simulate.model.fitted_model import (
    FittedModels,
    FittedServer,
    InputRange,
    ReplicaModel,
    ReplicaParameters,
    StationModel,
    StationParameters,
)

KNOWN = {"queue": "mm1", "ttft_ms": 10.0, "gen_tokens": 1, "concurrency": 64}
RESOURCES = {"nodes": 1, "gpus": 0, "cpus_per_task": 1, "mem_gb": 1}


def station(**changes):
    """Return a model of the reference server: exponential times of 10 ms, known for sure, at a load of 0.2 to 0.9."""
    given = StationModel(
        name="known",
        service="known",
        servers=1,
        family="exponential",
        parameters=StationParameters(mean_s=0.01, variation=1.0, overhead_s=0.0),
        between=0.0,
        loads=(0.2, 0.9),
        rates_rps=(20.0, 90.0),
        requests=10_000,
        out_of_order=0,
        sources=(),
        server=FittedServer(settings=KNOWN, resources=RESOURCES, site="local"),
    )
    return replace(given, **changes)


def constant_draws(*means_s):
    """Return draws of services whose times are all but the same."""
    return tuple(StationParameters(mean_s=each, variation=0.005, overhead_s=0.0) for each in means_s)


def llama(**changes):
    """Return a replica of Llama 3.1 8B on one A100 of 80 GB."""
    given = ReplicaModel(
        name="vllm on a100-80",
        service="vllm",
        kv_blocks=LIMITS.kv_blocks,
        block_tokens=LIMITS.block_tokens,
        max_num_seqs=LIMITS.max_num_seqs,
        max_num_batched_tokens=LIMITS.max_num_batched_tokens,
        parameters=ReplicaParameters(**vars(COST), overhead_s=0.002),
        between=0.0,
        speed=1.0,
        ranges={
            "rate_rps": InputRange(low=1.0, high=20.0),
            "prompt_tokens": InputRange(low=128, high=128),
            "reply_tokens": InputRange(low=16, high=16),
        },
        requests=10_000,
        sources=(),
        server=FittedServer(
            settings={"model": "llama-3.1-8b", "max_model_len": 4096},
            model="llama-3.1-8b",
            resources=RESOURCES | {"gpus": 1},
            gpu="a100-80",
            site="meluxina",
            partition="gpu",
            account="p200000",
        ),
    )
    return replace(given, **changes)


def on(kind, model=None, **changes):
    """Return a replica on another kind of GPU."""
    given = model or llama()
    return replace(given, name=f"vllm on {kind}", server=replace(given.server, gpu=kind), **changes)


def fit_file(path: Path, *models) -> Path:
    """Write the file of a fit."""
    stations = tuple(each for each in models if isinstance(each, StationModel))
    replicas = tuple(each for each in models if isinstance(each, ReplicaModel))
    write(path, FittedModels(seed=1, machines=("node1",), stations=stations, replicas=replicas))
    return path
