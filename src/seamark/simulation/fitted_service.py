"""A service from a fitted model with any number of replicas: what becomes of given requests. Draws no arrivals."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from seamark.model.results.fitted_model import InputRange, ReplicaModel, StationModel
from seamark.simulation.llm.fleet import Fleet, serve_requests
from seamark.simulation.llm.replica import LlmReplica, LlmRequests, StepCost
from seamark.simulation.schedule import Floats, Ints
from seamark.simulation.station import Router, Station, drawn_by, serve

TOLERANCE = 0.001
"""Share by which an input may lie outside of the range of a fit."""


@dataclass(frozen=True, kw_only=True)
class FittedService:
    """A model with its replicas: servers of a station, or LLM replicas. Limits are those of the model unless they are
    given."""

    model: StationModel | ReplicaModel
    replicas: int = 1
    router: Router | None = None
    kv_blocks: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class ServedRequests:
    """When each request had its first token (None for a station) and its end, its units, its wait at a station or
    until a step had it, in seconds; and how often some were preempted."""

    first_s: Floats | None
    last_s: Floats
    units: Ints
    waiting_s: Floats
    preemptions: int = 0


def serve_fitted(service: FittedService, requests: LlmRequests, seed: int, *, draw: bool = False) -> ServedRequests:
    """Serve requests; a station sees their arrivals alone. With `draw` one of the draws of the fit is used and a
    speed as that of another repeat, both by the seed. Equal seeds have equal service times whatever the replicas are.

    Raises UserError for limits or requests that no step could serve.
    """
    model, random, own = service.model, np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    factor = float(np.exp(model.between * own.normal())) if draw else 1.0
    if isinstance(model, StationModel):
        times = model.draws[int(own.integers(len(model.draws)))] if draw and model.draws else model.parameters
        law = drawn_by(model.family, times.mean_s * factor, times.variation)
        station = Station(servers=service.replicas, service=law, router=service.router or "one-queue")
        served = serve(station, requests.arrival_s, random)
        ones = np.ones(len(requests), np.int64)
        return ServedRequests(
            first_s=None, last_s=served.end_s + times.overhead_s, units=ones, waiting_s=served.waiting_s
        )
    costs = model.draws[int(own.integers(len(model.draws)))] if draw and model.draws else model.parameters
    cost = StepCost(**{name: value * factor for name, value in vars(costs).items() if name != "overhead_s"})
    fleet = Fleet(
        replica=_replica(service, model, cost),
        replicas=service.replicas,
        router=service.router or "least-loaded",
    )
    replies = serve_requests(fleet, replace(requests, arrival_s=requests.arrival_s + costs.overhead_s), random)
    return ServedRequests(
        first_s=replies.first_token_s,
        last_s=replies.completed_s,
        units=replies.reply_tokens,
        waiting_s=replies.scheduled_s - replies.arrival_s,
        preemptions=int(replies.preemptions.sum()),
    )


def outside(service: FittedService, requests: LlmRequests, rate_rps: float) -> dict[str, float]:
    """Return the inputs that lie outside of those of the fit, by name: utilisation of a station; of a replica the
    mean lengths, and the rate or else the concurrency (by Little's law, with the estimate). A model without
    trials has no range."""
    model = service.model
    if not model.sources:
        return {}
    if isinstance(model, StationModel):
        utilisation = rate_rps * model.parameters.mean_s / service.replicas
        low, high = model.loads
        return {} if _holds(InputRange(low=low, high=high), utilisation) else {"utilisation": utilisation}
    values = {
        "prompt_tokens": float(requests.prompt_tokens.mean()),
        "reply_tokens": float(requests.reply_tokens.mean()),
    }
    found = {name: value for name, value in values.items() if not _holds(model.ranges.get(name), value)}
    rate = rate_rps / service.replicas
    if _holds(model.ranges.get("rate_rps"), rate):
        return found
    if "concurrency" not in model.ranges:
        return found | {"rate_rps": rate}
    latency_s = float((serve_fitted(service, requests, 0).last_s - requests.arrival_s).mean())
    return (
        found if _holds(model.ranges["concurrency"], rate * latency_s) else found | {"concurrency": rate * latency_s}
    )


def ranges_of(model: StationModel | ReplicaModel) -> Mapping[str, InputRange]:
    """Return the ranges of the inputs of a fit."""
    if isinstance(model, ReplicaModel):
        return model.ranges
    return {"utilisation": InputRange(low=model.loads[0], high=model.loads[1])}


def _holds(known: InputRange | None, value: float) -> bool:
    return known is not None and known.low * (1 - TOLERANCE) <= value <= known.high * (1 + TOLERANCE)


def _replica(service: FittedService, model: ReplicaModel, cost: StepCost) -> LlmReplica:
    sequences = service.max_num_seqs or model.max_num_seqs
    return LlmReplica(
        cost=cost,
        kv_blocks=service.kv_blocks or model.kv_blocks,
        block_tokens=model.block_tokens,
        max_num_seqs=sequences,
        max_num_batched_tokens=service.max_num_batched_tokens or model.max_num_batched_tokens,
    )
