"""How much of a service a load needs: layouts judged by simulated trials, and the cheapest that meets objectives."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from seamark.errors import UserError
from seamark.model.plurals import counted
from seamark.model.service import Service
from seamark_simulate.config.model_folder import ModelFolder
from seamark_simulate.config.price_file import Prices
from seamark_simulate.fit.odds import FIXED, Judged, bottleneck, judge, largest_uncertainty
from seamark_simulate.fit.planned_load import Objective, PlannedLoad
from seamark_simulate.fit.service_model import ServiceModel, Source
from seamark_simulate.model.capacity_plan import (
    BreaksFirst,
    CapacityPlan,
    CapacityQuestion,
    LargestLoad,
    PlannedLayout,
)
from seamark_simulate.model.fitted_model import FittedModels, suspect_text
from seamark_simulate.trials.capacity_judged import judged_layout, largest_simulated
from seamark_simulate.trials.capacity_layouts import NOT_THIS_GPU, Choice, choices_of, models_named
from seamark_simulate.trials.capacity_load import CapacityAsked, load_of, objectives_of


def capacity_plan(
    asked: CapacityAsked,
    fitted: FittedModels,
    file: Path,
    *,
    recipes: Mapping[str, Service],
    folder: ModelFolder | None = None,
    prices: Prices | None = None,
) -> tuple[CapacityPlan, PlannedLoad, Choice | None]:
    """Judge every layout; return the plan, its load, and the choice of its answer, None without any. `recipes` are
    those of services by name.

    Raises UserError for what cannot be planned.
    """
    models = models_named(fitted, asked.servers, file)
    objectives = objectives_of(asked.slos, models)
    load = load_of(asked, models, objectives, file)
    choices = choices_of(models, asked, folder, recipes)
    for choice in choices:
        if prices is not None and choice.service is not None:
            prices.per_hour(choice.layout.gpu, 1)
    planned = [judged_layout(choice, asked, load, objectives, prices) for choice in choices]
    served = [option.layout for option in planned if option.service is not None]
    if served and all(layout.status == "outside_range" for layout in served):
        lines = [f"{file}: {layout.name}: {layout.why}" for layout in served]
        raise UserError(*(f"{line}. --extrapolate plans all the same, marked SUSPECT." for line in lines))
    layouts = tuple(option.layout for option in planned)
    answer = _cheapest(layouts, has_prices=prices is not None)
    best = planned[answer] if answer is not None else _best(planned)
    largest, broken = _limits(best, asked, load, objectives, answered=answer is not None)
    question = CapacityQuestion(
        rate_rps=load.rate_rps,
        slos=tuple(objective.name for objective in objectives),
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
    advice = next_trial(planned, load, objectives, question) if answer is None else None
    plan = CapacityPlan(
        planned_at=datetime.now(UTC).isoformat(timespec="seconds"),
        sentence=sentence_of(question, layouts, answer, advice),
        answer=answer,
        question=question,
        fit=str(file),
        machines=fitted.machines,
        layouts=layouts,
        largest_load=largest,
        breaks_first=broken,
        next_trial=advice,
        notes=(*_notes(layouts, answer, asked, prices), *_doubts(planned)),
    )
    return plan, load, planned[answer] if answer is not None else None


def _cheapest(layouts: Sequence[PlannedLayout], *, has_prices: bool) -> int | None:
    """Return the number of the cheapest layout that meets the objectives: by cost, else by GPUs, else by replicas; of
    equals the most probable."""
    meeting = [at for at, layout in enumerate(layouts) if layout.status == "meets"]

    def price(at: int) -> tuple[float, float]:
        layout = layouts[at]
        amount = layout.cost_per_hour if has_prices else layout.gpus or layout.replicas
        return float(amount or 0.0), -layout.probability

    return min(meeting, key=price, default=None)


def _best(planned: Sequence[Choice]) -> Choice | None:
    """Return the layout that comes nearest to the objectives."""
    missing = [option for option in planned if option.layout.chosen is not None]
    return max(missing, key=lambda option: option.layout.probability, default=None)


def _limits(
    best: Choice | None,
    asked: CapacityAsked,
    load: PlannedLoad,
    objectives: tuple[Objective, ...],
    *,
    answered: bool,
) -> tuple[LargestLoad | None, BreaksFirst | None]:
    """Return the largest load of a layout, and what breaks first: above that, else with one replica less, else at the
    planned load if that is missed. Without `extrapolate` only inside the fit."""
    if best is None or best.service is None or best.layout.replicas is None:
        return None, None
    service, count = best.service, best.layout.replicas
    if not answered:
        return None, bottleneck(service, load, count, objectives, asked.seed)
    largest = largest_simulated(service, load, count, objectives, seed=asked.seed, extrapolate=asked.extrapolate)
    tries: list[tuple[ServiceModel, PlannedLoad, int]] = []
    if largest is not None and largest.high_rps is not None:
        tries.append((service, replace(load, rate_rps=largest.high_rps), count))
    if count > 1 and (asked.extrapolate or not service.outside(load, count - 1)):
        tries.append((service, load, count - 1))
    limits = (bottleneck(*attempt, objectives, asked.seed) for attempt in tries)
    return largest, next((limit for limit in limits if limit is not None), None)


def _doubts(choices: Sequence[Choice]) -> list[str]:
    """Return what is doubtful of the trials that the planned models were fitted to."""
    models = {
        choice.model.name: choice.model
        for choice in choices
        if choice.model is not None and choice.service is not None
    }
    doubts = ((name, suspect_text(model.sources)) for name, model in models.items())
    return [f"Fit of {name}: {text}." for name, text in doubts if text]


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
    if chosen is not None and chosen.workers_per_replica > 1:
        queue = "" if chosen.replicas == 1 else " All servers are planned with one common queue, the best case."
        notes.append(
            f"A server of {chosen.name} serves {chosen.workers_per_replica} requests at once, as its fit says.{queue}"
        )
    if prices is None and len({layout.gpu for layout in layouts if layout.status == "meets"}) > 1:
        notes.append("Which kind of GPU is cheaper depends on prices, which --price gives.")
    if chosen is not None and chosen.kv_blocks_from is not None and chosen.kv_blocks_from.startswith("enough"):
        notes.append(
            "KV blocks are no limit here: the server of the fit did not count them, and no --model was given."
        )
    return tuple(notes)


MANY_REPLICAS, MANY_TIMES = 64, 4
"""Replicas at which no request waits: the first number, or that many times the most that were judged."""
HALF = 0.5
"""A load on so many replicas that misses in this share of its trials misses by its service time, and a longer load
only makes that surer."""
CLOSE = 0.02
"""A layout whose probability is above this may meet the objectives, for all that is known."""


def sentence_of(
    question: CapacityQuestion, layouts: Sequence[PlannedLayout], answer: int | None, advice: str | None
) -> str:
    """Return the answer: the cheapest layout, or that none is known and which trial would tell most."""
    goal = f"{' and '.join(question.slos)} at {question.rate_rps:g} requests/s"
    if answer is None:
        best = max((layout.chosen.probability for layout in layouts if layout.chosen is not None), default=None)
        nearest = "" if best is None else f" (the best has {best:.2f})"
        text = f"No layout is known to meet {goal} with probability {question.confidence:g}{nearest}."
        return " ".join(filter(None, (text, *_doubtful(layouts), advice)))
    chosen = layouts[answer]
    assert chosen.chosen is not None
    odds = chosen.chosen
    cost = ""
    if chosen.cost_per_hour is not None:
        cost = f", for {f'{question.cost_unit} ' if question.cost_unit else ''}{chosen.cost_per_hour:,.2f} an hour"
    meets = "meets" if chosen.replicas == 1 else "meet"
    only = [layout for layout in layouts if layout.status == "meets"]
    rank = "" if len(only) == 1 else " (the cheapest)" if question.cost_unit is not None else " (the fewest)"
    text = (
        f"{amount_of(chosen)}{rank} {meets} {goal} with probability {odds.probability:.2f}"
        f" ({odds.probability_low:.2f} to {odds.probability_high:.2f} over {counted(odds.trials, 'simulated trial')})"
        f"{cost}."
    )
    return " ".join((text, *_doubtful([chosen])))


def _doubtful(layouts: Sequence[PlannedLayout]) -> list[str]:
    """Return what an answer from some layouts is SUSPECT of, as a sentence."""
    codes = dict.fromkeys(code for layout in layouts for code in (layout.suspect, *layout.sources_suspect) if code)
    return [f"SUSPECT: {', '.join(codes)}."] if codes else []


def amount_of(layout: PlannedLayout) -> str:
    """Return the amount of a layout: `3 servers of known`, `4 a100-40 (2 replicas of tensor parallel 2)`."""
    count = layout.replicas or 0
    if layout.gpu is None:
        return f"{counted(count, 'server')} of {layout.name}"
    shape = [f"{name} parallel {size}" for name, size in shape_of(layout) if size > 1]
    return f"{layout.gpus} {layout.gpu} ({counted(count, 'replica')}{' of ' + ', '.join(shape) if shape else ''})"


def shape_of(layout: PlannedLayout) -> tuple[tuple[str, int], ...]:
    """Return the parallelism of a replica by name."""
    return ("tensor", layout.tensor_parallel), ("pipeline", layout.pipeline_parallel)


def next_trial(
    planned: Sequence[Choice], load: PlannedLoad, objectives: Sequence[Objective], question: CapacityQuestion
) -> str:
    """Return which trial would tell most: one outside of the fit if more replicas there may do, one against the
    largest uncertainty, else one of a GPU or load without any."""
    known = [choice for choice in planned if choice.layout.chosen is not None]
    best = sorted(known, key=lambda choice: choice.layout.probability)[-1] if known else None
    if best is not None and best.layout.chosen is not None and best.service is not None:
        service, layout, count = best.service, best.layout, best.layout.chosen.replicas

        def odds(replicas: int, fixed: frozenset[Source] = frozenset()) -> Judged:
            counted = {"trials": question.trials, "seed": question.seed}
            return judge(service, load, replicas, objectives, fixed=fixed, **counted)

        many = max(MANY_REPLICAS, MANY_TIMES * max(judged.replicas for judged in layout.judged))
        alone = odds(many, FIXED).probability
        if alone <= HALF:
            return (
                f"No number of replicas helps: with {many} the queue is gone, and the service time alone misses it"
                f" (probability {alone:.2f}). Another limit would, or a faster server."
            )
        last = max(judged.replicas for judged in layout.judged)
        most = question.most_gpus // max(1, layout.gpus_per_replica)
        if most > last and service.outside(load, last + 1) and odds(most).probability >= question.confidence:
            return (
                f"{last + 1} or more lie outside of the fit, and may do: the trial that would tell most has"
                f" {load.rate_rps / (last + 1):.4g} requests/s on one server of {layout.name}."
            )
        if layout.probability > CLOSE:
            source = largest_uncertainty(lambda fixed: odds(count, fixed))
            return _against(source, layout, load, more_help=alone >= question.confidence)
    unfitted = [choice.layout for choice in planned if choice.layout.status == "not_fitted"]
    if unfitted:
        first = min(unfitted, key=lambda candidate: (candidate.why != NOT_THIS_GPU, candidate.gpus_per_replica))
        shape = ", ".join(f"{name}_parallel: {size}" for name, size in shape_of(first) if size > 1)
        return (
            f"The trial that would tell most is one on {first.gpu or first.name}{f' with {shape}' if shape else ''}:"
            f" {first.why}."
        )
    outside = [choice.layout for choice in planned if choice.layout.status == "outside_range"]
    if outside:
        return f"The trial that would tell most has such a load: {outside[0].name}: {outside[0].why}."
    return "No trial would help: every layout misses it by far. Allow more GPUs (--most-gpus), or another limit."


def _against(source: Source, layout: PlannedLayout, load: PlannedLoad, *, more_help: bool) -> str:
    """Return a trial that makes the largest uncertainty smaller; `more_help`: more replicas meet the objectives."""
    count = layout.replicas or 1
    at = f"{load.rate_rps / count:.4g} requests/s on one server of {layout.name}"
    if source == "repeats":
        return (
            f"What repeats differ by is the largest uncertainty: the trials that would tell most are repetitions at"
            f" {at}, on a quiet machine."
        )
    if source == "parameters":
        return (
            f"The parameters of the model are the largest uncertainty: the trials that would tell most are further"
            f" ones at {at}."
        )
    return (
        f"Arrivals and service times alone decide it, as {count} are at the limit: no trial would tell more, and"
        f" {'a replica more or ' if more_help else ''}a longer load (--duration-s) would."
    )
