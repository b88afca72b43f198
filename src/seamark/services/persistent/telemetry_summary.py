"""What the monitors saw of a standing server, from its first reading to its last, summed up series by series."""

import csv
import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from seamark.analysis.metrics.telemetry import watch
from seamark.model.trial import SCHEMA_VERSION
from seamark.storage.paths import write_json
from seamark.telemetry.cut import cut


def write_watched(telemetry: Path, summary: Path) -> None:
    """Write summary.json from a supervisor's telemetry.csv; without a reading, one without series."""
    span = _span(telemetry)
    series = {}
    if span is not None:
        start_unix_s, end_unix_s = span
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "telemetry.parquet"
            pq.write_table(cut([telemetry], start_unix_s, end_unix_s - start_unix_s), table)
            series = {
                f"{source}.{name}": {
                    "unit": seen.unit,
                    "n": seen.n,
                    "min": seen.minimum,
                    "mean": seen.mean,
                    "max": seen.maximum,
                    "p50": seen.p50,
                    "p95": seen.p95,
                }
                for (source, name), seen in sorted(watch(table, 0.0, end_unix_s - start_unix_s).items())
            }
    write_json(
        summary,
        {
            "schema_version": SCHEMA_VERSION,
            "from_unix_s": span and span[0],
            "to_unix_s": span and span[1],
            "telemetry": series,
        },
    )


def _span(telemetry: Path) -> tuple[float, float] | None:
    """Return when the first and the last reading were taken."""
    times = []
    if telemetry.is_file():
        with telemetry.open(newline="", errors="replace") as file:
            for row in csv.reader(file):
                try:
                    times.append(float(row[0]))
                except (ValueError, IndexError):
                    continue
    return (min(times), max(times)) if times else None
