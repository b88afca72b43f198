"""The answer of a capacity plan in a sentence, and the trial that would tell most where none is known."""

from collections.abc import Sequence

from seamark.model.plurals import counted
from seamark_simulate.fit.odds import FIXED, Judged, judge, largest_uncertainty
from seamark_simulate.fit.planned_load import Objective, PlannedLoad
from seamark_simulate.fit.service_model import Source
from seamark_simulate.model.capacity_plan import CapacityQuestion, PlannedLayout
from seamark_simulate.trials.capacity_layouts import NOT_THIS_GPU, Choice

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
        return " ".join(filter(None, (text, *_doubts(layouts), advice)))
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
    return " ".join((text, *_doubts([chosen])))


def _doubts(layouts: Sequence[PlannedLayout]) -> list[str]:
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
