"""What the reader of a format returns, and the models of tasks that come without any."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.system import Model, Requests, System, Workflow, WorkflowNode
from seamark_simulate.simulation.workload import misfit


@dataclass(frozen=True, kw_only=True)
class RecordedWorkload:
    """The content of a file. `notes` are sentences about what was left out of it. `jobs_alone`: the requests are jobs
    of a log, each with a task of its own, so that one may be left out."""

    system: System
    requests: Requests
    notes: tuple[str, ...] = ()
    jobs_alone: bool = False

    def fitting(self, machine: Machine) -> "RecordedWorkload":
        """Leave out jobs of a log that a machine can never run, and say how many; all of them, or none, stay."""
        if not self.jobs_alone:
            return self
        large = {model.id for model in self.system.models.values() if misfit(model, machine) is not None}
        left = tuple(request for request in self.requests.requests if request.workflow not in large)
        total = len(self.requests.requests)
        if len(left) in (0, total):
            return self
        note = f"{total - len(left)} of {total} jobs left out: larger than the machine of {machine.gpus} GPUs."
        return replace(self, requests=replace(self.requests, requests=left), notes=(*self.notes, note))


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
