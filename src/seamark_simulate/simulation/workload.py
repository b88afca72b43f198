"""The work of a simulation: the nodes of all requests as columns, numbered request after request, and their times."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, groupby, pairwise, starmap
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from seamark.errors import UserError
from seamark_simulate.simulation.machine import Machine
from seamark_simulate.simulation.system import Model, Request, System, Workflow

TimeSource = Literal["node_execution_times", "inference_time_mean", "tokens_per_second", "default", "model_server"]
SOURCES: tuple[TimeSource, ...] = get_args(TimeSource)
"""`model_server`: the estimate of the server that is called when requests are measured."""
DEFAULT_S = 10.0
"""Time of a node about which nothing is known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeTime:
    """The expected time of a node, the standard deviation of its draws (0: always the same), and the source."""

    mean_s: float
    source: TimeSource
    std_s: float = 0.0

    def drawn_s(self, random: np.random.Generator) -> float:
        """Return one draw: gamma with this mean and standard deviation, so never negative."""
        if self.std_s == 0 or self.mean_s == 0:
            return self.mean_s
        spread = self.std_s / self.mean_s
        return float(random.gamma(spread**-2, self.mean_s * spread**2))


def model_time(model: Model) -> NodeTime:
    """Return the time of a node whose request does not give one: the mean time of inference, else tokens over tokens
    a second, else 10 s."""
    if model.inference_time_mean_s is not None:
        std_s = model.inference_time_std_s or 0.0
        return NodeTime(mean_s=model.inference_time_mean_s, source="inference_time_mean", std_s=std_s)
    if model.token_mean is not None and model.tokens_per_second is not None:
        rate = model.tokens_per_second
        std_s = (model.token_std or 0.0) / rate
        return NodeTime(mean_s=model.token_mean / rate, source="tokens_per_second", std_s=std_s)
    return NodeTime(mean_s=DEFAULT_S, source="default")


Arrivals = Literal["all-at-zero", "timestamps"]


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Requests to a system, in the order of their file, and the wall time of the earliest as `YYYY-mm-dd HH:MM:SS`.

    `notes` are sentences about what of the file was left out. `jobs_alone`: the requests are jobs of a log, each with
    a task of its own, so that one may be left out.
    """

    system: System
    requests: tuple[Request, ...]
    begin: str | None = None
    notes: tuple[str, ...] = ()
    jobs_alone: bool = False

    def fitting(self, machine: Machine) -> "Requests":
        """Leave out jobs of a log that a machine can never run, and say how many; all of them, or none, stay."""
        if not self.jobs_alone:
            return self
        large = {model.id for model in self.system.models.values() if misfit(model, machine) is not None}
        left = tuple(request for request in self.requests if request.workflow not in large)
        total = len(self.requests)
        if len(left) in (0, total):
            return self
        note = f"{total - len(left)} of {total} jobs left out: larger than the machine of {machine.gpus} GPUs."
        return replace(self, requests=left, notes=(*self.notes, note))


@dataclass(frozen=True, kw_only=True, slots=True)
class Template:
    """A workflow in numbers: a value for each node, in the order of the workflow.

    `successors` has for each node the distances to its successors, in the order of edges; `waits_for` the number of
    its predecessors; `inputs` the distances to those that it gets data from, with their bytes.
    """

    workflow: Workflow
    models: tuple[int, ...]
    needs: tuple[int, ...]
    times: tuple[NodeTime, ...]
    successors: tuple[tuple[int, ...], ...]
    waits_for: tuple[int, ...]
    roots: tuple[int, ...]
    inputs: tuple[tuple[tuple[int, int], ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Requests and their nodes. A node has the number of its request's first node plus its place in the workflow.

    By request: `template`, `arrival_s`, `first_node` (with one more entry at the end). By node: `model` (its place in
    `models`), `need` (GPUs), `estimate_s` (what a scheduler may know), `duration_s` (what it takes), `source` (of the
    time, a place in SOURCES), `successors` (distances to their numbers), `waits_for` (number of predecessors).
    """

    models: tuple[Model, ...]
    requests: Sequence[Request]
    templates: Sequence[Template]
    arrival_s: "array[float]"
    first_node: "array[int]"
    model: list[int]
    need: list[int]
    estimate_s: "array[float]"
    duration_s: "array[float]"
    source: bytearray
    successors: list[tuple[int, ...]]
    waits_for: list[int]

    @property
    def nodes(self) -> int:
        """Number of nodes of all requests."""
        return len(self.model)

    @cached_property
    def request_of(self) -> NDArray[np.int64]:
        """Number of the request of each node."""
        first = np.asarray(self.first_node, np.int64)
        return np.repeat(np.arange(len(self.requests)), first[1:] - first[:-1])

    def name_of(self, node: int) -> tuple[Request, str]:
        """Return the request of a node, and the node's id in its workflow."""
        request = self.request_of.item(node)
        return self.requests[request], self.templates[request].workflow.nodes[node - self.first_node[request]].id

    def inputs_of(self, node: int) -> list[tuple[int, int]]:
        """Return the nodes that a node gets data from, with their bytes."""
        request = int(self.request_of[node])
        inputs = self.templates[request].inputs
        return [(node + to, size) for to, size in inputs[node - self.first_node[request]]] if inputs else []

    @property
    def has_data(self) -> bool:
        """Whether some node gets data from another."""
        return any(template.inputs for template in self.templates)


