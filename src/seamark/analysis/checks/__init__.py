"""Verdict of a trial's figures: small pure checks, each with a stable code and a remedy."""

from seamark.analysis.checks.inputs import CheckInputs, Connections, Processors
from seamark.analysis.checks.judge import CHECKS, gravest_first, judge, worst

__all__ = ["CHECKS", "CheckInputs", "Connections", "Processors", "gravest_first", "judge", "worst"]
