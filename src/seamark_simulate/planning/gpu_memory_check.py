"""Check before a run that each server of a language model fits the memory of its GPUs. Starts no server.

A check needs the model's folder, the memory of a GPU (`gpu_memory_gb` of the site) and a recipe that names its
settings (`gpu_memory`). Without one of them nothing is refused. A server with measured trials fits, and the memory
that its start took is taken for others of its model.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from seamark.errors import UserError
from seamark.model.plurals import counted
from seamark.model.results.deployment_record import DeploymentRecord
from seamark.model.scenario import Scenario
from seamark.model.service import GpuMemory, Service, Value, sound_services
from seamark.model.site import Site
from seamark.model.trial import Deployment
from seamark.planning.plan_checks import CheckedPlan
from seamark.planning.study import Study
from seamark.storage.documents import read_or_none
from seamark_simulate.config.model_folder import ModelFolder, find_model_folder, read_model_folder
from seamark_simulate.simulation.gpu_memory import (
    Change,
    Layout,
    MemoryEstimate,
    Refusal,
    RefusalKind,
    ServerMemory,
    estimate_memory,
    gib,
    measured_bytes,
    refusals,
)
from seamark_simulate.simulation.model_architecture import UnsizedError

PLACE: Mapping[RefusalKind, str] = {
    "gpus_missing": "gpus",
    "heads_not_divided": "tensor_parallel",
    "too_many_stages": "pipeline_parallel",
    "too_long_for_model": "max_model_len",
    "weights_do_not_fit": "model",
    "no_request_fits": "max_model_len",
}
"""The quantity whose line in the scenario a refusal names."""


@dataclass(frozen=True, kw_only=True)
class SizedServer:
    """A server of the plan with the memory of each of its GPUs."""

    service: str
    model: str
    layout: Layout
    gpus: int
    gpu_gb: float
    gpu_memory_utilization: float
    memory: MemoryEstimate

    @property
    def text(self) -> str:
        """One line for a terminal."""
        memory = self.memory
        granted = f"{self.gpu_memory_utilization:g} x {self.gpu_gb:g} GB = {gib(memory.granted_bytes)} GiB"
        requests = f"{counted(memory.requests, 'request')} of {memory.max_model_len:,} tokens at a time"
        return (
            f"{self.service} {self.model} on {counted(self.layout.gpus, 'GPU')}: {granted} of each, less"
            f" {memory.fixed_text}: room for {memory.kv_tokens:,} tokens, {requests}"
        )


@dataclass(frozen=True, kw_only=True)
class GpuMemoryCheck:
    """The sized servers of a plan, and notes: what could not be checked, idle GPUs, and refusals that do not stop."""

    servers: tuple[SizedServer, ...] = ()
    notes: tuple[str, ...] = ()


def check_plan(study: Study) -> CheckedPlan:
    """Return the sizes of the servers of a study's plan. Raises UserError as `require_gpu_memory` does."""
    sized = require_gpu_memory(study)
    lines = tuple(server.text for server in sized.servers)
    return CheckedPlan(name="gpu_memory", title="GPU memory", facts=sized, lines=lines, notes=sized.notes)


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
    servers: list[_Server] = []
    binds = scenario.binds if study.site.in_images else ()

    @cache
    def read(model: str) -> ModelFolder:
        folder = find_model_folder(model, binds)
        if folder is None:
            raise UnsizedError(f"'{model}' is no folder of a model here")
        return read_model_folder(folder)

    for deployment, has_trials, counts in _starts(study):
        try:
            if (server := _server(study, deployment, read)) is not None:
                kv_tokens = min(counts, default=None)
                servers.append(replace(server, has_trials=has_trials, kv_tokens=kv_tokens))
        except UserError as error:
            mistakes += error.lines
        except UnsizedError as error:
            notes.append(f"{deployment.service}: the memory of its GPUs is not checked: {error}.")
    known = {server.kind: server.measured_bytes for server in servers if server.kv_tokens is not None}
    servers = [
        replace(server, asked=replace(server.asked, measured_bytes=known.get(server.kind))) for server in servers
    ]
    for server in servers:
        mistakes += () if server.has_trials else server.lines(scenario, study.services)
        if (idle := server.gpus - server.asked.layout.gpus) > 0:
            notes.append(
                f"{server.service.name} {server.model}: gpus_idle: {idle} of {server.gpus} GPUs are not used."
            )
    mistakes, notes = list(dict.fromkeys(mistakes)), list(dict.fromkeys(notes))
    if mistakes and scenario.capacity_check == "stop":
        raise UserError(*mistakes)
    return GpuMemoryCheck(servers=tuple(dict.fromkeys(server.sized for server in servers)), notes=(*mistakes, *notes))


