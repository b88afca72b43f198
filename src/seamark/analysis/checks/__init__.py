"""Verdict of a trial's figures: small pure checks, each with a stable code and a remedy."""

from seamark.analysis.checks.checked_trial import CheckedTrial
from seamark.analysis.checks.judge import CHECKS, gravest_first, judge, worst

__all__ = ["CHECKS", "CheckedTrial", "gravest_first", "judge", "worst"]
