"""From raw samples to the metrics of one trial. Reads a trial's files and writes none."""

from seamark.analysis.metrics.document import DerivedMetrics, derive_metrics
from seamark.analysis.metrics.table import METRICS, VERSION

__all__ = ["METRICS", "VERSION", "DerivedMetrics", "derive_metrics"]
