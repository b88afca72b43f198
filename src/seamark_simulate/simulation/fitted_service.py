"""A service from a fitted model with any number of replicas: what becomes of given requests. Draws no arrivals."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from seamark_simulate.model.fitted_model import (
    InputRange,
    Model,
    ReplicaModel,
    ReplicaParameters,
    Router,
    StationModel,
    StationParameters,
    StepCost,
)
from seamark_simulate.simulation.llm.fleet import Fleet, serve_requests
from seamark_simulate.simulation.llm.replica import LlmReplica, LlmRequests
from seamark_simulate.simulation.schedule import Floats, Ints
from seamark_simulate.simulation.station import Station, drawn_by, serve

FASTEST = 10.0
"""Largest ratio of a repeat's speed to the mean, either way: two trials leave it nearly unknown."""


def own_speed(between: float, trials: int, random: np.random.Generator) -> float:
    """Return by what one repeat is slower than the mean of all. `between` is an estimate from `trials` trials, so it
    is drawn too: intervals are those of Student's t, as normal ones held 85 % of repeats with nine trials. Without
    trials it is known."""
    freedom = trials - 1
    unsure = (freedom / random.chisquare(freedom)) ** 0.5 if freedom > 0 else 1.0
    deviation = random.normal(0.0, between) * unsure
    return float(np.exp(np.clip(deviation, -np.log(FASTEST), np.log(FASTEST))))


@dataclass(frozen=True, kw_only=True)
class FittedService:
    """A model with its replicas: servers of a station, or LLM replicas. Limits are those of the model unless they are
    given."""

    model: Model
    replicas: int = 1
    router: Router | None = None
    kv_blocks: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None


def replica_of(model: ReplicaModel, cost: StepCost, service: FittedService | None = None) -> LlmReplica:
    """Return a replica with these costs, and the limits of a service or of its model."""
    limits = service or FittedService(model=model)
    return LlmReplica(
        cost=cost,
        kv_blocks=limits.kv_blocks or model.kv_blocks,
        block_tokens=model.block_tokens,
        max_num_seqs=limits.max_num_seqs or model.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens or model.max_num_batched_tokens,
    )


@dataclass(frozen=True, kw_only=True)
class ServedRequests:
    """When each request had its first token and its end, in seconds, the time of each further token of its reply, its
    units, and its wait at a station or until a step had it; and how often some were preempted. A station has no
    tokens: their times are None."""

    first_s: Floats | None
    last_s: Floats
    tpot_s: Floats | None
    units: Ints
    waiting_s: Floats
    preemptions: int = 0


def serve_fitted(service: FittedService, requests: LlmRequests, seed: int, *, draw: bool = False) -> ServedRequests:
    """Serve requests; a station sees their arrivals alone. With `draw` one of the draws of the fit is used and a
    speed as that of another repeat, both by the seed. Equal seeds have equal service times whatever the replicas are.

    Raises UserError for limits or requests that no step could serve.
    """
    model, random, own = service.model, np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    factor = own_speed(model.between, len(model.sources), own) if draw else 1.0
    drawn = model.draws[int(own.integers(len(model.draws)))] if draw and model.draws else model.parameters
    return serve_with(service, drawn, requests, random, factor=factor)


def serve_with(
    service: FittedService,
    parameters: StationParameters | ReplicaParameters,
    requests: LlmRequests,
    random: np.random.Generator,
    *,
    factor: float = 1.0,
) -> ServedRequests:
    """Serve requests with some parameters of the model, all times but that outside of the server multiplied by
    `factor`. Raises UserError for limits or requests that no step could serve."""
    model = service.model
    if isinstance(model, StationModel):
        assert isinstance(parameters, StationParameters)
        law = drawn_by(model.family, parameters.mean_s * factor, parameters.variation)
        station = Station(servers=service.replicas, service=law, router=service.router or "one-queue")
        served = serve(station, requests.arrival_s, random)
        return ServedRequests(
            first_s=None,
            last_s=served.end_s + parameters.overhead_s,
            tpot_s=None,
            units=np.ones(len(requests), np.int64),
            waiting_s=served.waiting_s,
        )
    assert isinstance(parameters, ReplicaParameters)
    fleet = Fleet(
        replica=replica_of(model, parameters.slower(factor), service),
        replicas=service.replicas,
        router=service.router or "least-loaded",
    )
    replies = serve_requests(fleet, replace(requests, arrival_s=requests.arrival_s + parameters.overhead_s), random)
    return ServedRequests(
        first_s=replies.first_token_s,
        last_s=replies.completed_s,
        tpot_s=replies.tpot_s,
        units=replies.reply_tokens,
        waiting_s=replies.scheduled_s - replies.arrival_s,
        preemptions=int(replies.preemptions.sum()),
    )


def outside(
    service: FittedService, requests: LlmRequests, rate_rps: float, *, simulated: int | None = None
) -> dict[str, float]:
    """Return the inputs of some requests that lie outside of those of the fit, by name. A model without trials has no
    range. Where it has one of concurrency, `simulated` is the most requests that are simulated for it; None: all."""
    if not service.model.sources:
        return {}
    lengths = {name: float(getattr(requests, name).mean()) for name in ("prompt_tokens", "reply_tokens")}

    def latency_s() -> float:
        first = requests.part(slice(simulated))
        return float((serve_fitted(service, first, 0).last_s - first.arrival_s).mean())

    return outside_of_fit(
        service.model,
        rate_rps,
        service.replicas,
        lengths,
        latency_s,
    )


def outside_of_fit(
    model: Model,
    rate_rps: float,
    replicas: int,
    lengths: Mapping[str, float],
    latency_s: Callable[[], float],
) -> dict[str, float]:
    """Return the inputs of a load on some replicas that lie outside of those of a fit, by name.

    Of a station that is the utilisation; of LLM replicas mean `lengths` in tokens, and the rate of one replica, or
    else its concurrency: by Little's law, with a mean latency that is computed where it is needed.
    """
    ranges = ranges_of(model)

    def holds(name: str, value: float) -> bool:
        return not ranges or (name in ranges and ranges[name].holds(value))  # a model by hand has no ranges

    if isinstance(model, StationModel):
        utilisation = rate_rps * model.parameters.mean_s / replicas
        return {} if holds("utilisation", utilisation) else {"utilisation": utilisation}
    found = {name: value for name, value in lengths.items() if not holds(name, value)}
    own_rps = rate_rps / replicas
    if holds("rate_rps", own_rps):
        return found
    if "concurrency" not in ranges:
        return found | {"rate_rps": own_rps}
    concurrency = own_rps * latency_s()
    return found if holds("concurrency", concurrency) else found | {"concurrency": concurrency}


def ranges_of(model: Model) -> Mapping[str, InputRange]:
    """Return the ranges of the inputs of a fit."""
    if isinstance(model, ReplicaModel):
        return model.ranges
    return {"utilisation": InputRange(low=model.loads[0], high=model.loads[1])}
