"""Comparison of treatments: which with which, by which metric, by what unit of inference, and the verdicts. Pure."""

from seamark.analysis.comparison.compared import UNITS_DIFFER, Question, compared
from seamark.analysis.comparison.contrasts import Contrast, contrasts_of, family_of, primaries, sorted_levels
from seamark.analysis.comparison.environment import environment_differences
from seamark.analysis.comparison.factors import compared_factors, comparisons_of_summary
from seamark.analysis.comparison.matched import Source, matched
from seamark.analysis.comparison.metric_names import ComparedMetric, metric_of, table_paths
from seamark.analysis.comparison.observations import Observation, observation
from seamark.analysis.comparison.two_results import ASSUMED_SD, FEWEST_RESULTS, TwoResults, spread_of

__all__ = [
    "ASSUMED_SD",
    "FEWEST_RESULTS",
    "UNITS_DIFFER",
    "ComparedMetric",
    "Contrast",
    "Observation",
    "Question",
    "Source",
    "TwoResults",
    "compared",
    "compared_factors",
    "comparisons_of_summary",
    "contrasts_of",
    "environment_differences",
    "family_of",
    "matched",
    "metric_of",
    "observation",
    "primaries",
    "sorted_levels",
    "spread_of",
    "table_paths",
]
