"""Rows as CSV: an empty cell is 'not known', a float has nine significant digits."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def csv_text(header: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows under a header; a column that a row lacks stays empty."""
    return csv_lines(header, [dict(zip(header, header, strict=True))]) + csv_lines(header, rows)


def csv_lines(header: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows without a header."""
    written = io.StringIO()
    writer = csv.DictWriter(written, header, lineterminator="\n")
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return written.getvalue()


def _cell(value: Any) -> Any:
    return "" if value is None else f"{value:.9g}" if isinstance(value, float) else value