def template_of(workflow: Workflow, models: Sequence[Model]) -> Template:
    """Return a workflow in numbers; `models` gives the numbers of models."""
    numbers = {model.id: number for number, model in enumerate(models)}
    places = {node.id: number for number, node in enumerate(workflow.nodes)}
    successors: list[list[int]] = [[] for _ in places]
    waits_for = [0] * len(places)
    inputs: list[list[tuple[int, int]]] = [[] for _ in places]
    for edge in workflow.edges:
        source, target = places[edge.source], places[edge.target]
        successors[source].append(target - source)
        waits_for[target] += 1
        if edge.data_bytes:
            inputs[target].append((source - target, edge.data_bytes))
    chosen = [models[numbers[node.model]] for node in workflow.nodes]
    return Template(
        workflow=workflow,
        models=tuple(numbers[node.model] for node in workflow.nodes),
        needs=tuple(model.gpus_required for model in chosen),
        times=tuple(map(model_time, chosen)),
        successors=tuple(map(tuple, successors)),
        waits_for=tuple(waits_for),
        roots=tuple(number for number, count in enumerate(waits_for) if not count),
        inputs=tuple(map(tuple, inputs)) if any(inputs) else (),
    )


def workload_of(
    system: System, requests: Sequence[Request], arrivals: Arrivals, *, draw: np.random.Generator | None = None
) -> Workload:
    """Return the work of some requests. All arrive at 0, or at their time stamps.

    With `draw`, times that the requests do not give are drawn, in the order of requests and nodes, so that every
    policy sees the same ones.
    """
    models = tuple(system.models.values())
    templates = {name: template_of(workflow, models) for name, workflow in system.workflows.items()}
    chosen = [templates[request.workflow] for request in requests]
    at_zero = arrivals == "all-at-zero"
    work = Workload(
        models=models,
        requests=requests,
        templates=chosen,
        arrival_s=array("d", (0.0 if at_zero else request.at_s or 0.0 for request in requests)),
        first_node=array("q", [0]),
        model=[],
        need=[],
        estimate_s=array("d"),
        duration_s=array("d"),
        source=bytearray(),
        successors=[],
        waits_for=[],
    )
    for request, template in zip(requests, chosen, strict=True):
        work.model.extend(template.models)
        work.need.extend(template.needs)
        work.successors.extend(template.successors)
        work.waits_for.extend(template.waits_for)
        known = SOURCES.index(request.times_source)
        for node, time in zip(template.workflow.nodes, template.times, strict=True):
            given_s = request.node_execution_times_s.get(node.id)
            mean_s = time.mean_s if given_s is None else given_s
            work.estimate_s.append(request.node_estimates_s.get(node.id, mean_s))
            work.duration_s.append(mean_s if given_s is not None or draw is None else time.drawn_s(draw))
            work.source.append(known if given_s is not None else SOURCES.index(time.source))
        work.first_node.append(len(work.model))
    return work


def draws_times(system: System, requests: Sequence[Request]) -> bool:
    """Return whether `draw` changes the time of some node: one that its request does not give, of a model with a
    deviation."""
    varied = {model.id for model in system.models.values() if model_time(model).std_s > 0}
    return any(
        node.model in varied and node.id not in request.node_execution_times_s
        for request in requests
        for node in system.workflows[request.workflow].nodes
    )


def require_windows(work: Workload, machine: Machine) -> None:
    """Raise UserError for each model in use that no GPUs of the machine can hold."""
    used = map(work.models.__getitem__, sorted(set(work.model)))
    lines = [(model, why) for model in used if (why := misfit(model, machine)) is not None]
    if lines:
        place = f"--gpus {machine.gpus}" if machine.layout is None else "machine"
        raise UserError(*(f"{place}: {why}, or leave out its requests." for _, why in lines))


def misfit(model: Model, machine: Machine) -> str | None:
    """Return why the nodes of a model can never run on a machine, with the remedy; None where they can."""
    need, layout = model.gpus_required, machine.layout
    if need > machine.gpus:
        kind = "GPUs" if layout is not None and layout.windows == "any" else "consecutive GPUs"
        return f"the model '{model.id}' needs {need} {kind}, so its nodes can never run. Give {need} GPUs or more"
    if layout is None:
        return None
    fits = [layout.host(gpu).kind.holds(model) for gpu in range(machine.gpus)]
    begins = [*accumulate((host.gpus for host in layout.hosts), initial=0)]
    domains = [slice(0, machine.gpus)] if layout.span_hosts else list(starmap(slice, pairwise(begins)))
    if any(_most_together(fits[domain], layout.windows == "consecutive") >= need for domain in domains):
        return None
    memory = f"needs {need} GPUs of {model.memory_gb:g} GB or more"
    where = "" if layout.span_hosts or need == 1 else " on one host"
    return f"the model '{model.id}' {memory}{where}, so its nodes can never run. Give it such GPUs"


def _most_together(fits: Sequence[bool], consecutive: bool) -> int:
    """Return how many GPUs that fit there are, or the most in a row."""
    return max((len(list(run)) for fit, run in groupby(fits) if fit), default=0) if consecutive else sum(fits)
