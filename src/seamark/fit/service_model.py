"""Fitted models of services with any number of equal replicas: simulated trials of a planned load, draw by draw."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypeVar

import numpy as np

from seamark.fit.planned_load import PlannedLoad
from seamark.fit.replica_fit import Range, scaled
from seamark.fit.service_time import ServiceTime
from seamark.model.results.fitted_model import ReplicaModel, ReplicaParameters, StationModel, StationParameters
from seamark.simulation.llm.fleet import Fleet, serve_requests
from seamark.simulation.llm.replica import LlmReplica, LlmRequests, StepCost
from seamark.simulation.schedule import Floats
from seamark.simulation.station import Router, Station, serve

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
    """A fitted station, of which a replica is one server. All share one queue unless the `router` says otherwise.
    `unlimited` has a server for every request."""

    model: StationModel
    router: Router = "one-queue"
    unlimited: bool = False
    times: tuple[str, ...] = STATION_TIMES

    def trial(
        self, load: PlannedLoad, replicas: int, number: int, seed: int, fixed: frozenset[Source] = frozenset()
    ) -> TrialTimes:
        """Simulate a trial, see ServiceModel."""
        model, arrival_s, random, factor = self.model, *_drawn(load, self.model.between, number, seed, fixed)
        found = model.parameters if "parameters" in fixed else _draw(model.draws, model.parameters, number)
        service = ServiceTime(family=model.family, mean_s=found.mean_s * factor, variation=found.variation)
        servers = len(arrival_s) if self.unlimited else replicas
        served = serve(Station(servers=max(1, servers), service=service.draw, router=self.router), arrival_s, random)
        end_s = served.end_s + found.overhead_s
        latency_s = (end_s - arrival_s)[arrival_s >= load.warmup_s]
        return TrialTimes(times_s=dict.fromkeys(STATION_TIMES, latency_s), requests_per_s=_ended_rps(end_s, load))

    def outside(self, load: PlannedLoad, replicas: int) -> tuple[str, ...]:
        """Return whether the utilisation lies outside of the fit's."""
        low, high = self.model.loads
        utilisation = load.rate_rps * self.model.parameters.mean_s / replicas
        if Range(low=low, high=high).holds(utilisation):
            return ()
        return (f"utilisation {utilisation:.2f} ({low:.2f} to {high:.2f})",)

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
        model, arrival_s, random, factor = self.model, *_drawn(load, self.model.between, number, seed, fixed)
        found = model.parameters if "parameters" in fixed else _draw(model.draws, model.parameters, number)
        requests = LlmRequests(
            arrival_s=arrival_s + found.overhead_s,
            prompt_tokens=np.full(len(arrival_s), load.prompt_tokens, np.int64),
            reply_tokens=np.full(len(arrival_s), load.reply_tokens, np.int64),
        )
        fleet = Fleet(replica=self._replica(found, factor), replicas=replicas, router=self.router)
        replies = serve_requests(fleet, requests, random)
        counted = arrival_s >= load.warmup_s
        latency_s, ttft_s = (replies.completed_s - arrival_s)[counted], (replies.first_token_s - arrival_s)[counted]
        tpot_s = replies.tpot_s[counted]
        return TrialTimes(
            times_s={
                **dict.fromkeys(("latency", "service_time"), latency_s),
                **dict.fromkeys(("ttft", "ttft_response"), ttft_s),
                "tpot": tpot_s[np.isfinite(tpot_s)],
            },
            requests_per_s=_ended_rps(replies.completed_s, load),
            preemptions=int(replies.preemptions.sum()),
        )

    def _replica(self, found: ReplicaParameters, factor: float) -> LlmReplica:
        costs = {name: value for name, value in vars(found).items() if name != "overhead_s"}
        cost = StepCost(**{name: 0.0 if name in self.free else value for name, value in costs.items()})
        return LlmReplica(
            cost=scaled(cost, factor),
            kv_blocks=self.kv_blocks,
            block_tokens=self.model.block_tokens,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
        )

    def outside(self, load: PlannedLoad, replicas: int) -> tuple[str, ...]:
        """Return which of rate (or concurrency, by Little's law) and lengths lie outside of the fit's."""
        values = {"prompt_tokens": float(load.prompt_tokens), "reply_tokens": float(load.reply_tokens)}
        found = [_phrase(name, value, self.model) for name, value in values.items() if not _holds(self, name, value)]
        rate_rps = load.rate_rps / replicas
        if _holds(self, "rate_rps", rate_rps):
            return tuple(found)
        if "concurrency" not in self.model.ranges:
            return (*found, _phrase("rate_rps", rate_rps, self.model))
        concurrency = self._concurrency(load, replicas)
        if not _holds(self, "concurrency", concurrency):
            found.append(_phrase("concurrency", concurrency, self.model))
        return tuple(found)

    def _concurrency(self, load: PlannedLoad, replicas: int) -> float:
        """Return the mean number of requests at one replica under a short load, with the estimated parameters."""
        length_s = min(load.duration_s, SHORT_REQUESTS / load.rate_rps)
        short = PlannedLoad(**{**vars(load), "duration_s": length_s, "warmup_s": min(load.warmup_s, length_s)})
        every: frozenset[Source] = frozenset(("parameters", "repeats", "seeds"))
        times_s = self.trial(short, replicas, 0, 0, every).times_s["latency"]
        return load.rate_rps / replicas * float(times_s.mean()) if len(times_s) else 0.0

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
    load: PlannedLoad, between: float, number: int, seed: int, fixed: frozenset[Source]
) -> tuple[Floats, np.random.Generator, float]:
    """Return arrivals, the source of service times, and by what a trial is slower than the model."""
    own = ALL_ALIKE if "seeds" in fixed else number
    repeat = np.random.default_rng([seed, number, 2]).normal()
    factor = 1.0 if "repeats" in fixed else float(np.exp(between * repeat))
    arrival_s = load.arrivals(int(np.random.SeedSequence([seed, own]).generate_state(1)[0]))
    return arrival_s, np.random.default_rng([seed, own, 1]), factor


def _draw(draws: tuple[P, ...], best: P, number: int) -> P:
    return draws[number % len(draws)] if draws else best


def _ended_rps(end_s: Floats, load: PlannedLoad) -> float:
    return int(((end_s >= load.warmup_s) & (end_s < load.until_s)).sum()) / load.duration_s


def _holds(service: ReplicaService, name: str, value: float) -> bool:
    known = service.model.ranges.get(name)
    return known is not None and Range(low=known.low, high=known.high).holds(value)


def _phrase(name: str, value: float, model: ReplicaModel) -> str:
    known = model.ranges.get(name)
    rest = f"{known.low:.4g} to {known.high:.4g}" if known is not None else "no trial has any"
    return f"{name} {value:.4g} ({rest})"
