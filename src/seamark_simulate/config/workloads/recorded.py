"""Models and workflows of tasks that come without any."""

from collections.abc import Iterable

from seamark_simulate.simulation.system import Model, Workflow, WorkflowNode


def task_model(gpus: int) -> Model:
    """Return the model of tasks that bring none: it needs GPUs, no memory, and no time to be loaded or switched."""
    return Model(id=f"task-{gpus}", memory_gb=0.0, gpus_required=gpus, load_time_s=0.0, fetched=False)


def task_models(counts: Iterable[int]) -> dict[str, Model]:
    """Return the models of tasks on some numbers of GPUs, by id."""
    models = map(task_model, sorted(set(counts)))
    return {model.id: model for model in models}


def job_workflows(models: Iterable[Model]) -> dict[str, Workflow]:
    """Return for each model a workflow of one node, `job`; its id is that of the model."""
    return {model.id: Workflow(id=model.id, nodes=(WorkflowNode(id=JOB, model=model.id),)) for model in models}


JOB = "job"