@dataclass(frozen=True, kw_only=True)
class _Server:
    """A server of the plan with what its memory depends on. `kv_tokens` are those that it counted at a start, None
    without one; `has_trials`: trials were measured on it."""

    service: Service
    declared: GpuMemory
    model: str
    folder: ModelFolder
    asked: ServerMemory
    gpus: int
    node_gpus: int | None
    has_trials: bool = False
    kv_tokens: int | None = None

    @property
    def kind(self) -> tuple[str, str, int, str]:
        """What servers have in common whose memory beside weights, keys and values is alike."""
        return self.service.name, self.model, self.asked.layout.tensor_parallel, self.asked.dtype

    @property
    def measured_bytes(self) -> int:
        """That memory, by the tokens that the server counted."""
        return measured_bytes(self.folder, self.asked, self.kv_tokens or 0)

    @property
    def sized(self) -> SizedServer:
        return SizedServer(
            service=self.service.name,
            model=self.model,
            layout=self.asked.layout,
            gpus=self.gpus,
            gpu_gb=self.asked.gpu_gb,
            gpu_memory_utilization=self.asked.gpu_memory_utilization,
            memory=estimate_memory(self.folder, self.asked),
        )

    def lines(self, scenario: Scenario, services: Mapping[str, Service]) -> Iterator[str]:
        """Yield a line for each reason against the server, with place, class and remedy."""
        refused = partial(refusals, self.folder, self.asked, gpus=self.gpus, node_gpus=self.node_gpus)
        has_pipeline = self.declared.pipeline_parallel is not None
        for refusal, over_nodes in zip(refused(has_pipeline=has_pipeline), refused(has_pipeline=True), strict=True):
            wanted = [_words(change, self.declared, self.node_gpus) for change in refusal.changes]
            if not any("gpus" in change for change in refusal.changes):
                wanted += _elsewhere(over_nodes, services, self.node_gpus)
            remedy = f"Use {' or '.join(wanted)}" if wanted else refusal.otherwise
            place = _place(scenario, self.declared, PLACE[refusal.kind], self.service.name)
            yield (
                f"{place}: {refusal.kind}: {self.service.name} {self.model}: {refusal.why}. {remedy};"
                " 'capacity_check: note' measures anyway."
            )


def _starts(study: Study) -> Collection[tuple[Deployment, bool, list[int]]]:
    """Return the servers whose recipe names its settings, each once for all its starts: whether trials were measured
    on it, and the tokens that it counted at each start."""
    folder = study.folder(study.scenario.name)
    trials = study.plan.by_deployment()
    servers: dict[object, tuple[Deployment, bool, list[int]]] = {}
    for deployment in study.plan.deployments:
        is_measured = any(folder.trial(trial.id).record.exists() for trial in trials[deployment.id])
        for server in deployment.served:
            if study.services[server.service].gpu_memory is None:
                continue
            record = read_or_none(folder.deployment(server.id).record, DeploymentRecord)
            is_ours = record is None or _is_of(record, study)
            key = (server.service, server.gpus, tuple(server.settings.items()))
            _, has_trials, counts = servers.get(key, (server, False, []))
            if is_ours and record is not None and record.kv_tokens is not None:
                counts.append(record.kv_tokens)
            servers[key] = server, has_trials or (is_ours and is_measured), counts
    return servers.values()


