"""Plans of `bench capacity`, and predictions beside measurements, as text."""

from collections.abc import Sequence

from seamark.model.plurals import counted, in_percent
from seamark.model.results.capacity_plan import CapacityPlan, JudgedReplicas, PlannedLayout
from seamark.model.results.prediction_score import PredictionScore, ScoredFigure, ScoredLoad
from seamark.report.numbers import number, unit_of

STATUS = {
    "meets": "meets",
    "misses": "misses",
    "does_not_fit": "does not fit",
    "not_fitted": "not known",
    "outside_range": "not known",
}
HEADS = ("layout", "replicas", "GPUs", "requests/s each", "probability", "trials", "an hour", "")
MEASURED = ("measured", "inside")
SHOWN = 4


def plan_lines(plan: CapacityPlan) -> list[str]:
    """Return the answer, what it rests on, and a table of the layouts."""
    question = plan.question
    lines = [plan.sentence, ""]
    if (chosen := plan.chosen) is not None:
        for name, (value, low, high) in chosen.figures.items():
            lines.append(f"  {name}: {number(value)} s in a trial ({number(low)} to {number(high)})")
    if (largest := plan.largest_load) is not None and largest.found_rps is not None:
        suspect = " SUSPECT: extrapolated." if largest.suspect else ""
        end = "the end of the search" if question.extrapolate else "the end of the search or of the fit"
        ends = f"{number(largest.high_rps)} miss them" if largest.high_rps is not None else end
        lines.append(
            f"  Largest load that meets the objectives: {number(largest.found_rps)} requests/s ({ends}){suspect}"
        )
    if (broken := plan.breaks_first) is not None:
        only = broken.part == "service time"
        without = f", without {'a queue' if only else 'it'} {number(broken.without_s)} s"
        without = "" if only and number(broken.without_s) == number(broken.value_s) else without
        fewer = chosen is not None and broken.replicas is not None and broken.replicas < (chosen.replicas or 0)
        less = f"With one server less, {broken.replicas}, at" if fewer else "At"
        if chosen is None and broken.replicas is not None:
            less = f"With {counted(broken.replicas, 'server')}, at"
        lines.append(
            f"  Breaks first: {broken.part}. {less} {number(broken.rate_rps)} requests/s {broken.objective} is missed"
            f" with {number(broken.value_s)} s{without}"
        )
    elif chosen is not None:
        lines.append("  Breaks first: nothing, as far as the fit reaches")
    if lines[-1]:
        lines.append("")
    lines += [*_table(plan), *(f"Note: {note}" for note in plan.notes)]
    lengths = (
        f", prompts of {question.prompt_tokens:,} and replies of {question.reply_tokens:,} tokens"
        if question.prompt_tokens and question.reply_tokens
        else ""
    )
    machines = f", measured on {', '.join(plan.machines)}" if plan.machines else ""
    lines.append(
        f"Simulated, not measured: Poisson arrivals{lengths}, {question.duration_s:g} s a trial, by the models of"
        f" {plan.fit}{machines}."
    )
    return lines


def _table(plan: CapacityPlan) -> list[str]:
    known = [each for each in plan.layouts if each.chosen is not None]
    rows = [_row(plan, layout, each) for layout in known for each in layout.judged]
    lines = _aligned([HEADS, *rows]) if rows else []
    for text, names in _others(plan.layouts).items():
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        lines.append(f"{', '.join(names[:SHOWN])}{more}: {text}")
    return lines


def _row(plan: CapacityPlan, layout: PlannedLayout, judged: JudgedReplicas) -> tuple[str, ...]:
    is_answer = layout is plan.chosen and judged.replicas == layout.replicas
    cost = layout.cost_per_hour if judged.replicas == layout.replicas else None
    low, high = judged.probability_low, judged.probability_high
    needed = plan.question.confidence
    words = "the answer" if is_answer else "meets" if judged.probability >= needed else "misses"
    return (
        _named(layout),
        str(judged.replicas),
        str(judged.replicas * layout.gpus_per_replica) if layout.gpu is not None else "-",
        number(plan.question.rate_rps / judged.replicas),
        f"{judged.probability:.2f} ({low:.2f} to {high:.2f})",
        str(judged.trials),
        "-" if cost is None else f"{cost:,.2f}",
        words + (f"; SUSPECT extrapolated: {'; '.join(judged.outside)}" if judged.suspect is not None else ""),
    )


