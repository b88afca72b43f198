"""Check before a run that each server of a language model fits the memory of its GPUs. Starts no server.

A check needs the model's folder, the memory of a GPU (`gpu_memory_gb` of the site) and a recipe that names its
settings (`gpu_memory`). Without one of them nothing is refused. A server that has measured a trial fits.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from seamark.config.model_folder import ModelFolder, find_model_folder, read_model_folder
from seamark.errors import UserError
from seamark.model.plurals import counted
from seamark.model.scenario import Scenario
from seamark.model.service import GpuMemory, Service, Value
from seamark.model.site import Site
from seamark.model.trial import Deployment
from seamark.planning.study import Study
from seamark.simulation.gpu_memory import (
    Change,
    Layout,
    MemoryEstimate,
    Refusal,
    RefusalKind,
    ServerMemory,
    estimate_memory,
    gib,
    idle_gpus,
    refusals,
)
from seamark.simulation.model_architecture import UnsizedError

PLACE: Mapping[RefusalKind, str] = {
    "gpus_missing": "gpus",
    "heads_not_divided": "tensor_parallel",
    "too_long_for_model": "max_model_len",
    "weights_do_not_fit": "model",
    "no_request_fits": "max_model_len",
}
"""The quantity whose line in the scenario a refusal names."""


@dataclass(frozen=True, kw_only=True)
class SizedServer:
    """A server of the plan with the memory of each of its GPUs. `refusals` are lines for a message."""

    service: str
    model: str
    layout: Layout
    gpus: int
    gpu_gb: float
    gpu_memory_utilization: float
    memory: MemoryEstimate
    refusals: tuple[str, ...]

    @property
    def text(self) -> str:
        """One line for a terminal."""
        memory = self.memory
        granted = f"{self.gpu_memory_utilization:g} x {self.gpu_gb:g} GB = {gib(memory.granted_bytes)} GiB"
        requests = f"{counted(memory.requests, 'request')} of {memory.max_model_len:,} tokens at a time"
        return (
            f"{self.service} {self.model} on {counted(self.layout.gpus, 'GPU')}: {granted} of each, less weights"
            f" {gib(memory.weights_bytes)}, activation {gib(memory.activation_bytes)} and non-torch"
            f" {gib(memory.non_torch_bytes)}: room for {memory.kv_tokens:,} tokens, {requests}"
        )


@dataclass(frozen=True, kw_only=True)
class GpuMemoryCheck:
    """The sized servers of a plan, and notes: what could not be checked, idle GPUs, and refusals that do not stop."""

    servers: tuple[SizedServer, ...] = ()
    notes: tuple[str, ...] = ()


def require_gpu_memory(study: Study) -> GpuMemoryCheck:
    """Return the sizes of the servers of a study's plan.

    Raises UserError with a line for each server that does not fit, and for damaged files of a model, unless the
    scenario says `capacity_check: note`.
    """
    scenario = study.scenario
    if scenario.capacity_check == "off":
        return GpuMemoryCheck()
    mistakes: list[str] = []
    notes: list[str] = []
    servers = []
    read = _reader(scenario.binds if study.site.runtime == "apptainer" else ())
    for deployment, measured in _servers(study):
        try:
            sized = _sized(study, deployment, read)
        except UserError as error:
            mistakes += error.mistakes
            continue
        except UnsizedError as error:
            notes.append(f"{deployment.service}: the memory of its GPUs is not checked: {error}.")
            continue
        if sized is None:
            continue
        servers.append(sized)
        mistakes += () if measured else sized.refusals
        if idle := idle_gpus(sized.layout, sized.gpus):
            notes.append(f"{sized.service} {sized.model}: gpus_idle: {idle} of {sized.gpus} GPUs are not used.")
    mistakes, notes = list(dict.fromkeys(mistakes)), list(dict.fromkeys(notes))
    if mistakes and scenario.capacity_check == "stop":
        raise UserError(*mistakes)
    return GpuMemoryCheck(servers=tuple(dict.fromkeys(servers)), notes=(*mistakes, *notes))


def _servers(study: Study) -> Iterator[tuple[Deployment, bool]]:
    """Yield each server whose recipe names its settings, once for all starts, and whether it measured a trial."""
    folder = study.folder(study.scenario.name)
    trials = study.plan.by_deployment()
    servers: dict[object, tuple[Deployment, bool]] = {}
    for deployment in study.plan.deployments:
        measured = any(folder.trial(each.id).record.exists() for each in trials[deployment.id])
        for server in deployment.served:
            key = (server.service, server.gpus, tuple(server.settings.items()))
            if study.services[server.service].gpu_memory is not None:
                servers[key] = (server, measured or servers.get(key, (server, False))[1])
    yield from servers.values()


def _reader(binds: tuple[str, ...]) -> Callable[[str], ModelFolder]:
    """Return a function that reads a model once. It raises UnsizedError and UserError."""

    @cache
    def read(model: str) -> ModelFolder:
        folder = find_model_folder(model, binds)
        if folder is None:
            raise UnsizedError(f"'{model}' is no folder of a model here")
        return read_model_folder(folder)

    return read


def _sized(study: Study, server: Deployment, read: Callable[[str], ModelFolder]) -> SizedServer | None:
    """Return a server with its memory, None where the GPUs or their memory are not known or it uses none.

    `read` returns a model by the value of its setting. Raises its UnsizedError and UserError.
    """
    service = study.services[server.service]
    declared = service.gpu_memory
    gpu_gb, node_gpus = _gpus_of(study.site, study.plan.partition)
    if declared is None or gpu_gb is None or not server.gpus or not _uses_gpus(service, declared, study.site):
        return None
    model = str(server.settings[declared.model])
    folder = read(model)
    layout = Layout(
        tensor_parallel=_count(server.settings, declared.tensor_parallel) or 1,
        pipeline_parallel=_count(server.settings, declared.pipeline_parallel) or 1,
        data_parallel=_count(server.settings, declared.data_parallel) or 1,
    )
    asked = ServerMemory(
        layout=layout,
        gpu_gb=gpu_gb,
        gpu_memory_utilization=float(server.settings[declared.gpu_memory_utilization] or 0.0),
        max_model_len=_count(server.settings, declared.max_model_len),
        dtype=str(server.settings[declared.dtype]) if declared.dtype else "auto",
    )
    return SizedServer(
        service=service.name,
        model=model,
        layout=layout,
        gpus=server.gpus,
        gpu_gb=gpu_gb,
        gpu_memory_utilization=asked.gpu_memory_utilization,
        memory=estimate_memory(folder.architecture, folder.weights, asked),
        refusals=tuple(_lines(study, service, model, folder, asked, server.gpus, node_gpus)),
    )


def _gpus_of(site: Site, partition: str | None) -> tuple[float | None, int | None]:
    """Return the memory of a GPU in GB and the GPUs of a node, None where the site does not say."""
    if not site.partitions:
        return site.gpu_memory_gb, None
    has = site.partitions.get(partition or "")
    return (has.gpu_memory_gb, has.gpus or None) if has else (None, None)


def _uses_gpus(service: Service, declared: GpuMemory, site: Site) -> bool:
    """Return whether this site starts the server with a share of GPU memory: its command passes that setting."""
    if service.server is None or site.runtime == "external":
        return False
    command: Sequence[str] = service.server.command
    if site.runtime == "apptainer" and service.container is not None and service.container.command is not None:
        command = service.container.command
    return any(f"{{settings[{declared.gpu_memory_utilization}]}}" in word for word in command)


def _count(settings: Mapping[str, Value], name: str | None) -> int | None:
    """Return the whole number of a setting, None without the setting or for a word in its place."""
    value = settings[name] if name is not None else None
    return value if type(value) is int and value > 0 else None


def _lines(
    study: Study,
    service: Service,
    model: str,
    folder: ModelFolder,
    asked: ServerMemory,
    gpus: int,
    node_gpus: int | None,
) -> Iterator[str]:
    """Yield a line for each reason against a server, with place, class and remedy."""
    declared = service.gpu_memory
    assert declared is not None
    found = partial(refusals, folder.architecture, folder.weights, asked, gpus=gpus, node_gpus=node_gpus)
    has_pipeline = declared.pipeline_parallel is not None
    for each, over_nodes in zip(found(has_pipeline=has_pipeline), found(has_pipeline=True), strict=True):
        wanted = [_words(change, declared, node_gpus) for change in each.changes]
        if not any("gpus" in change for change in each.changes):
            wanted += _elsewhere(over_nodes, study.services, node_gpus)
        remedy = f"Use {' or '.join(wanted)}" if wanted else each.otherwise
        place = _place(study.scenario, declared, PLACE[each.kind], service.name)
        yield (
            f"{place}: {each.kind}: {service.name} {model}: {each.why}. {remedy};"
            " 'capacity_check: note' measures anyway."
        )


def _words(change: Change, declared: GpuMemory, node_gpus: int | None) -> str:
    """Return a change as lines of a scenario: `'tensor_parallel: 2', 'resources: {gpus: 2}'`."""
    lines = [f"{_setting(declared, key)}: {value}" for key, value in sorted(change.items()) if key != "gpus"]
    if "gpus" in change:
        nodes = -(-change["gpus"] // (node_gpus or change["gpus"]))
        lines.append(f"resources: {{{f'nodes: {nodes}, ' if nodes > 1 else ''}gpus: {change['gpus']}}}")
    return ", ".join(f"'{line}'" for line in lines)


def _elsewhere(refusal: Refusal, services: Mapping[str, Service], node_gpus: int | None) -> list[str]:
    """Return layouts over several nodes as lines of a scenario, with the first service that has pipeline stages."""
    for name, service in sorted(services.items()):
        declared = service.gpu_memory
        if declared is not None and declared.pipeline_parallel is not None:
            layouts = [each for each in refusal.changes if "gpus" in each]
            return [f"'service: {name}', {_words(each, declared, node_gpus)}" for each in layouts]
    return []


def _setting(declared: GpuMemory, quantity: str) -> str:
    """Return the recipe's setting of a quantity; the quantity where it has none."""
    return str(getattr(declared, quantity, None) or quantity)


def _place(scenario: Scenario, declared: GpuMemory, quantity: str, service: str) -> str:
    """Return where the scenario sets a quantity of a service, else where its workload is."""
    if quantity == "gpus" and "resources.gpus" in scenario.lines:
        return scenario.lines["resources.gpus"]
    workloads = [
        path
        for index, workload in enumerate(scenario.workloads)
        if service in (workload.service, *(party.workload.service for party in workload.parties))
        for path in (f"workloads[{index}]", "workload")
    ]
    tails = [f"{each}.{_setting(declared, quantity)}" for each in (*workloads, "defaults")]
    return next(scenario.lines[path] for path in (*tails, *workloads, "") if path in scenario.lines)
