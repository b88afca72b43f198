"""Requests drawn by a seed: workflows of a system in equal parts, with independent arrivals."""

from itertools import islice

import numpy as np

from seamark.patterns.patterns import Poisson
from seamark.simulation.system import Request, Requests, System

WORKFLOWS, ARRIVALS = 1, 2
"""Streams of random numbers, apart from that of node times: more requests or another rate change no others."""


def generated_requests(system: System, count: int, seed: int, *, rate_rps: float | None = None) -> Requests:
    """Return `count` requests, each to a workflow drawn with equal chances; arrivals are Poisson, in seconds from the
    first one. Without a rate they have no time."""
    workflows = tuple(system.workflows)
    chosen = np.random.default_rng([seed, WORKFLOWS]).integers(len(workflows), size=count).tolist()
    at_s: list[float] | list[None] = [None] * count
    if rate_rps is not None:
        times_s = list(islice(Poisson(rate_rps=rate_rps).arrivals(np.random.default_rng([seed, ARRIVALS])), count))
        at_s = [time_s - times_s[0] for time_s in times_s]
    requests = (
        Request(id=f"request_{number}", workflow=workflows[workflow], at_s=at)
        for number, (workflow, at) in enumerate(zip(chosen, at_s, strict=True), 1)
    )
    return Requests(requests=tuple(requests))
