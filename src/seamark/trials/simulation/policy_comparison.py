"""Policies compared over seeds: each seed is a block, in which all policies see the same drawn times."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.stats.compare import Comparison, compare_family

Measure = Literal["makespan", "mean completion"]


@dataclass(frozen=True, kw_only=True)
class PolicyComparison:
    """Figures of each policy by block, and the comparison of each with the first, as one family.

    `measure` is the makespan where all requests arrive at zero, else the mean completion time of requests, because a
    makespan then mostly shows when the last request came.
    """

    measure: Measure
    figures: Mapping[str, Sequence[ScheduleMetrics]]
    comparisons: Mapping[str, Comparison]

    @property
    def lines(self) -> list[str]:
        """A table: medians over blocks, ratio to the first policy with its interval, adjusted p and verdict."""
        base, *_ = self.figures
        blocks = len(self.figures[base])
        form = "{:<18}{:>12}{:>12}{:>10}   {:<26}{:>9}  {}"
        lines = [
            form.format("policy", "makespan s", "mean s", "switches", f"ratio to {base}", "p", "verdict").rstrip()
        ]
        for policy, figures in self.figures.items():
            makespan_s = median(each.makespan_s for each in figures)
            mean_s = median(_measure(each, "mean completion") for each in figures)
            cells = [f"{makespan_s:,.2f}", f"{mean_s:,.2f}", f"{median(each.switches for each in figures):g}"]
            lines.append(form.format(policy, *cells, *_verdict(self.comparisons.get(policy))).rstrip())
        ratios = [each.ratio.confidence for each in self.comparisons.values() if each.ratio is not None]
        sure = f", with intervals of {min(ratios):.1%}" if ratios else ""
        lines.append(f"Medians over {blocks} blocks. Ratios are of the {self.measure}{sure}; p is adjusted by Holm.")
        return lines


def compare_policies(figures: Mapping[str, Sequence[ScheduleMetrics]], measure: Measure) -> PolicyComparison:
    """Compare each policy with the first, block by block."""
    values: dict[str, dict[Hashable, float]] = {
        policy: {block: _measure(each, measure) for block, each in enumerate(blocks)}
        for policy, blocks in figures.items()
    }
    base, *others = values
    comparisons = compare_family({other: (values[base], values[other]) for other in others}, better="lower")
    return PolicyComparison(measure=measure, figures=figures, comparisons=comparisons)


def _measure(figures: ScheduleMetrics, measure: Measure) -> float:
    if measure == "makespan":
        return figures.makespan_s
    return 0.0 if figures.completion is None else figures.completion.mean_s


def _verdict(comparison: Comparison | None) -> tuple[str, str, str]:
    """Return ratio, p and verdict; blank for the first policy."""
    if comparison is None:
        return "", "", ""
    ratio = comparison.ratio
    shown = "" if ratio is None else f"{ratio.estimate:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
    return shown, f"{comparison.p_adjusted:.2g}", comparison.verdict
