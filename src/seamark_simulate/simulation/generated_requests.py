"""Requests drawn by a seed: workflows of a system in equal parts, or each a workflow of its own: chain, fan, fork and
join, layers, or a bounded loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Literal

import numpy as np

from seamark.patterns.patterns import Gamma, Poisson
from seamark_simulate.simulation.system import Edge, Request, System, Workflow, WorkflowNode
from seamark_simulate.simulation.workload import Requests

Shape = Literal["chain", "fan", "fork-join", "layered", "loop"]
FURTHER_EDGE = 0.3
"""Chance of an edge from each further node of the layer before."""
MOST_PASSES = 3
"""A loop is passed 1 to this many times, all alike."""


def generated_workflow(name: str, shape: Shape, nodes: int, models: Sequence[str], seed: Sequence[int]) -> Workflow:
    """Return a workflow of `nodes` nodes (of a loop: in each pass), each of a model drawn with equal chances.

    `chain`: one after the other. `fan`: all others after the first. `fork-join`: as a fan, and the last after all.
    `layered`: layers of about sqrt(nodes) nodes, each after one node or more of the layer before. `loop`: a chain
    that is passed again, unrolled. The edges of the first three do not depend on the seed.
    """
    random = np.random.default_rng(seed)
    passes = int(random.integers(1, MOST_PASSES + 1)) if shape == "loop" else 1
    ids = [f"node_{number}" for number in range(1, nodes * passes + 1)]
    chosen = random.integers(len(models), size=nodes).tolist() * passes
    return Workflow(
        id=name,
        nodes=tuple(WorkflowNode(id=key, model=models[model]) for key, model in zip(ids, chosen, strict=True)),
        edges=tuple(Edge(source=source, target=target) for source, target in _edges(shape, ids, random)),
    )


def _edges(shape: Shape, ids: Sequence[str], random: np.random.Generator) -> list[tuple[str, str]]:
    if shape in ("chain", "loop"):
        return list(pairwise(ids))
    if shape == "layered":
        return _between_layers(ids, random)
    first, *others = ids
    if shape == "fan" or len(others) < 2:
        return [(first, other) for other in others]
    *middle, last = others
    return [*((first, node) for node in middle), *((node, last) for node in middle)]


def _between_layers(ids: Sequence[str], random: np.random.Generator) -> list[tuple[str, str]]:
    """Return the edges of layers whose widths are drawn between 1 and twice sqrt(nodes)."""
    widest = max(1, 2 * round(len(ids) ** 0.5) - 1)
    layers: list[Sequence[str]] = []
    begin = 0
    while begin < len(ids):
        width = int(random.integers(1, widest + 1))
        layers.append(ids[begin : begin + width])
        begin += width
    edges = []
    for before, layer in pairwise(layers):
        for node in layer:
            sure = int(random.integers(len(before)))
            further = random.random(len(before)) < FURTHER_EDGE
            edges += [(source, node) for number, source in enumerate(before) if number == sure or further[number]]
    return edges


WORKFLOWS, ARRIVALS, SHAPE = 1, 2, 3
"""Streams of random numbers, apart from that of node times: more requests or another rate change no others."""


@dataclass(frozen=True, kw_only=True)
class GeneratedLoad:
    """Requests to draw: their number, their mean rate (None: they have no time of arrival), and `burstiness`, the
    shape of gamma gaps (None: Poisson). With a `shape` each request is a new workflow of `nodes` nodes."""

    count: int
    rate_rps: float | None = None
    burstiness: float | None = None
    shape: Shape | None = None
    nodes: int = 10


def generated_requests(system: System, load: GeneratedLoad, seed: int) -> Requests:
    """Return drawn requests to the system with their workflows; arrivals are in seconds from the first one."""
    at_s = [None] * load.count if load.rate_rps is None else _arrivals(load, load.rate_rps, seed)
    if load.shape is None:
        workflows = tuple(system.workflows)
        chosen = np.random.default_rng([seed, WORKFLOWS]).integers(len(workflows), size=load.count).tolist()
        return _requests(system, [workflows[number] for number in chosen], at_s)
    models = tuple(system.models)
    made = [
        generated_workflow(f"{load.shape}_{number}", load.shape, load.nodes, models, [seed, SHAPE, number])
        for number in range(1, load.count + 1)
    ]
    whole = System(models=system.models, workflows={workflow.id: workflow for workflow in made})
    return _requests(whole, [workflow.id for workflow in made], at_s)


def _requests(system: System, workflows: Sequence[str], at_s: Sequence[float | None]) -> Requests:
    return Requests(
        system=system,
        requests=tuple(
            Request(id=f"request_{number}", workflow=workflow, at_s=at)
            for number, (workflow, at) in enumerate(zip(workflows, at_s, strict=True), 1)
        ),
    )


def _arrivals(load: GeneratedLoad, rate_rps: float, seed: int) -> list[float | None]:
    pattern = (
        Poisson(rate_rps=rate_rps)
        if load.burstiness is None
        else Gamma(rate_rps=rate_rps, burstiness=load.burstiness)
    )
    times_s = list(islice(pattern.arrivals(np.random.default_rng([seed, ARRIVALS])), load.count))
    return [time_s - times_s[0] for time_s in times_s]
