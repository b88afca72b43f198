"""The factors of one scenario compared: for its summary, and for `bench compare` with other options. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from seamark.analysis.comparison.carry_over import carried_over
from seamark.analysis.comparison.compared import Question, compared
from seamark.analysis.comparison.contrasts import contrasts_of, primaries, treatments_of
from seamark.analysis.comparison.front import fronts, within_limit
from seamark.analysis.comparison.observations import Observation
from seamark.analysis.comparison.subset_averages import subset_averages
from seamark.errors import UserError
from seamark.model.plurals import counted
from seamark.model.results.comparison import Comparisons
from seamark.model.scenario import Comparing
from seamark.model.service import Quality
from seamark.model.trial import Plan, levels_of

MOST_CONTRASTS = 500
"""Contrasts that a summary has; `bench compare` has no limit."""


def compared_factors(
    plan: Plan,
    seen: Mapping[str, Sequence[Observation]],
    comparing: Comparing,
    qualities: Mapping[str, Quality],
    where: str = "",
    declared: bool = True,
) -> Comparisons | None:
    """Return the comparisons of a plan's factors; None where nothing varies. Raises UserError for a metric that no
    trial has, which begins with `where`. Those that nobody `declared` have a verdict only where one can be given."""
    levels = levels_of(plan)
    if not any(levels.values()):
        return None
    contrasts = contrasts_of(plan, comparing.baseline)
    question = Question(
        contrasts=contrasts,
        comparing=comparing,
        primaries=primaries(plan),
        qualities=qualities,
        where=where,
        declared=declared,
    )
    treatments = {trial.treatment for trial in plan.measured}
    compared_ones = {name for contrast in contrasts for name in (contrast.base, contrast.new)}
    unmatched = len(treatments - compared_ones) if compared_ones else 0
    notes: tuple[str, ...] = (
        (f"{counted(unmatched, 'treatment')} without a counterpart at a baseline: not compared",) if unmatched else ()
    )
    comparisons = compared(question, seen)
    family = comparisons.family if any(judged.answers for judged in comparisons.judged) else None
    made, cut = within_limit(fronts(question, seen, family))
    if cut:
        notes += (
            f"{counted(cut, 'front')} of further costs are left out: `compare: costs` chooses which come first",
        )
    means = subset_averages(treatments_of(plan), levels, seen)
    carried = carried_over(plan, seen, comparing, qualities, where)
    return replace(comparisons, scenario=plan.scenario, notes=notes, fronts=made, averages=means, carry_over=carried)


def comparisons_of_summary(plan: Plan, seen: Mapping[str, Sequence[Observation]]) -> Comparisons | None:
    """Return the declared or default comparisons of a scenario; without any where there are too many, or where the
    declared metrics were not measured: then a note says so."""
    comparing = plan.compare or Comparing()
    plain = Comparisons(scenario=plan.scenario, margin=comparing.margin)
    if (count := len(contrasts_of(plan, comparing.baseline))) > MOST_CONTRASTS:
        text = f"{count:,} comparisons of treatments are more than a summary holds: `bench compare` prints them"
        return replace(plain, notes=(text,))
    try:
        return compared_factors(plan, seen, comparing, plan.qualities, declared=plan.compare is not None)
    except UserError as unknown:
        return replace(plain, notes=(f"not compared: {unknown}",))
