"""Checks of a trial's metrics: small pure functions, each with a stable code and a remedy."""

from seamark.analysis.checks.findings import Connections, Findings, Processors, Reason
from seamark.analysis.checks.judge import CHECKS, judge, verdict_of, worst
from seamark.analysis.checks.result import REMEDIES

__all__ = ["CHECKS", "REMEDIES", "Connections", "Findings", "Processors", "Reason", "judge", "verdict_of", "worst"]
