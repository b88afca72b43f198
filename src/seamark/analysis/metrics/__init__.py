"""From raw samples to the metrics of one trial. Pure: reads a trial's files and writes none."""

from seamark.analysis.metrics.document import Measured, compute, measure
from seamark.analysis.metrics.schema import is_older, marked, with_present_codes
from seamark.analysis.metrics.table import METRICS, VERSION

__all__ = ["METRICS", "VERSION", "Measured", "compute", "is_older", "marked", "measure", "with_present_codes"]
