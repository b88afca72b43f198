"""Families of stages, by the names of the original benchmark."""

from seamark_pipelines.flow.stage import Stage, log_phase, log_phase_single
from seamark_pipelines.stages.capture import TerminalCapture

__all__ = ["Stage", "TerminalCapture", "log_phase", "log_phase_single"]
