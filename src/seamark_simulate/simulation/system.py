"""Nouns of a simulated system: models, workflows of nodes, and the requests that run them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal

from seamark.model.annotations import limited

MOST_GPUS, LARGEST = 100_000, 1e15
"""Of numbers beyond, sums are no numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model that a node of a workflow runs.

    It holds `gpus_required` consecutive GPUs, and `memory_gb` of each. `load_time_s` is what the first model of an
    empty GPU costs; `fetched` False: a task that brings no model, before which nothing is loaded or switched. The
    other fields estimate the time of a node: `inference_time_mean_s`, else `token_mean` over `tokens_per_second`;
    `_std` is the standard deviation of its draws.
    """

    id: str
    memory_gb: float = limited(minimum=0, largest=LARGEST)
    gpus_required: int = limited(minimum=1, maximum=MOST_GPUS, unit="GPUs")
    load_time_s: float = limited(written="load_time_seconds", minimum=0, largest=LARGEST)
    name: str = ""
    tokens_per_second: float | None = limited(None, above=0, largest=LARGEST)
    token_mean: float | None = limited(None, minimum=0, largest=LARGEST)
    token_std: float | None = limited(None, minimum=0, largest=LARGEST)
    inference_time_mean_s: float | None = limited(None, written="inference_time_mean", minimum=0, largest=LARGEST)
    inference_time_std_s: float | None = limited(None, written="inference_time_std", minimum=0, largest=LARGEST)
    fetched: bool = limited(True, written="")


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowNode:
    """A step of a workflow: one call of one model."""

    id: str
    model: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    config_options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """The node `target` starts after the end of `source`, and gets `data_bytes` from it."""

    source: str
    target: str
    data_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """Nodes and the edges between them, without a cycle. The order of both decides ties."""

    id: str
    nodes: tuple[WorkflowNode, ...]
    edges: tuple[Edge, ...] = ()
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class System:
    """The models and the workflows by their ids, in the order of their file."""

    models: Mapping[str, Model]
    workflows: Mapping[str, Workflow]


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One run of a workflow. `at_s` counts from the earliest request; None: it has no time stamp.

    `node_execution_times_s` has the time of a node where it is known, from `times_source`; `node_estimates_s` what a
    scheduler is told in its place. A larger `priority` goes first, and `deadline_s` counts from the arrival: only
    policies that say so use them.
    """

    id: str
    workflow: str
    at_s: float | None = None
    node_execution_times_s: Mapping[str, float] = field(default_factory=dict)
    times_source: Literal["node_execution_times", "tokens_per_second"] = "node_execution_times"
    node_estimates_s: Mapping[str, float] = field(default_factory=dict)
    node_configs: Mapping[str, Any] = field(default_factory=dict)
    input_data: Any = None
    priority: int = 0
    deadline_s: float | None = None


def cycle_of(edges: Collection[tuple[str, str]]) -> list[str]:
    """Return the nodes of one cycle from the first that an edge names, which is repeated at the end, or nothing."""
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for source, target in edges:
        sorter.add(target, source)
    try:
        sorter.prepare()
    except CycleError as error:
        circle = [str(node) for node in error.args[1][:-1]]
        first = circle.index(next(source for source, _ in edges if source in circle))
        return [*circle[first:], *circle[: first + 1]]
    return []
