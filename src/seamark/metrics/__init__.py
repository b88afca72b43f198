"""From raw samples to the figures of one trial. Pure: reads a trial's files and writes none."""

from seamark.metrics.document import Measured, compute, measure
from seamark.metrics.older import is_older, marked
from seamark.metrics.table import METRICS, VERSION

__all__ = ["METRICS", "VERSION", "Measured", "compute", "is_older", "marked", "measure"]
