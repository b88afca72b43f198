"""Policies compared over seeds: each seed is a block, in which all policies see the same drawn times."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from seamark.model.plurals import in_percent
from seamark.model.results.schedule_metrics import ScheduleMetrics
from seamark.report.numbers import ABSENT, aligned
from seamark.stats.compare import Comparison, Group, compare_family

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
        """A table: medians over blocks, ratio to the first policy with its interval, adjusted p and verdict; where
        requests did not complete, also their number."""
        base, *_ = self.figures
        blocks, left = len(self.figures[base]), any(map(_incomplete, self.figures.values()))
        incomplete = ("incomplete",) if left else ()
        rows = [("policy", "makespan s", "mean s", "switches", *incomplete, f"ratio to {base}", "p", "verdict")]
        for policy, figures in self.figures.items():
            cells = [
                _median(block.makespan_s for block in figures),
                _median(None if block.completion is None else block.completion.mean_s for block in figures),
                f"{median(block.switches for block in figures):,.10g}",
                *((f"{_incomplete(figures):,} of {sum(block.requests for block in figures):,}",) if left else ()),
            ]
            verdict = ("", "", "") if policy == base else _verdict(self.comparisons.get(policy))
            rows.append((policy, *cells, *verdict))
        lines = aligned(rows, left=(0, len(rows[0]) - 3, len(rows[0]) - 1))
        ratios = [pair.ratio.confidence for pair in self.comparisons.values() if pair.ratio is not None]
        sure = f", with intervals of {in_percent(min(ratios), 1)}" if ratios else ""
        lines.append(f"Medians over {blocks} blocks. Ratios are of the {self.measure}{sure}; p is adjusted by Holm.")
        if left:
            lines.append(
                "Means are of completed requests. Blocks in which a policy did not complete all are not compared."
            )
        return lines


def compare_policies(figures: Mapping[str, Sequence[ScheduleMetrics]], measure: Measure) -> PolicyComparison:
    """Compare each policy with the first, on the blocks in which both completed all requests; without such blocks a
    policy has no comparison."""
    values: dict[str, dict[Hashable, float]] = {
        policy: {block: _measure(run, measure) for block, run in enumerate(blocks) if not _incomplete([run])}
        for policy, blocks in figures.items()
    }
    base, *others = values
    pairs = {other: _of_both(values[base], values[other]) for other in others}
    comparisons = compare_family({other: pair for other, pair in pairs.items() if pair[0]}, better="lower")
    return PolicyComparison(measure=measure, figures=figures, comparisons=comparisons)


def _of_both(base: dict[Hashable, float], other: dict[Hashable, float]) -> tuple[Group, Group]:
    blocks = [block for block in base if block in other]
    return {block: base[block] for block in blocks}, {block: other[block] for block in blocks}


def _measure(figures: ScheduleMetrics, measure: Measure) -> float:
    if measure == "makespan" or figures.completion is None:  # without requests both are zero
        return figures.makespan_s
    return figures.completion.mean_s


def _incomplete(figures: Sequence[ScheduleMetrics]) -> int:
    """Return the number of requests that did not complete, over all blocks."""
    return sum(block.outcomes.incomplete_requests for block in figures if block.outcomes is not None)


def _median(values: Iterable[float | None]) -> str:
    """Return the median of the values that there are, the sign for absent without any."""
    known = [value for value in values if value is not None]
    return f"{median(known):,.2f}" if known else ABSENT


def _verdict(comparison: Comparison | None) -> tuple[str, str, str]:
    """Return ratio, p and verdict; the sign for absent where no block can be compared."""
    if comparison is None:
        return ABSENT, ABSENT, "not compared"
    ratio = comparison.ratio
    shown = "" if ratio is None else f"{ratio.estimate:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
    return shown, f"{comparison.p_adjusted:.2g}", comparison.verdict
