"""Workflows drawn by a seed: chain, fan, fork and join, layers, and a bounded loop."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, get_args

import numpy as np

from seamark_simulate.simulation.system import Edge, Workflow, WorkflowNode

Shape = Literal["chain", "fan", "fork-join", "layered", "loop"]
SHAPES: tuple[Shape, ...] = get_args(Shape)
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
