"""How much of a service a load needs: layouts judged by simulated trials, and the cheapest that meets objectives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from seamark.config.model_folder import ModelFolder
from seamark.config.price_file import Prices
from seamark.errors import UserError
from seamark.fit.bottleneck import Bottleneck, bottleneck
from seamark.fit.odds import Judged, fewest_replicas, judge
from seamark.fit.planned_load import Objective, PlannedLoad, duration_for, objective_of
from seamark.fit.prediction import CONFIDENCE
from seamark.fit.service_model import REPLICA_TIMES, STATION_TIMES, ServiceModel
from seamark.model.results.capacity_plan import (
    BreaksFirst,
    CapacityPlan,
    CapacityQuestion,
    JudgedReplicas,
    LargestLoad,
    PlannedLayout,
)
from seamark.model.results.fitted_model import FittedModels, ReplicaModel
from seamark.model.scenario import Slo
from seamark.simulation.station import Router
from seamark.trials.simulation.capacity_answer import next_trial, sentence_of
from seamark.trials.simulation.capacity_layouts import Choice, Model, choices_of, models_named
from seamark.trials.simulation.simulated_search import largest_simulated

EXTRAPOLATED = "extrapolated"
USUAL_S = 60.0
LARGEST_LOAD_S = 1e5
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


@dataclass(frozen=True, kw_only=True)
class PlannedService:
    """A judged choice with what a scenario needs to measure it."""

    choice: Choice
    layout: PlannedLayout
    judged: tuple[Judged, ...] = ()


def capacity_plan(
    asked: CapacityAsked,
    fitted: FittedModels,
    file: Path,
    *,
    folder: ModelFolder | None = None,
    prices: Prices | None = None,
) -> tuple[CapacityPlan, PlannedLoad, PlannedService | None]:
    """Judge every layout; return the plan, its load, and the service of its answer, None without any.

    Raises UserError for what cannot be planned.
    """
    models = models_named(fitted, asked.servers, file)
    objectives = _objectives(asked.slos, models)
    load = _load(asked, models, objectives, file)
    choices = choices_of(
        models,
        folder=folder,
        gpus=asked.gpus,
        most_gpus=asked.most_gpus,
        router=asked.router,
        max_model_len=asked.max_model_len,
    )
    for each in choices:
        if prices is not None and each.service is not None:
            prices.per_hour(each.layout.gpu, 1)
    planned = [_judged(each, asked, load, objectives, prices) for each in choices]
    if all(each.layout.status == "outside_range" for each in planned if each.choice.service is not None) and any(
        each.choice.service is not None for each in planned
    ):
        lines = [f"{file}: {each.layout.name}: {each.layout.why}" for each in planned if each.choice.service]
        raise UserError(*(f"{line}. --extrapolate plans all the same, marked SUSPECT." for line in lines))
    layouts = tuple(each.layout for each in planned)
    answer = _cheapest(layouts, has_prices=prices is not None)
    best = planned[answer] if answer is not None else _best(planned)
    largest, broken = _limits(best, asked, load, objectives, answered=answer is not None)
    question = CapacityQuestion(
        rate_rps=load.rate_rps,
        slos=tuple(each.name for each in objectives),
        confidence=asked.confidence,
        duration_s=load.duration_s,
        warmup_s=load.warmup_s,
        prompt_tokens=load.prompt_tokens or None,
        reply_tokens=load.reply_tokens or None,
        router=asked.router,
        most_gpus=asked.most_gpus,
        trials=asked.trials,
        seed=asked.seed,
        gpus=asked.gpus,
        model=str(folder.path) if folder is not None else None,
        extrapolate=asked.extrapolate,
        cost_unit=None if prices is None else prices.currency,
    )
    advice = None
    if answer is None:
        advice = next_trial(
            [(each.choice, each.layout) for each in planned], asked.gpus, load, objectives, asked.trials, asked.seed
        )
    plan = CapacityPlan(
        planned_at=datetime.now(UTC).isoformat(timespec="seconds"),
        sentence=sentence_of(question, layouts, answer, advice),
        answer=answer,
        question=question,
        fit=str(file),
        machines=fitted.machines,
        layouts=layouts,
        largest_load=largest,
        breaks_first=None if broken is None else BreaksFirst(**vars(broken)),
        next_trial=advice,
        notes=_notes(layouts, answer, asked, prices),
    )
    return plan, load, planned[answer] if answer is not None else None


def _objectives(slos: Sequence[Slo], models: Sequence[Model]) -> tuple[Objective, ...]:
    times = REPLICA_TIMES if isinstance(models[0], ReplicaModel) else STATION_TIMES
    found, mistakes = [], []
    for slo in slos:
        try:
            found.append(objective_of(slo, times))
        except ValueError as error:
            mistakes.append(f"--slo: {error}.")
    if mistakes:
        raise UserError(*mistakes)
    return tuple(found)


def _load(
    asked: CapacityAsked, models: Sequence[Model], objectives: tuple[Objective, ...], file: Path
) -> PlannedLoad:
    """Return the load of a plan. Raises UserError for lengths that are not known, and a load that is too short."""
    needed_s = duration_for(objectives, asked.rate_rps, 0.0)
    if asked.duration_s is not None and asked.duration_s < needed_s:
        most = max(objectives, key=lambda each: each.requests_needed)
        raise UserError(
            f"--duration-s {asked.duration_s:g}: {most.name} needs {most.requests_needed:,} requests in a trial, and"
            f" more as their number varies. Give {needed_s:g} or more."
        )
    lengths = {
        "prompt_tokens": _length("prompt_tokens", asked.prompt_tokens, models, file),
        "reply_tokens": _length("reply_tokens", asked.reply_tokens, models, file),
    }
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
    replicas = [each for each in models if isinstance(each, ReplicaModel)]
    if not replicas:
        if given is not None:
            raise UserError(f"{option}: a station knows no tokens; its requests are those of its trials. Remove it.")
        return 0
    if given is not None:
        return given
    ranges = [each.ranges[name] for each in replicas if name in each.ranges]
    values = {round(value) for each in ranges for value in (each.low, each.high)}
    if len(values) != 1:
        low, high = (f"{end:g}" for end in (min(values, default=0), max(values, default=0)))
        raise UserError(f"{option}: missing, and {file} has trials of several lengths, {low} to {high}. Give one.")
    return values.pop()


def _judged(
    choice: Choice,
    asked: CapacityAsked,
    load: PlannedLoad,
    objectives: tuple[Objective, ...],
    prices: Prices | None,
) -> PlannedService:
    """Return a choice with the fewest replicas that meet the objectives, else with the best number of them."""
    service, layout = choice.service, choice.layout
    if service is None:
        return PlannedService(choice=choice, layout=layout)
    counts = range(1, asked.most_gpus // max(1, layout.gpus_per_replica) + 1)
    outside = {count: service.outside(load, count) for count in counts}
    allowed = [count for count in counts if asked.extrapolate or not outside[count]]
    if not allowed:
        ends = "; ".join(f"with {count}, {', '.join(outside[count])}" for count in dict.fromkeys((1, counts[-1])))
        why = f"its load lies outside of the fit with any number up to {counts[-1]}: {ends}"
        return PlannedService(choice=choice, layout=replace(layout, status="outside_range", why=why))
    chosen, every = fewest_replicas(
        allowed,
        lambda count: judge(
            service, load, count, objectives, trials=asked.trials, seed=asked.seed, needed=asked.confidence
        ),
        asked.confidence,
    )
    best = chosen or max(every, key=lambda each: (each.odds.probability, -each.replicas))
    records = {each.replicas: _record(each, outside[each.replicas]) for each in every}
    gpus = best.replicas * layout.gpus_per_replica
    fewer = best.replicas - 1
    unknown = fewer in outside and fewer not in allowed and chosen is not None
    return PlannedService(
        choice=choice,
        judged=every,
        layout=replace(
            layout,
            status="misses" if chosen is None else "meets",
            why=None if chosen is not None else _why_missed(best, objectives, counts[-1], allowed[-1]),
            replicas=best.replicas,
            gpus=gpus if layout.gpu is not None else None,
            rate_per_replica_rps=load.rate_rps / best.replicas,
            chosen=records[best.replicas],
            judged=tuple(records.values()),
            cost_per_hour=None if prices is None else prices.per_hour(layout.gpu, gpus or best.replicas),
            figures=_figures(best),
            suspect=records[best.replicas].suspect,
            fewer_unknown=f"{fewer}: {'; '.join(outside[fewer])}" if unknown else None,
        ),
    )


def _record(judged: Judged, outside: tuple[str, ...]) -> JudgedReplicas:
    low, high = judged.odds.interval()
    return JudgedReplicas(
        replicas=judged.replicas,
        met=judged.odds.met,
        trials=judged.odds.trials,
        probability=judged.odds.probability,
        probability_low=low,
        probability_high=high,
        suspect=EXTRAPOLATED if outside else None,
        outside=outside,
    )


def _why_missed(best: Judged, objectives: Sequence[Objective], most: int, last: int) -> str:
    values = {each.name: float(np.median(best.values_s[each.name])) for each in objectives}
    worst = max(objectives, key=lambda each: values[each.name] / each.limit_s)
    limit = f"up to {most}" if last == most else f"up to {last}, of which the fit knows"
    return f"no number {limit}: with {best.replicas}, {worst.name} has a median of {values[worst.name]:.3g} s"


def _figures(judged: Judged) -> Mapping[str, tuple[float, ...]]:
    tail = (1 - CONFIDENCE) / 2
    return {
        name: tuple(np.quantile(values, (0.5, tail, 1 - tail)).tolist()) for name, values in judged.values_s.items()
    }


def _cheapest(layouts: Sequence[PlannedLayout], *, has_prices: bool) -> int | None:
    """Return the number of the cheapest layout that meets the objectives: by cost, else by GPUs, else by replicas; of
    equals the most probable."""
    meeting = [at for at, each in enumerate(layouts) if each.status == "meets"]

    def price(at: int) -> tuple[float, float]:
        each = layouts[at]
        amount = each.cost_per_hour if has_prices else each.gpus or each.replicas
        return float(amount or 0.0), -(each.chosen.probability if each.chosen is not None else 0.0)

    return min(meeting, key=price, default=None)


def _best(planned: Sequence[PlannedService]) -> PlannedService | None:
    """Return the layout that comes nearest to the objectives."""
    missing = [each for each in planned if each.layout.chosen is not None]
    return max(
        missing,
        key=lambda each: each.layout.chosen.probability if each.layout.chosen is not None else 0.0,
        default=None,
    )


def _limits(
    best: PlannedService | None,
    asked: CapacityAsked,
    load: PlannedLoad,
    objectives: tuple[Objective, ...],
    *,
    answered: bool,
) -> tuple[LargestLoad | None, Bottleneck | None]:
    """Return the largest load of a layout, and what breaks first: above that, else with one replica less, else at the
    planned load if that is missed. Without `extrapolate` only inside the fit."""
    if best is None or best.choice.service is None or best.layout.replicas is None:
        return None, None
    service, count = best.choice.service, best.layout.replicas
    if not answered:
        return None, bottleneck(service, load, count, objectives, asked.seed)
    largest = largest_simulated(service, load, count, objectives, seed=asked.seed, extrapolate=asked.extrapolate)
    tries: list[tuple[ServiceModel, PlannedLoad, int]] = []
    if largest is not None and largest.high_rps is not None:
        tries.append((service, replace(load, rate_rps=largest.high_rps), count))
    if count > 1 and (asked.extrapolate or not service.outside(load, count - 1)):
        tries.append((service, load, count - 1))
    found = (bottleneck(*each, objectives, asked.seed) for each in tries)
    return largest, next((each for each in found if each is not None), None)


def _notes(
    layouts: Sequence[PlannedLayout], answer: int | None, asked: CapacityAsked, prices: Prices | None
) -> tuple[str, ...]:
    notes = []
    chosen = layouts[answer] if answer is not None else None
    if chosen is not None and chosen.fewer_unknown is not None:
        notes.append(f"Fewer may do, and were not judged, as they lie outside of the fit: {chosen.fewer_unknown}.")
    if chosen is not None and chosen.chosen is not None:
        low, high = chosen.chosen.probability_low, chosen.chosen.probability_high
        if low < asked.confidence <= high:
            notes.append(
                f"The probability is close to {asked.confidence:g}: more simulated trials (--trials) may change the"
                " answer."
            )
    if prices is None and len({each.gpu for each in layouts if each.status == "meets"}) > 1:
        notes.append("Which kind of GPU is cheaper depends on prices, which --price gives.")
    if chosen is not None and chosen.kv_blocks_from is not None and chosen.kv_blocks_from.startswith("enough"):
        notes.append(
            "KV blocks are no limit here: the server of the fit did not count them, and no --model was given."
        )
    return tuple(notes)
