"""Comparison of treatments: which with which, by which metric, by what unit of inference, and the verdicts. Pure."""

from seamark.analysis.comparison.compared import UNITS_DIFFER, Question, compared
from seamark.analysis.comparison.contrasts import Contrast, contrasts_of, family_of, sorted_levels
from seamark.analysis.comparison.environment import environment_differences
from seamark.analysis.comparison.factors import compared_factors, comparisons_of_summary
from seamark.analysis.comparison.matched import Source, matched
from seamark.analysis.comparison.metric_names import ComparedMetric, metric_of, primary_metric, table_paths
from seamark.analysis.comparison.observations import Observation, observation

__all__ = [
    "UNITS_DIFFER",
    "ComparedMetric",
    "Contrast",
    "Observation",
    "Question",
    "Source",
    "compared",
    "compared_factors",
    "comparisons_of_summary",
    "contrasts_of",
    "environment_differences",
    "family_of",
    "matched",
    "metric_of",
    "observation",
    "primary_metric",
    "sorted_levels",
    "table_paths",
]
