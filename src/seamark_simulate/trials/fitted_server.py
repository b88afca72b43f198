"""The server that trials of a fit were measured on: its settings, resources and GPUs, for plans that use it."""

from collections.abc import Sequence
from dataclasses import dataclass

from seamark.model.results.deployment_record import DeploymentRecord
from seamark.model.results.trial_meta import TrialMeta
from seamark.model.trial import RESOURCES, Plan, Trial
from seamark.storage.documents import read_or_none
from seamark.storage.paths import ScenarioFolder
from seamark_simulate.model.fitted_model import FittedServer
from seamark_simulate.simulation.gpu_memory import gpu_kind

OF_ONE_LOAD = frozenset({"pattern", "rate_rps", "duration_s", "warmup_s", "think_time_s"})
"""Settings of a load that a plan decides itself."""


@dataclass(frozen=True, kw_only=True)
class ServedTrial:
    """A trial with its plan and the folder of its scenario, and the kind of GPU that served it."""

    plan: Plan
    folder: ScenarioFolder
    trial: Trial
    gpu: str | None


def gpu_of(plan: Plan, folder: ScenarioFolder, trial: Trial) -> str | None:
    """Return the kind of the GPUs of a trial's server by its meta.json; None without GPUs, or if they are not
    known."""
    deployments = {server.id: server for server in (*plan.deployments, *plan.served)}
    deployment = deployments.get(trial.deployment)
    if deployment is None or not deployment.gpus:
        return None
    meta = read_or_none(folder.trial(trial.id).meta, TrialMeta)
    nodes = meta.all_nodes().values() if meta is not None else ()
    devices = [gpu for node in nodes if node.machine is not None for gpu in node.machine.gpu.devices]
    kinds = {gpu_kind(gpu.name, gpu.memory_bytes) for gpu in devices if gpu.name and gpu.memory_bytes}
    return kinds.pop() if len(kinds) == 1 else None


def fitted_server(served: Sequence[ServedTrial]) -> FittedServer:
    """Return what the servers of some trials have in common."""
    first = served[0]
    changed = [trial.trial.changed for trial in served]
    settings = {
        name: value
        for name, value in changed[0].items()
        if name not in OF_ONE_LOAD and all(name in other and other[name] == value for other in changed)
    }
    deployments = {server.id: server for server in (*first.plan.deployments, *first.plan.served)}
    deployment = deployments.get(first.trial.deployment)
    records = [
        read_or_none(trial.folder.deployment(trial.trial.deployment).record, DeploymentRecord) for trial in served
    ]
    identity = next(
        (record.server_identity for record in records if record is not None and record.server_identity), None
    )
    return FittedServer(
        settings=settings,
        model=str(first.trial.settings["model"]) if first.trial.settings.get("model") else None,
        resources={name: int(getattr(deployment, name)) for name in RESOURCES} if deployment is not None else {},
        gpu=first.gpu,
        tensor_parallel=_count(first.trial, "tensor_parallel"),
        pipeline_parallel=_count(first.trial, "pipeline_parallel"),
        kv_tokens_known=any(record is not None and record.kv_tokens is not None for record in records),
        site=identity.site if identity is not None else None,
        partition=first.plan.partition,
        account=first.plan.account,
    )


def _count(trial: Trial, name: str) -> int:
    value = trial.settings.get(name)
    return value if type(value) is int and value > 0 else 1