def _is_of(record: DeploymentRecord, study: Study) -> bool:
    """Return whether a server ran on the site and partition of a study, so on such GPUs."""
    ran = record.server_identity
    here = (study.site.runtime, study.site_name, study.plan.partition if study.site.partitions else None)
    return ran is None or (ran.runtime, ran.site, ran.partition) == here


def _server(study: Study, server: Deployment, read: Callable[[str], ModelFolder]) -> _Server | None:
    """Return a server with what its memory depends on, None where its GPUs are not known or it uses none.

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
    return _Server(
        service=service,
        declared=declared,
        model=model,
        folder=folder,
        asked=asked,
        gpus=server.gpus,
        node_gpus=node_gpus,
    )


def _gpus_of(site: Site, partition: str | None) -> tuple[float | None, int | None]:
    """Return the memory of a GPU in GB and the GPUs of a node, None where the site does not say."""
    if not site.partitions:
        return site.gpu_memory_gb, None
    has = site.partitions.get(partition or "")
    return (has.gpu_memory_gb, has.gpus or None) if has else (None, None)


def _uses_gpus(service: Service, declared: GpuMemory, site: Site) -> bool:
    """Return whether this site starts the server with a share of GPU memory: its command passes that setting."""
    if service.server is None or not site.starts_servers:
        return False
    command: Sequence[str] = service.server.command
    if site.in_images and service.container is not None and service.container.command is not None:
        command = service.container.command
    return any(f"{{settings[{declared.gpu_memory_utilization}]}}" in word for word in command)


def _count(settings: Mapping[str, Value], name: str | None) -> int | None:
    """Return the whole number of a setting, None without the setting or for a word in its place."""
    value = settings[name] if name is not None else None
    return value if type(value) is int and value > 0 else None


def _words(change: Change, declared: GpuMemory, node_gpus: int | None) -> str:
    """Return a change as lines of a scenario: `'tensor_parallel: 2', 'resources: {gpus: 2}'`."""
    lines = [f"{_setting(declared, key)}: {value}" for key, value in sorted(change.items()) if key != "gpus"]
    if "gpus" in change:
        nodes = -(-change["gpus"] // (node_gpus or change["gpus"]))
        lines.append(f"resources: {{{f'nodes: {nodes}, ' if nodes > 1 else ''}gpus: {change['gpus']}}}")
    return ", ".join(f"'{line}'" for line in lines)


def _elsewhere(refusal: Refusal, services: Mapping[str, Service], node_gpus: int | None) -> list[str]:
    """Return layouts over several nodes as lines of a scenario, with the first service that has pipeline stages."""
    for name, service in sorted(sound_services(services).items()):
        declared = service.gpu_memory
        if declared is not None and declared.pipeline_parallel is not None:
            layouts = [change for change in refusal.changes if "gpus" in change]
            return [f"'service: {name}', {_words(layout, declared, node_gpus)}" for layout in layouts]
    return []


def _setting(declared: GpuMemory, quantity: str) -> str:
    """Return the recipe's setting of a quantity; the quantity where it has none."""
    return str(getattr(declared, quantity, None) or quantity)


def _place(scenario: Scenario, declared: GpuMemory, quantity: str, service: str) -> str:
    """Return where the scenario sets a quantity of a service, else where its workload is."""
    if quantity == "gpus" and "resources.gpus" in scenario.lines:
        return scenario.lines["resources.gpus"]
    workloads = [
        workload.path
        for workload in scenario.workloads
        if service in {load.service for load in workload.loads.values()}
    ]
    tails = [f"{path}.{_setting(declared, quantity)}" for path in (*workloads, "defaults")]
    return next(scenario.lines[path] for path in (*tails, *workloads, "") if path in scenario.lines)
