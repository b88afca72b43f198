"""Derived files: those of one trial, and the summary of a scenario."""

from seamark.analysis.summary.summary import summarise
from seamark.analysis.summary.summary_files import write_summary
from seamark.analysis.summary.trial_files import write_metrics, write_metrics_of_whole

__all__ = ["summarise", "write_metrics", "write_metrics_of_whole", "write_summary"]
