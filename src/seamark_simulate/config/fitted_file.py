"""Reader of models of services: the file of `bench fit`, or a short file by hand with the same parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seamark.config.decode import WRONG, decode
from seamark.config.json_source import LARGEST_BYTES, load_document
from seamark.config.yaml_source import Mistakes, read_text
from seamark.errors import UserError, did_you_mean
from seamark.model.annotations import limited
from seamark.storage.documents import read
from seamark_simulate.model.fitted_model import (
    Family,
    FittedModels,
    Model,
    ReplicaModel,
    ReplicaParameters,
    StationModel,
    StationParameters,
)

FITTED = '"schema_version"'
"""Stands at the beginning of each file of `bench fit`, and in none by hand."""
ONE_VARIATION: Mapping[Family, int] = {"exponential": 1, "constant": 0}
UNBOUNDED = (0.0, float("inf"))


@dataclass(frozen=True, kw_only=True)
class WrittenTimes:
    """Parameters of a station by hand, in seconds; `variation` is the standard deviation over the mean, None that of
    the family: 0 of constant times, else 1."""

    mean_s: float = limited(above=0)
    variation: float | None = limited(None, minimum=0)
    overhead_s: float = limited(0.0, minimum=0)


@dataclass(frozen=True, kw_only=True)
class WrittenStation:
    """A station by hand: servers behind one queue."""

    name: str
    servers: int = limited(1, minimum=1)
    family: Family = "exponential"
    parameters: WrittenTimes


@dataclass(frozen=True, kw_only=True)
class WrittenCosts:
    """Parameters of an LLM replica by hand, in seconds."""

    base_s: float = limited(minimum=0)
    prompt_token_s: float = limited(minimum=0)
    sequence_s: float = limited(minimum=0)
    kv_token_s: float = limited(0.0, minimum=0)
    overhead_s: float = limited(0.0, minimum=0)


@dataclass(frozen=True, kw_only=True)
class WrittenReplica:
    """An LLM replica by hand, with limits by the names of vLLM."""

    name: str
    kv_blocks: int = limited(minimum=1)
    block_tokens: int = limited(16, minimum=1)
    max_num_seqs: int = limited(256, minimum=1)
    max_num_batched_tokens: int = limited(8192, minimum=1)
    parameters: WrittenCosts


@dataclass(frozen=True, kw_only=True)
class WrittenModels:
    """A file by hand."""

    stations: tuple[WrittenStation, ...] = ()
    replicas: tuple[WrittenReplica, ...] = ()


def read_models(path: Path) -> FittedModels:
    """Return the models of a file of `bench fit`, or of one by hand (YAML or JSON). A model by hand has no trials, no
    draws and no ranges. Raises UserError with every mistake."""
    mistakes = Mistakes()
    if FITTED in (read_text(path, mistakes, LARGEST_BYTES) or "")[:200]:
        return read(path, FittedModels, "`bench fit -c SCENARIO -o FILE` writes it again.")
    mistakes.raise_any()
    tree = load_document(path, mistakes)
    mistakes.raise_any()
    assert tree is not None, "a file that cannot be read leaves a mistake"
    written = decode(tree, WrittenModels, mistakes)
    if written is not WRONG:
        for model, item in zip(
            written.stations, tree.value["stations"].value if written.stations else (), strict=True
        ):
            if model.family in ONE_VARIATION and _variation(model) != ONE_VARIATION[model.family]:
                text = f"{model.family} times have a variation of {ONE_VARIATION[model.family]}. Remove it, or write"
                at = item.at(("parameters", "variation"))
                mistakes.add(at, f"{text} 'family: gamma' or 'lognormal', or 'constant' for 0.")
        if not (written.stations or written.replicas):
            mistakes.add(tree, "has no model. Write 'stations:' or 'replicas:' with a list of them.")
    mistakes.raise_any()
    return FittedModels(
        seed=0, stations=tuple(map(_station, written.stations)), replicas=tuple(map(_replica, written.replicas))
    )


def model_named(models: FittedModels, name: str | None, path: str) -> Model:
    """Return the model of a name, or the only one. Raises UserError for another name, and without one for several."""
    every = {model.name: model for model in models.models}
    if len(every) < len(models.models):
        raise UserError(f"{path} has several models of one name. Give each a name of its own.")
    known = ", ".join(every) or "none"
    if name is None and len(every) == 1:
        return next(iter(every.values()))
    if name is None:
        raise UserError(f"{path} has these models: {known}. Name one: 'model: NAME'.")
    if name not in every:
        raise UserError(f"{path}: no model '{name}'.{did_you_mean(name, every)} It has: {known}.")
    return every[name]


def _variation(written: WrittenStation) -> float:
    usual = 0.0 if written.family == "constant" else 1.0
    return usual if written.parameters.variation is None else written.parameters.variation


def _station(written: WrittenStation) -> StationModel:
    times = vars(written.parameters) | {"variation": _variation(written)}
    return StationModel(
        **vars(written) | {"parameters": StationParameters(**times)},
        service="",
        between=0.0,
        loads=UNBOUNDED,
        rates_rps=UNBOUNDED,
        requests=0,
        out_of_order=0,
        sources=(),
    )


def _replica(written: WrittenReplica) -> ReplicaModel:
    costs = {"parameters": ReplicaParameters(**vars(written.parameters))}
    return ReplicaModel(
        **vars(written) | costs, service="", between=0.0, speed=1.0, ranges={}, requests=0, sources=()
    )
