"""Fitted models of services with any number of equal replicas: simulated trials of a planned load, draw by draw."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, Protocol, TypeVar

import numpy as np

from seamark_simulate.fit.planned_load import PlannedLoad
from seamark_simulate.model.fitted_model import (
    Model,
    ReplicaModel,
    ReplicaParameters,
    Router,
    StationModel,
    StationParameters,
)
from seamark_simulate.simulation.fitted_service import (
    FittedService,
    ServedRequests,
    outside_of_fit,
    own_speed,
    serve_with,
)
from seamark_simulate.simulation.llm.replica import LlmRequests
from seamark_simulate.simulation.schedule import Floats

P = TypeVar("P", StationParameters, ReplicaParameters)
Source = Literal["parameters", "repeats", "seeds"]
"""Sources of what simulated trials differ by: the parameters of the model, what repeats of a treatment differ by
beyond them, and arrivals with service times."""
STATION_TIMES = ("latency", "service_time")
REPLICA_TIMES = ("latency", "service_time", "ttft", "ttft_response", "tpot")
ALL_ALIKE = 0
"""Seed of every trial where seeds are fixed."""
SHORT_REQUESTS = 2_000
"""Requests by which the concurrency of a planned load is estimated."""


@dataclass(frozen=True, kw_only=True)
class TrialTimes:
    """Times in seconds of the requests of a simulated trial that were due in its measured window, by name, shape
    (requests,), how many of all requests ended in that window a second, and how often some were preempted."""

    times_s: Mapping[str, Floats]
    requests_per_s: float
    preemptions: int = 0


class ServiceModel(Protocol):
    """A service with a number of equal replicas, as a plan needs it."""

    @property
    def times(self) -> tuple[str, ...]:
        """Names of the times of requests that it knows."""

    def trial(
        self, load: PlannedLoad, replicas: int, number: int, seed: int, fixed: frozenset[Source] = frozenset()
    ) -> TrialTimes:
        """Simulate trial `number` of a load. Equal numbers have equal arrivals, lengths and service times whatever
        the replicas are. What is `fixed` is the same in all trials."""

    def outside(self, load: PlannedLoad, replicas: int) -> tuple[str, ...]:
        """Return a phrase for each input of that load that lies outside of those of the fit."""

    def without_limits(self, load: PlannedLoad) -> Mapping[str, "ServiceModel"]:
        """Return what this service would be without each single limit, by the name of the limit."""

    def without_costs(self) -> Mapping[str, "ServiceModel"]:
        """Return what this service would be if a single part of its work took no time, by the name of the part."""


@dataclass(frozen=True, kw_only=True)
class StationService:
    """A fitted station, of which a replica is a started server with `workers` inside it that serve at once. All
    workers of all replicas share one queue unless the `router` says otherwise. `unlimited` has one for every
    request."""

    model: StationModel
    workers: int = 1
    router: Router = "one-queue"
    unlimited: bool = False
    times: tuple[str, ...] = STATION_TIMES

    def trial(
        self, load: PlannedLoad, replicas: int, number: int, seed: int, fixed: frozenset[Source] = frozenset()
    ) -> TrialTimes:
        """Simulate a trial, see ServiceModel."""
        requests, random, factor = _drawn(load, self.model, number, seed, fixed)
        servers = max(1, len(requests)) if self.unlimited else replicas * self.workers
        service = FittedService(model=self.model, replicas=servers, router=self.router)
        parameters = _parameters(self.model.draws, self.model.parameters, number, fixed)
        return _times(serve_with(service, parameters, requests, random, factor=factor), requests, load)

    def outside(self, load: PlannedLoad, replicas: int) -> tuple[str, ...]:
        """Return whether the utilisation lies outside of the fit's."""
        low, high = self.model.loads
        found = outside_of_fit(self.model, load.rate_rps, replicas * self.workers, {}, lambda: 0.0)
        return tuple(f"{name} {value:.2f} ({low:.2f} to {high:.2f})" for name, value in found.items())

    def without_limits(self, load: PlannedLoad) -> Mapping[str, ServiceModel]:
        """Return the station without a queue."""
        return {"queue": StationService(model=self.model, router="one-queue", unlimited=True)}

    def without_costs(self) -> Mapping[str, ServiceModel]:
        """Return nothing: a station has no parts."""
        return {}


