"""Estimated minimum and maximum time of a plan: loads are known, everything else comes from earlier measurements."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from seamark.model.harness import harness_of
from seamark.model.scenario import Restarts
from seamark.model.service import Service
from seamark.model.trial import Deployment, Plan, Trial


@dataclass(frozen=True, kw_only=True)
class Span:
    """Seconds from `least` to `most`, as a rule about `typical`."""

    least: float
    typical: float
    most: float

    def __add__(self, other: "Span") -> "Span":
        return Span(least=self.least + other.least, typical=self.typical + other.typical, most=self.most + other.most)

    def times(self, count: float) -> "Span":
        """Return the span of `count` such steps, one after another."""
        return Span(least=self.least * count, typical=self.typical * count, most=self.most * count)

    def of(self, typical_s: float) -> "Span":
        """Return the span whose limits are these multiples of a typical time."""
        return Span(least=self.least * typical_s, typical=typical_s, most=self.most * typical_s)


NOTHING = Span(least=0.0, typical=0.0, most=0.0)
AROUND_TRIAL = Span(least=0.2, typical=0.4, most=3.0)
"""Overhead of a trial beside its load: workers, samples, records. 56 trials of a quickstart took 0.18 to 0.48 s on
two idle cores; 6 of vectors_milvus_local 1.4 to 4.9 s, except one, on the same cores with seven times the work."""
AROUND_DEPLOYMENT = Span(least=1.0, typical=2.5, most=6.0)
"""Overhead of a deployment beside start and data: supervisor, idle check, Snakemake jobs. 1.5 to 3 s in
quickstart."""
GUESSED = Span(least=0.3, typical=1.0, most=4.0)
"""Start and data of a server take this ratio of their typical time, up to this multiple on a busy host. The items of
a finite load take up to that multiple, and next to nothing if they are few."""
MEASURED = Span(least=0.9, typical=1.0, most=1.25)
"""The same for a finite load of which another repetition was measured."""
STARTED = Span(least=0.7, typical=1.0, most=1.5)
"""The same for a server of a service that has started here before."""
TYPICAL_AROUND_S = 3.0
"""Of a deployment in the middle of that span."""
WITHOUT_SERVER = Span(least=0.5, typical=2.0, most=6.0)
"""Data of a service inside the client: 0.7 to 3.8 s in quickstart, mostly an index of 20,000 vectors."""
RUN = Span(least=8.0, typical=15.0, most=45.0)
"""Overhead of a run: Snakemake's start, calibration of the client if missing, summary and report. 14 s in quickstart,
30 s in vectors_milvus_local on busy cores."""
REPORT_OF_TREATMENT = Span(least=0.1, typical=0.3, most=0.7)
"""Metrics and figures: 8 s for 28 treatments of five services on two idle cores."""
ENVIRONMENT = Span(least=1.0, typical=8.0, most=100.0)
"""Creation of an environment: 1 to 3 s in quickstart from a warm package cache, minutes with a slow download."""
HARNESS = Span(least=3.0, typical=12.0, most=60.0)
"""Start of another tool before its load: 7 s of aiperf, 8 s of `vllm bench serve`, 17 s of guidellm on two cores."""
SEARCH_LEAST, SEARCH_TYPICAL = 0.1, 0.5
"""A search ends before its budget once its bracket is narrow, rarely before this ratio of it."""


@dataclass(frozen=True, kw_only=True)
class PlanTime:
    """Time of a plan: `loads` is the load, warm-ups included; `deployments` is the overhead of each deployment."""

    loads: Span
    deployments: Mapping[str, Span]
    whole: Span


def time_of(
    plan: Plan,
    services: Mapping[str, Service],
    environments: int = 0,
    measured_s: Mapping[str, float] = MappingProxyType({}),
    started_s: Mapping[str, float] = MappingProxyType({}),
) -> PlanTime:
    """Return the time of a plan, deployments one after another, without waiting in a queue.

    `environments` are those still to be created; `measured_s` are lengths of finite loads, by treatment, and
    `started_s` times to service, by service.
    """
    loads = {deployment.id: NOTHING for deployment in plan.deployments}
    around = {
        deployment.id: _start_of(deployment, services, started_s) + AROUND_DEPLOYMENT
        for deployment in plan.deployments
    }
    for trial in plan.trials:
        spans = [
            load_of(load, services.get(load.service), measured_s.get(trial.treatment)) for load in trial.measured
        ]
        loads[trial.deployment] += max(spans, key=lambda span: span.most)
        around[trial.deployment] += AROUND_TRIAL
    deployments = {name: loads[name] + around[name] for name in loads}
    treatments = len(dict.fromkeys(trial.treatment for trial in plan.trials))
    whole = _sum(deployments.values()) + RUN + REPORT_OF_TREATMENT.times(treatments)
    return PlanTime(
        loads=_sum(loads.values()),
        deployments=deployments,
        whole=whole + ENVIRONMENT.times(environments),
    )


def starts_of(plan: Plan, services: Mapping[str, Service], restarts: Restarts) -> Span:
    """Return the time that the starts of a plan's servers take, or would take if they were of that kind."""
    distinct = [deployment for deployment in plan.deployments if deployment.block in (None, 1)]
    once = _sum(_start_of(deployment, services, {}) + AROUND_DEPLOYMENT for deployment in distinct)
    return once.times(plan.repetitions) if restarts == "each" else once


def load_of(trial: Trial, service: Service | None = None, measured_s: float | None = None) -> Span:
    """Return the time of a trial's load, or of all probes of its search; of a finite load by an earlier one, else by
    its rate or its recipe, else its limit."""
    load_s = trial.load.length_s
    if trial.load.finite and measured_s is not None:
        span = MEASURED.of(min(measured_s, load_s))
        return replace(span, most=min(span.most, load_s))
    if trial.load.has_own_end and service is not None:
        rate_rps, requests = trial.settings.get("rate_rps"), trial.load.requests
        typical_s = requests / float(rate_rps) if requests and rate_rps else service.typical_load_s
        span = GUESSED.of(min(typical_s, load_s))
        return replace(span, least=0.0, most=min(span.most, load_s))
    if trial.search is None:
        span = Span(least=load_s, typical=load_s, most=load_s)
        return span if harness_of(trial.settings) is None else span + HARNESS
    budget_s = trial.search.budget_s
    return Span(
        least=load_s + SEARCH_LEAST * budget_s, typical=load_s + SEARCH_TYPICAL * budget_s, most=load_s + budget_s
    )


def typical_start_s(deployment: Deployment, services: Mapping[str, Service]) -> float:
    """Return the typical time of a deployment's start and data."""
    if deployment.members:
        return sum(typical_start_s(member, services) for member in deployment.members)
    server = services[deployment.service].server if deployment.service in services else None
    return (WITHOUT_SERVER.least + WITHOUT_SERVER.most) / 2 if server is None else server.typical_start_s


def _start_of(deployment: Deployment, services: Mapping[str, Service], started_s: Mapping[str, float]) -> Span:
    if deployment.members:
        return _sum(_start_of(member, services, started_s) for member in deployment.members)
    if deployment.service in started_s:
        return STARTED.of(started_s[deployment.service])
    server = services[deployment.service].server if deployment.service in services else None
    if server is None:
        return WITHOUT_SERVER
    return GUESSED.of(server.typical_start_s)


def _sum(spans: Iterable[Span]) -> Span:
    return sum(spans, start=NOTHING)
