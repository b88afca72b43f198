"""Layouts that a plan may choose: fitted models, and kinds of GPU with their memory; and why others are no choice."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from seamark.errors import UserError, did_you_mean
from seamark.model.service import Service
from seamark_simulate.config.model_folder import ModelFolder
from seamark_simulate.fit.service_model import ServiceModel
from seamark_simulate.model.capacity_plan import PlannedLayout
from seamark_simulate.model.fitted_model import (
    UNFIT,
    FittedModels,
    Model,
    StationModel,
    contradiction_of,
)
from seamark_simulate.simulation.gpu_memory import (
    BLOCK_TOKENS,
    GPU_KINDS,
    Layout,
    Refusal,
    ServerMemory,
    estimate_memory,
    refusals,
)
from seamark_simulate.trials.capacity_load import CapacityAsked

DEFAULT_UTILISATION = 0.9


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A layout of a plan, and its service; `service` is None for one that cannot be chosen, of which `layout` says
    why."""

    layout: PlannedLayout
    model: Model | None = None
    service: ServiceModel | None = None


def models_named(fitted: FittedModels, names: Sequence[str], file: Path) -> tuple[Model, ...]:
    """Return the models of a fit, or those of these names. Raises UserError for unknown names, for models of several
    services, and where all are unfit for plans."""
    every = {model.name: model for model in fitted.models}
    if len(every) < len(fitted.models):
        raise UserError(
            f"{file}: several models of one name. Run `bench fit` again: it gives each a name of its own."
        )
    for name in names:
        if name not in every:
            known = ", ".join(every) or "none"
            raise UserError(f"--server {name}: no such model in {file}.{did_you_mean(name, every)} It has: {known}.")
    chosen = tuple(every[name] for name in names) if names else tuple(every.values())
    if not chosen:
        raise UserError(f"{file}: no model in it. `bench fit` writes models of measured trials.")
    services = dict.fromkeys(model.service for model in chosen)
    if len(services) > 1 or len({type(model) for model in chosen}) > 1:
        raise UserError(
            f"{file}: models of different services: {', '.join(every)}. Name those to choose from: --server NAME."
        )
    if all(not model.fit_for_plans for model in chosen):
        remedy = "Measure its trials again on a machine without other work and fit again"
        raise UserError(
            *(
                f"{file}: {model.name} is unfit for plans: {contradiction_of(model)}. {remedy}, or name another model"
                " with --server."
                for model in chosen
            )
        )
    return chosen


def choices_of(
    models: Sequence[Model], asked: CapacityAsked, folder: ModelFolder | None, recipes: Mapping[str, Service]
) -> tuple[Choice, ...]:
    """Return every layout of some kinds of GPU, or of the models' own; `recipes` are those of services by name.

    Raises UserError where no layout of a kind has enough memory, with class and remedy, for a model that was not
    fitted, and for a router in front of servers that have a queue and several workers inside.
    """
    mistakes = _of_another_model(models, folder) if folder is not None else []
    if not asked.gpus and not mistakes:
        return tuple(_own(model, folder, asked, recipes) for model in models)
    choices: list[Choice] = []
    for kind in asked.gpus:
        own = [model for model in models if model.server.gpu == kind and not mistakes]
        if folder is None:
            choices += [_own(model, None, asked, recipes) for model in own]
            if not own:
                choices.append(Choice(layout=_unknown(kind, Layout(), NOT_THIS_GPU)))
        else:
            choices += _layouts(kind, own, models[0], folder, asked, recipes)
    if choices and all(choice.layout.status == "does_not_fit" for choice in choices):
        smallest = {choice.layout.gpu: choice.layout for choice in reversed(choices)}
        raise UserError(
            *(f"{folder.path if folder else ''}: {kind}: {smallest[kind].why}" for kind in dict.fromkeys(asked.gpus))
        )
    if mistakes:
        raise UserError(*mistakes)
    return tuple(choices)


NOT_THIS_GPU, NOT_THIS_LAYOUT = "no fitted model of this GPU", "no trials of this layout on this GPU"


def _of_another_model(models: Sequence[Model], folder: ModelFolder) -> list[str]:
    """Return a mistake for each model that was fitted to another language model: costs of its steps are others."""
    name = folder.path.resolve().name
    mistakes = []
    for model in models:
        if isinstance(model, StationModel):
            mistakes.append(
                f"--model {folder.path}: {model.name} is fitted as a station, which knows no steps and no memory."
                " Leave --model out, or fit trials with streamed replies of several tokens."
            )
        elif model.server.model is not None and Path(model.server.model).name != name:
            mistakes.append(
                f"--model {folder.path}: {model.name} was fitted to trials of '{model.server.model}', and steps of"
                " another model take other times. Fit trials of this model, or name the folder of that one."
            )
    return mistakes


def _layouts(
    kind: str,
    own: Sequence[Model],
    like: Model,
    folder: ModelFolder,
    asked: CapacityAsked,
    recipes: Mapping[str, Service],
) -> Iterator[Choice]:
    """Yield each layout of a kind of GPU: powers of two, and those that were fitted. One that was not is started
    `like` another model."""
    fitted = {(fit.server.tensor_parallel, fit.server.pipeline_parallel): fit for fit in own}
    most_gpus = asked.most_gpus
    powers = [1 << at for at in range(most_gpus.bit_length()) if 1 << at <= most_gpus]
    shapes = {(tensor, stages) for tensor in powers for stages in powers if tensor * stages <= most_gpus}
    stages_of = folder.architecture.layers
    for tensor, stages in sorted({*shapes, *fitted}, key=lambda shape: (shape[0] * shape[1], shape[1])):
        if stages > stages_of or tensor * stages > most_gpus:
            continue
        layout = Layout(tensor_parallel=tensor, pipeline_parallel=stages)
        model = fitted.get((tensor, stages))
        memory = _memory(kind, layout, model or like, asked)
        against = () if _counted(model) else refusals(folder, memory, gpus=most_gpus)
        if against:
            yield Choice(layout=replace(_unknown(kind, layout, _words(against[0])), status="does_not_fit"))
        elif model is None:
            yield Choice(layout=_unknown(kind, layout, NOT_THIS_LAYOUT if own else NOT_THIS_GPU))
        else:
            yield _own(model, folder, asked, recipes)


