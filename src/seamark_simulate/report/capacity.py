"""Plans of `bench capacity` as text."""

from collections.abc import Sequence

from seamark.model.plurals import counted
from seamark.report.numbers import aligned, number
from seamark_simulate.model.capacity_plan import CapacityPlan, JudgedReplicas, PlannedLayout

STATUS = {
    "meets": "meets",
    "misses": "misses",
    "does_not_fit": "does not fit",
    "not_fitted": "not known",
    "outside_range": "not known",
}
HEADS = ("layout", "replicas", "GPUs", "requests/s each", "probability", "trials", "an hour", "")
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
    known = [layout for layout in plan.layouts if layout.chosen is not None]
    rows = [_row(plan, layout, record) for layout in known for record in layout.judged]
    lines = aligned([HEADS, *rows], left=range(len(HEADS))) if rows else []
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
    names: dict[str, list[str]] = {}
    for layout in layouts:
        if layout.chosen is not None:
            if layout.status == "misses" and layout.why:
                names.setdefault(layout.why, []).append(_named(layout))
            continue
        text = f"{STATUS[layout.status]}: {layout.why}"
        names.setdefault(text, []).append(_named(layout))
    return names
