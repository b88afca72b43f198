"""Fitted models of services with any number of equal replicas: simulated trials of a planned load, draw by draw."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, cast

import numpy as np

from seamark_simulate.fit.planned_load import PlannedLoad
from seamark_simulate.model.fitted_model import ReplicaParameters, StationModel
from seamark_simulate.simulation.fitted_service import (
    FittedService,
    ServedRequests,
    outside_of_fit,
    own_speed,
    ranges_of,
    serve_with,
)
from seamark_simulate.simulation.llm.replica import LlmRequests
from seamark_simulate.simulation.schedule import Floats

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
    (requests,), and how many of all requests ended in that window a second."""

    times_s: Mapping[str, Floats]
    requests_per_s: float


@dataclass(frozen=True, kw_only=True)
class ServiceModel(FittedService):
    """A fitted service with a number of equal servers, as a plan needs it; `replicas` are those inside one server,
    which share one queue unless the `router` says otherwise.

    `free` has costs of steps that are left out. An `unlimited` station has a server for every request.
    """

    free: frozenset[str] = frozenset()
    unlimited: bool = False

    @property
    def times(self) -> tuple[str, ...]:
        """Names of the times of requests that it knows."""
        return STATION_TIMES if isinstance(self.model, StationModel) else REPLICA_TIMES

    def trial(
        self, load: PlannedLoad, servers: int, number: int, seed: int, fixed: frozenset[Source] = frozenset()
    ) -> TrialTimes:
        """Simulate trial `number` of a load. Equal numbers have equal arrivals, lengths and service times whatever
        the servers are. What is `fixed` is the same in all trials."""
        model, own = self.model, ALL_ALIKE if "seeds" in fixed else number
        repeat = np.random.default_rng([seed, number, 2])
        factor = 1.0 if "repeats" in fixed else own_speed(model.between, len(model.sources), repeat)
        arrival_s = load.arrivals(int(np.random.SeedSequence([seed, own]).generate_state(1)[0]))
        requests = LlmRequests(
            arrival_s=arrival_s,
            prompt_tokens=np.full(len(arrival_s), load.prompt_tokens, np.int64),
            reply_tokens=np.full(len(arrival_s), load.reply_tokens, np.int64),
        )
        draws = () if "parameters" in fixed else model.draws
        drawn = draws[number % len(draws)] if draws else model.parameters
        served = serve_with(
            replace(self, replicas=max(1, len(requests)) if self.unlimited else servers * self.replicas),
            replace(cast(ReplicaParameters, drawn), **dict.fromkeys(self.free, 0.0)),
            requests,
            np.random.default_rng([seed, own, 1]),
            factor=factor,
        )
        return _times(served, arrival_s, load)

    def outside(self, load: PlannedLoad, servers: int) -> tuple[str, ...]:
        """Return a phrase for each input of a load that lies outside of those of the fit: the utilisation; or the
        rate (or concurrency, by Little's law) and lengths."""
        lengths = {"prompt_tokens": float(load.prompt_tokens), "reply_tokens": float(load.reply_tokens)}
        latency = partial(self._latency_s, load, servers)
        found = outside_of_fit(self.model, load.rate_rps, servers * self.replicas, lengths, latency)
        ranges, form = ranges_of(self.model), ".2f" if isinstance(self.model, StationModel) else ".4g"
        known = {name: f"{span.low:{form}} to {span.high:{form}}" for name, span in ranges.items()}
        return tuple(
            f"{name} {value:{form}} ({known.get(name, 'no trial has any')})" for name, value in found.items()
        )

    def _latency_s(self, load: PlannedLoad, servers: int) -> float:
        """Return the mean latency under a short load, with the estimated parameters; 0 without a request."""
        length_s = min(load.duration_s, SHORT_REQUESTS / load.rate_rps)
        short = replace(load, duration_s=length_s, warmup_s=min(load.warmup_s, length_s))
        every: frozenset[Source] = frozenset(("parameters", "repeats", "seeds"))
        times_s = self.trial(short, servers, 0, 0, every).times_s["latency"]
        return float(times_s.mean()) if len(times_s) else 0.0

    def without_limits(self, load: PlannedLoad) -> Mapping[str, "ServiceModel"]:
        """Return what this service would be without each single limit, by its name: the queue of a station, or else
        with blocks, sequences or tokens of a step for all requests."""
        if isinstance(self.model, StationModel):
            return {"queue": replace(self, router="one-queue", unlimited=True)}
        tokens = load.prompt_tokens + load.reply_tokens
        most = 1 << 16
        blocks = most * -(-tokens // self.model.block_tokens)
        step_tokens = max(self.max_num_batched_tokens or self.model.max_num_batched_tokens, most)
        return {
            "KV blocks": replace(self, kv_blocks=blocks),
            "sequences (max_num_seqs)": replace(self, max_num_seqs=most, max_num_batched_tokens=step_tokens),
            "tokens of a step (max_num_batched_tokens)": replace(self, max_num_batched_tokens=most * tokens),
        }

    def without_costs(self) -> Mapping[str, "ServiceModel"]:
        """Return what this service would be if a single part of its work took no time, by the name of the part:
        prompts, replies under way, or steps themselves. A station has no parts."""
        if isinstance(self.model, StationModel):
            return {}
        costs = {"prefill": ("prompt_token_s",), "decoding": ("sequence_s", "kv_token_s"), "steps": ("base_s",)}
        return {name: replace(self, free=frozenset(parts)) for name, parts in costs.items()}


def _times(served: ServedRequests, arrival_s: Floats, load: PlannedLoad) -> TrialTimes:
    """Return the times of the requests that were due in the measured window."""
    counted, end_s = arrival_s >= load.warmup_s, served.last_s
    times_s = dict.fromkeys(STATION_TIMES, (end_s - arrival_s)[counted])
    if served.first_s is not None and served.tpot_s is not None:
        tpot_s = served.tpot_s[counted]
        times_s |= dict.fromkeys(("ttft", "ttft_response"), (served.first_s - arrival_s)[counted])
        times_s["tpot"] = tpot_s[np.isfinite(tpot_s)]
    ended = (end_s >= load.warmup_s) & (end_s < load.until_s)
    return TrialTimes(times_s=times_s, requests_per_s=int(ended.sum()) / load.duration_s)