@dataclass(frozen=True, kw_only=True)
class ReplicaService:
    """A fitted LLM replica behind a router. `kv_blocks` are those of its memory. `free` has costs of steps that are
    left out."""

    model: ReplicaModel
    kv_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    router: Router = "least-loaded"
    free: frozenset[str] = field(default_factory=frozenset)
    times: tuple[str, ...] = REPLICA_TIMES

    def trial(
        self, load: PlannedLoad, replicas: int, number: int, seed: int, fixed: frozenset[Source] = frozenset()
    ) -> TrialTimes:
        """Simulate a trial, see ServiceModel."""
        requests, random, factor = _drawn(load, self.model, number, seed, fixed)
        parameters = _parameters(self.model.draws, self.model.parameters, number, fixed)
        service = FittedService(
            model=self.model,
            replicas=replicas,
            router=self.router,
            kv_blocks=self.kv_blocks,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
        )
        costs = replace(parameters, **dict.fromkeys(self.free, 0.0))
        return _times(serve_with(service, costs, requests, random, factor=factor), requests, load)

    def outside(self, load: PlannedLoad, replicas: int) -> tuple[str, ...]:
        """Return which of rate (or concurrency, by Little's law) and lengths lie outside of the fit's."""
        lengths = {"prompt_tokens": float(load.prompt_tokens), "reply_tokens": float(load.reply_tokens)}
        latency = partial(self._latency_s, load, replicas)
        found = outside_of_fit(self.model, load.rate_rps, replicas, lengths, latency)
        return tuple(_phrase(name, value, self.model) for name, value in found.items())

    def _latency_s(self, load: PlannedLoad, replicas: int) -> float:
        """Return the mean latency under a short load, with the estimated parameters; 0 without a request."""
        length_s = min(load.duration_s, SHORT_REQUESTS / load.rate_rps)
        short = replace(load, duration_s=length_s, warmup_s=min(load.warmup_s, length_s))
        every: frozenset[Source] = frozenset(("parameters", "repeats", "seeds"))
        times_s = self.trial(short, replicas, 0, 0, every).times_s["latency"]
        return float(times_s.mean()) if len(times_s) else 0.0

    def without_limits(self, load: PlannedLoad) -> Mapping[str, ServiceModel]:
        """Return the replica with blocks, sequences or tokens of a step for all requests."""
        tokens = load.prompt_tokens + load.reply_tokens
        most = 1 << 16
        blocks = most * -(-tokens // self.model.block_tokens)
        step_tokens = max(self.max_num_batched_tokens, most)
        return {
            "KV blocks": replace(self, kv_blocks=blocks),
            "sequences (max_num_seqs)": replace(self, max_num_seqs=most, max_num_batched_tokens=step_tokens),
            "tokens of a step (max_num_batched_tokens)": replace(self, max_num_batched_tokens=most * tokens),
        }

    def without_costs(self) -> Mapping[str, ServiceModel]:
        """Return the replica whose prompts, replies under way, or steps themselves take no time."""
        costs = {"prefill": ("prompt_token_s",), "decoding": ("sequence_s", "kv_token_s"), "steps": ("base_s",)}
        return {name: replace(self, free=frozenset(parts)) for name, parts in costs.items()}


def _drawn(
    load: PlannedLoad, model: Model, number: int, seed: int, fixed: frozenset[Source]
) -> tuple[LlmRequests, np.random.Generator, float]:
    """Return requests of the load's lengths, of which a station reads none; the source of service times; and by what
    a trial is slower than the model."""
    own = ALL_ALIKE if "seeds" in fixed else number
    repeat = np.random.default_rng([seed, number, 2])
    factor = 1.0 if "repeats" in fixed else own_speed(model.between, len(model.sources), repeat)
    arrival_s = load.arrivals(int(np.random.SeedSequence([seed, own]).generate_state(1)[0]))
    requests = LlmRequests(
        arrival_s=arrival_s,
        prompt_tokens=np.full(len(arrival_s), load.prompt_tokens, np.int64),
        reply_tokens=np.full(len(arrival_s), load.reply_tokens, np.int64),
    )
    return requests, np.random.default_rng([seed, own, 1]), factor


def _parameters(draws: tuple[P, ...], best: P, number: int, fixed: frozenset[Source]) -> P:
    return draws[number % len(draws)] if draws and "parameters" not in fixed else best


def _times(served: ServedRequests, requests: LlmRequests, load: PlannedLoad) -> TrialTimes:
    """Return the times of the requests that were due in the measured window."""
    arrival_s, end_s = requests.arrival_s, served.last_s
    counted = arrival_s >= load.warmup_s
    times_s = dict.fromkeys(STATION_TIMES, (end_s - arrival_s)[counted])
    if served.first_s is not None and served.tpot_s is not None:
        tpot_s = served.tpot_s[counted]
        times_s |= dict.fromkeys(("ttft", "ttft_response"), (served.first_s - arrival_s)[counted])
        times_s["tpot"] = tpot_s[np.isfinite(tpot_s)]
    ended = (end_s >= load.warmup_s) & (end_s < load.until_s)
    return TrialTimes(
        times_s=times_s, requests_per_s=int(ended.sum()) / load.duration_s, preemptions=served.preemptions
    )


def _phrase(name: str, value: float, model: ReplicaModel) -> str:
    known = model.ranges.get(name)
    rest = f"{known.low:.4g} to {known.high:.4g}" if known is not None else "no trial has any"
    return f"{name} {value:.4g} ({rest})"
