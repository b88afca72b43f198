"""What a capacity plan is asked for, and the load and objectives that follow from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seamark.errors import UserError
from seamark.model.scenario import Slo
from seamark_simulate.fit.planned_load import Objective, PlannedLoad, duration_for, objective_of
from seamark_simulate.fit.service_model import REPLICA_TIMES, STATION_TIMES
from seamark_simulate.model.fitted_model import Model, ReplicaModel, Router

USUAL_S = 60.0
MOST_REQUESTS = 2_000_000


@dataclass(frozen=True, kw_only=True)
class CapacityAsked:
    """What a plan is asked for. None: the usual, or that of the fit. `gpus` empty: the servers of the fit."""

    rate_rps: float
    slos: tuple[Slo, ...]
    gpus: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    most_gpus: int = 16
    confidence: float = 0.95
    duration_s: float | None = None
    warmup_s: float = 5.0
    prompt_tokens: int | None = None
    reply_tokens: int | None = None
    max_model_len: int | None = None
    router: Router | None = None
    extrapolate: bool = False
    trials: int = 200
    seed: int = 1


def objectives_of(slos: Sequence[Slo], models: Sequence[Model]) -> tuple[Objective, ...]:
    """Return objectives on times that the models know. Raises UserError with every other one."""
    times = REPLICA_TIMES if isinstance(models[0], ReplicaModel) else STATION_TIMES
    objectives, mistakes = [], []
    for slo in slos:
        try:
            objectives.append(objective_of(slo, times))
        except ValueError as error:
            mistakes.append(f"--slo: {error}.")
    if mistakes:
        raise UserError(*mistakes)
    return tuple(objectives)


def load_of(
    asked: CapacityAsked, models: Sequence[Model], objectives: tuple[Objective, ...], file: Path
) -> PlannedLoad:
    """Return the load of a plan. Raises UserError for lengths that are not known, and a load that is too short."""
    needed_s = duration_for(objectives, asked.rate_rps, 0.0)
    if asked.duration_s is not None and asked.duration_s < needed_s:
        most = max(objectives, key=lambda objective: objective.requests_needed)
        raise UserError(
            f"--duration-s {asked.duration_s:g}: {most.name} needs {most.requests_needed:,} requests in a trial, and"
            f" more as their number varies. Give {needed_s:g} or more."
        )
    lengths = {
        "prompt_tokens": _length("prompt_tokens", asked.prompt_tokens, models, file),
        "reply_tokens": _length("reply_tokens", asked.reply_tokens, models, file),
    }
    if lengths["reply_tokens"] == 1 and any(objective.of == "tpot" for objective in objectives):
        raise UserError("--slo: a reply of one token has no time per further token. Remove the objective on tpot.")
    duration_s = asked.duration_s or max(USUAL_S, needed_s)
    load = PlannedLoad(rate_rps=asked.rate_rps, duration_s=duration_s, warmup_s=asked.warmup_s, **lengths)
    if load.rate_rps * load.until_s > MOST_REQUESTS:
        raise UserError(
            f"--rate {asked.rate_rps:g}: {load.rate_rps * load.until_s:,.0f} requests in a trial of"
            f" {load.until_s:g} s are more than {MOST_REQUESTS:,}. Give a shorter --duration-s, or less of the load."
        )
    return load


def _length(name: str, given: int | None, models: Sequence[Model], file: Path) -> int:
    option = f"--{name.replace('_', '-')}"
    replicas = [model for model in models if isinstance(model, ReplicaModel)]
    if not replicas:
        if given is not None:
            raise UserError(f"{option}: a station knows no tokens; its requests are those of its trials. Remove it.")
        return 0
    if given is not None:
        return given
    ranges = [replica.ranges[name] for replica in replicas if name in replica.ranges]
    values = {round(value) for span in ranges for value in (span.low, span.high)}
    if not values:
        raise UserError(f"{option}: missing, and {file} has no trials. Give one.")
    if len(values) != 1:
        low, high = (f"{end:g}" for end in (min(values, default=0), max(values, default=0)))
        raise UserError(f"{option}: missing, and {file} has trials of several lengths, {low} to {high}. Give one.")
    return values.pop()
