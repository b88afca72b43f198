"""Requests drawn by a seed: workflows of a system in equal parts, or each a workflow of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from seamark.patterns.patterns import Gamma, Poisson
from seamark_simulate.simulation.generated_workflows import Shape, generated_workflow
from seamark_simulate.simulation.system import Request, Requests, System

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


def generated_requests(system: System, load: GeneratedLoad, seed: int) -> tuple[System, Requests]:
    """Return drawn requests and the system with their workflows; arrivals are in seconds from the first one."""
    at_s = [None] * load.count if load.rate_rps is None else _arrivals(load, load.rate_rps, seed)
    if load.shape is None:
        workflows = tuple(system.workflows)
        chosen = np.random.default_rng([seed, WORKFLOWS]).integers(len(workflows), size=load.count).tolist()
        return system, _requests([workflows[number] for number in chosen], at_s)
    models = tuple(system.models)
    made = [
        generated_workflow(f"{load.shape}_{number}", load.shape, load.nodes, models, [seed, SHAPE, number])
        for number in range(1, load.count + 1)
    ]
    whole = System(models=system.models, workflows={workflow.id: workflow for workflow in made})
    return whole, _requests([workflow.id for workflow in made], at_s)


def _requests(workflows: Sequence[str], at_s: Sequence[float | None]) -> Requests:
    return Requests(
        requests=tuple(
            Request(id=f"request_{number}", workflow=workflow, at_s=at)
            for number, (workflow, at) in enumerate(zip(workflows, at_s, strict=True), 1)
        )
    )


def _arrivals(load: GeneratedLoad, rate_rps: float, seed: int) -> list[float | None]:
    pattern = (
        Poisson(rate_rps=rate_rps)
        if load.burstiness is None
        else Gamma(rate_rps=rate_rps, burstiness=load.burstiness)
    )
    times_s = list(islice(pattern.arrivals(np.random.default_rng([seed, ARRIVALS])), load.count))
    return [time_s - times_s[0] for time_s in times_s]
