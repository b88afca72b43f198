"""What the reader of a format returns, and the models of tasks that come without any."""

from collections.abc import Iterable
from dataclasses import dataclass

from seamark.simulation.system import Model, Requests, System, Workflow, WorkflowNode


@dataclass(frozen=True, kw_only=True)
class RecordedWorkload:
    """The content of a file. `notes` are sentences about what was left out of it."""

    system: System
    requests: Requests
    notes: tuple[str, ...] = ()


def task_model(gpus: int) -> Model:
    """Return the model of tasks that bring none: it needs GPUs, no memory, and no time to be loaded or switched."""
    return Model(id=f"task-{gpus}", memory_gb=0.0, gpus_required=gpus, load_time_s=0.0, fetched=False)


def task_models(counts: Iterable[int]) -> dict[str, Model]:
    """Return the models of tasks on some numbers of GPUs, by id."""
    models = map(task_model, sorted(set(counts)))
    return {model.id: model for model in models}


def job_workflows(models: Iterable[Model]) -> dict[str, Workflow]:
    """Return for each model a workflow of one node, `job`; its id is that of the model."""
    return {each.id: Workflow(id=each.id, nodes=(WorkflowNode(id=JOB, model=each.id),)) for each in models}


JOB = "job"
