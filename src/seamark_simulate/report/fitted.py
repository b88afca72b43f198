"""Models of `bench fit` as text."""

from collections import Counter

from seamark.model.plurals import counted, in_percent
from seamark.report.numbers import aligned, number, with_unit
from seamark_simulate.model.fitted_model import FittedModels, Model, ReplicaModel, StationModel, suspect_text

HEADS = ("held out", "figure", "trials", "median error", "largest", "in spreads", "in 90 % interval")
PLACES = {"inside": "among the loads", "beyond": "outside of the loads", "overload": "more than it can serve"}
SHOWN = 5
INPUTS = {
    "rate_rps": "requests a second",
    "concurrency": "clients",
    "prompt_tokens": "tokens of a prompt",
    "reply_tokens": "of a reply",
}


def fitted_lines(found: FittedModels) -> list[str]:
    """Return a paragraph for each model, with its scores as a table, then what was left out."""
    lines: list[str] = []
    for model in found.models:
        lines += [*model_lines(model), ""]
    for start in found.starts:
        spread = "" if start.std_s is None else f" (standard deviation {number(start.std_s)} s)"
        lines.append(
            f"Start of {start.name}: {number(start.mean_s)} s over {counted(start.starts, 'start')}{spread}."
        )
    for why, count in Counter(str(trial.why) for trial in found.left_out).items():
        lines.append(f"Left out: {counted(count, 'trial')}: {why}.")
    lines += [f"Not fitted: {why}" for why in found.not_fitted]
    return lines


def model_lines(model: Model) -> list[str]:
    """Return the paragraph of one model, with what contradicts it and its scores."""
    lines = _station_lines(model) if isinstance(model, StationModel) else _replica_lines(model)
    return [*lines, *_judged_lines(model)]


def _station_lines(model: StationModel) -> list[str]:
    times, (low, high) = model.parameters, model.loads
    lines = [
        f"{model.name}: {counted(model.servers, 'server')}, one queue; {model.family} service times of"
        f" {with_unit(times.mean_s * 1e3, 'ms')} (variation {times.variation:.2f}),"
        f" {with_unit(times.overhead_s * 1e3, 'ms')} outside of the server",
        f"  from {counted(len(model.sources), 'trial')} with {model.requests:,} requests at utilisation {low:.2f} to"
        f" {high:.2f}; repeats differ by {in_percent(model.between, 1)}",
    ]
    if model.out_of_order:
        lines.append(f"  {counted(model.out_of_order, 'request')} ended before one that came earlier")
    return lines


def _replica_lines(model: ReplicaModel) -> list[str]:
    costs = model.parameters
    ranges = ", ".join(
        f"{number(span.low)} to {number(span.high)} {INPUTS[name]}"
        if span.low < span.high
        else f"{number(span.low)} {INPUTS[name]}"
        for name, span in model.ranges.items()
    )
    return [
        f"{model.name}: a replica with steps of {with_unit(costs.base_s * 1e3, 'ms')}, and"
        f" {number(costs.prompt_token_s * 1e6)} µs for each token of a prompt,"
        f" {number(costs.sequence_s * 1e6)} µs for each reply that goes on,"
        f" {number(costs.kv_token_s * 1e6)} µs for each token held;"
        f" {with_unit(costs.overhead_s * 1e3, 'ms')} outside of it",
        f"  from {counted(len(model.sources), 'trial')} with {model.requests:,} requests: {ranges};"
        f" trials differ from it by {in_percent(model.between, 1)}",
    ]


def _judged_lines(model: Model) -> list[str]:
    """Return what is doubtful of a model's trials, what contradicts it, and its scores."""
    lines = [f"  {text}" for text in (suspect_text(model.sources),) if text]
    if model.contradictions:
        lines.append("  UNFIT FOR PLANS: its own trials contradict it.")
        lines += [f"  - {text}" for text in model.contradictions[:SHOWN]]
        more = len(model.contradictions) - SHOWN
        lines += [f"  - and {more} more"] if more > 0 else []
    if model.why_no_score:
        return [*lines, f"  No score: {model.why_no_score}."]
    rows = [HEADS]
    for score in model.scores:
        spreads = "-" if score.in_spreads is None else number(score.in_spreads)
        median, largest = (in_percent(error, 1) for error in (score.median_error, score.largest_error))
        errors = (median, largest, spreads, in_percent(score.inside_interval))
        rows.append(
            (PLACES[score.place], score.figure.removesuffix("_rps").removesuffix("_s"), str(score.trials), *errors)
        )
    return [*lines, *(f"  {line}" for line in aligned(rows, left=range(len(HEADS))))]