def _named(layout: PlannedLayout) -> str:
    shape = f" tp{layout.tensor_parallel}" if layout.gpu is not None else ""
    stages = f" pp{layout.pipeline_parallel}" if layout.pipeline_parallel > 1 else ""
    return f"{layout.name}{shape}{stages}"


def _others(layouts: Sequence[PlannedLayout]) -> dict[str, list[str]]:
    """Return the layouts that were not judged, by the reason; those without enough memory by its class."""
    found: dict[str, list[str]] = {}
    for each in layouts:
        if each.chosen is not None:
            if each.status == "misses" and each.why:
                found.setdefault(each.why, []).append(_named(each))
            continue
        text = f"{STATUS[each.status]}: {each.why}"
        found.setdefault(text, []).append(_named(each))
    return found


def score_lines(score: PredictionScore) -> list[str]:
    """Return how many predictions came true, then each figure at each load."""
    return [score_sentence(score), "", *_aligned(figure_rows(score)), "", *map(verdict_line, score.loads)]


def score_sentence(score: PredictionScore) -> str:
    """Return how many figures lie in their intervals, and at how many loads the verdict was right."""
    suspect, codes = sum(load.doubtful for load in score.loads), (code for load in score.loads for code in load.codes)
    doubts = f" {counted(suspect, 'trial')} SUSPECT: {', '.join(dict.fromkeys(codes))}." if suspect else ""
    share = f" ({in_percent(score.inside / score.compared)})" if score.compared else ""
    return (
        f"{score.inside} of {score.compared} measured figures lie in their {in_percent(score.interval)}"
        f" intervals{share}; the predicted verdict on the objectives was right at {score.right} of"
        f" {counted(score.judged, 'load')}.{doubts}"
    )


def figure_rows(score: PredictionScore) -> list[tuple[str, ...]]:
    """Return the head and a row for each figure at each load."""
    interval = f"{in_percent(score.interval)} interval"
    rows: list[tuple[str, ...]] = [("requests/s", "figure", "predicted", interval, *MEASURED)]
    for load in score.loads:
        for at, each in enumerate(load.figures):
            name, scale = _unit(each)
            shown = " ".join(number(value * scale) for value in sorted(each.measured)) or "-"
            limits = f"{number(each.low * scale)} to {number(each.high * scale)}"
            inside = f"{each.inside} of {len(each.measured)}"
            rate = f"{load.rate_rps:g}" if not at else ""
            rows.append((rate, name, number(each.value * scale), limits, shown, inside))
    return rows


def _unit(scored: ScoredFigure) -> tuple[str, float]:
    """Return a figure's name with its unit in a table, and by what its values are multiplied."""
    if scored.figure == "requests_per_s":
        return "requests/s", 1.0
    unit, factor = unit_of([1e3 * value for value in (scored.value, *scored.measured)])
    return f"{scored.figure.removesuffix('_s').replace('_', ' ')}, {unit}", 1e3 * factor


def verdict_line(load: ScoredLoad) -> str:
    """Return the predicted and the measured verdict at one load."""
    suspect = " SUSPECT extrapolated." if load.suspect else ""
    verdict = "not measured" if load.right is None and not load.judged else "undecided"
    if load.right is not None:
        verdict = "right" if load.right else "wrong"
    doubts = f" {counted(load.doubtful, 'trial')} SUSPECT: {', '.join(load.codes)}." if load.doubtful else ""
    missing = f" {counted(load.unmeasured, 'trial')} left out: INVALID or without figures." if load.unmeasured else ""
    return (
        f"{load.rate_rps:g} requests/s: predicted probability {load.predicted_met:.2f} that a trial meets the"
        f" objectives, {load.met} of {counted(load.judged, 'trial')} did: {verdict}.{suspect}{doubts}{missing}"
    )


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