def _memory(kind: str, layout: Layout, model: Model, asked: CapacityAsked) -> ServerMemory:
    settings = model.server.settings
    share, longest = settings.get("gpu_memory_utilization"), settings.get("max_model_len")
    return ServerMemory(
        layout=layout,
        gpu_gb=gpu_gb(kind),
        gpu_memory_utilization=float(share) if isinstance(share, (int, float)) else DEFAULT_UTILISATION,
        max_model_len=asked.max_model_len or (longest if type(longest) is int else None),
        dtype=str(settings.get("dtype") or "auto"),
    )


def gpu_gb(kind: str) -> float:
    """Return the memory of a kind of GPU in GB. Raises UserError for an unknown one."""
    if kind in GPU_KINDS:
        return GPU_KINDS[kind]
    name, _, size = kind.rpartition("-")
    if name and size.isdigit() and 1 <= int(size) <= 10_000:
        return float(size)
    known = f"{', '.join(GPU_KINDS)}, or NAME-GB for another: l40s-48"
    raise UserError(f"--gpus {kind}: no known kind of GPU.{did_you_mean(kind, GPU_KINDS)} Known: {known}.")


def _words(refusal: Refusal) -> str:
    """Return class, reason and remedy of a refusal, as options of the command."""
    gpus = min((change["gpus"] for change in refusal.changes if "gpus" in change), default=None)
    length = next((change["max_model_len"] for change in refusal.changes if "max_model_len" in change), None)
    options = [
        *([f"--max-model-len {length}"] if length is not None else []),
        *([f"--most-gpus {gpus}"] if gpus is not None else []),
    ]
    remedy = f"Use {' or '.join(options)}." if options else f"{refusal.otherwise}." if refusal.otherwise else ""
    return f"{refusal.kind}: {refusal.why}. {remedy}".rstrip()


def _unknown(kind: str, layout: Layout, why: str) -> PlannedLayout:
    return PlannedLayout(
        name=kind,
        gpu=kind,
        tensor_parallel=layout.tensor_parallel,
        pipeline_parallel=layout.pipeline_parallel,
        gpus_per_replica=layout.replica_gpus,
        status="not_fitted",
        why=why,
    )


def _counted(model: Model | None) -> bool:
    """Whether a server of a model counted the tokens that fit: it does not need to be computed."""
    return model is not None and model.server.kv_tokens_known


def _workers(model: StationModel, recipes: Mapping[str, Service]) -> int:
    """Return how many requests one server of a model serves at once: all the servers of the station are those of one
    process, unless its recipe has a setting that is the number of equal servers (`replicas`)."""
    recipe = recipes.get(model.service)
    setting = recipe.setting(recipe.replicas) if recipe is not None and recipe.replicas is not None else None
    if setting is None:
        return model.servers
    started = model.server.settings.get(setting.name, setting.default)
    return max(1, round(model.servers / started)) if type(started) is int and started > 0 else model.servers


def _own(model: Model, folder: ModelFolder | None, asked: CapacityAsked, recipes: Mapping[str, Service]) -> Choice:
    """Return the layout of a fitted model's own servers."""
    server, router = model.server, asked.router
    layout = PlannedLayout(
        name=model.name,
        service=model.service,
        gpu=server.gpu,
        tensor_parallel=server.tensor_parallel,
        pipeline_parallel=server.pipeline_parallel,
        gpus_per_replica=server.gpus,
        status="not_fitted",
        why=UNFIT if not model.fit_for_plans else None,
    )
    if not model.fit_for_plans:
        return Choice(layout=layout)
    if server.gpus > asked.most_gpus:
        return Choice(layout=replace(layout, status="does_not_fit", why=f"a replica has {server.gpus} GPUs"))
    if isinstance(model, StationModel):
        workers = _workers(model, recipes)
        if workers > 1 and router not in (None, "one-queue"):
            raise UserError(
                f"--router {router}: a server of {model.name} has {workers} workers behind a queue of its own, and a"
                " router in front of several such servers is not simulated. Leave --router out, or give one-queue."
            )
        service = ServiceModel(model=model, replicas=workers, router=router)
        return Choice(layout=replace(layout, workers_per_replica=workers), model=model, service=service)
    blocks, origin = model.kv_blocks, "counted by the server"
    if not _counted(model):
        origin = "enough for all that may run: the server did not count them" if model.sources else "written by hand"
        if folder is not None and server.gpu is not None:
            shape = Layout(tensor_parallel=server.tensor_parallel, pipeline_parallel=server.pipeline_parallel)
            memory = _memory(server.gpu, shape, model, asked)
            needs = estimate_memory(folder, memory)
            blocks, origin = max(1, needs.kv_tokens // BLOCK_TOKENS), "computed from the memory of the GPU"
    return Choice(
        layout=replace(layout, kv_blocks=blocks, kv_blocks_from=origin),
        model=model,
        service=ServiceModel(model=model, kv_blocks=blocks, router=router),
    )
