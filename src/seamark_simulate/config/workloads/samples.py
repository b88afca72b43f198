"""Reader of samples.parquet of a finished trial: its arrivals, and what each request took.

A request is due when it was due there. With a system of one workflow its nodes take the times of their models;
without, a request is one node on one GPU that takes as long as the reply did from its actual send. Requests that
failed, or were due before the load, are left out.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seamark.config.yaml_source import Mistakes
from seamark.model.sample import MISSING_NS
from seamark_simulate.simulation.system import Model, Request, System, Workflow, WorkflowNode
from seamark_simulate.simulation.workload import Requests


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


NAMES = ("due_ns", "sent_ns", "last_ns", "failure")


def is_samples(head: bytes) -> bool:
    """Return whether the beginning of a file is that of Parquet."""
    return head.startswith(b"PAR1")


def read_samples(path: Path, system: System | None, mistakes: Mistakes) -> Requests | None:
    """Return a request for each good sample, None after noting a mistake."""
    if system is not None and len(system.workflows) != 1:
        text = (
            f"its requests name no workflow, and the system has {len(system.workflows)}:"
            f" {', '.join(system.workflows)}. Give a system with one workflow, or none."
        )
        mistakes.of_file(path, text, "conflict")
        return None
    try:
        table = pq.read_table(path, columns=list(NAMES), page_checksum_verification=True)
    except (pa.ArrowException, OSError, KeyError) as cause:
        text = f"no samples.parquet of a trial: {' '.join(str(cause).split())[:120]}."
        mistakes.of_file(path, text, "unreadable")
        return None
    due, sent, last, failure = (
        np.asarray(table[name].fill_null(MISSING_NS if name != "failure" else 0), np.int64) for name in NAMES
    )
    good = (failure == 0) & (due >= 0) & (sent != MISSING_NS) & (last != MISSING_NS)
    if not good.any():
        mistakes.of_file(path, "no request in it has a good reply.", "no_value")
        return None
    order = np.argsort(due[good], kind="stable")
    at_s = ((due[good] - due[good].min()) / 1e9)[order].tolist()
    took_s = ((last - sent)[good] / 1e9)[order].tolist()
    measured = system is None
    models = task_models([1])
    whole = system or System(models=models, workflows=job_workflows(models.values()))
    [workflow] = whole.workflows
    requests = tuple(
        Request(
            id=f"request_{number}",
            workflow=workflow,
            at_s=at,
            node_execution_times_s={JOB: took} if measured else {},
        )
        for number, (at, took) in enumerate(zip(at_s, took_s, strict=True), 1)
    )
    left = len(good) - int(good.sum())
    notes = (f"{left} of {len(good)} requests left out: they failed, or were due before the load.",) if left else ()
    return Requests(system=whole, requests=requests, notes=notes)
