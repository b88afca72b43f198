"""answers.parquet: what was answered to each item, and how many items of two trials were answered otherwise."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

PLAIN = ("item", "id", "cluster", "kind", "units", "failure", "finish", "answer", "reply")
"""Columns of answers.parquet beside the scores and the facts of the items."""
FACT = "fact_"
"""Begin of the columns with facts of the items."""


def is_score(column: str) -> bool:
    """Return whether a column of answers.parquet has scores."""
    return column not in PLAIN and not column.startswith(FACT)


def said_by_item(answers: pa.Table) -> dict[str, object]:
    """Return what was answered to each item, by its id, of a table of answers.parquet: the answer, or its scores."""
    if answers["answer"].null_count < answers.num_rows:
        said = answers["answer"].to_pylist()
    else:
        names = sorted(name for name in answers.column_names if is_score(name))
        said = [list(scores) for scores in zip(*(answers[name].to_pylist() for name in names), strict=True)]
    return dict(zip(answers["id"].to_pylist(), said, strict=True))


def read_said(path: Path) -> dict[str, object] | None:
    """Return what was answered to each item of a trial's answers.parquet; None if it cannot be read."""
    try:
        names = [name for name in pq.read_schema(path).names if is_score(name) or name in ("id", "answer")]
        return said_by_item(pq.read_table(path, columns=names))
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None


def differing(one: Mapping[str, object], other: Mapping[str, object]) -> tuple[int, int]:
    """Return how many of the items that both answered have another answer, and how many both answered."""
    both = one.keys() & other.keys()
    return sum(one[item] != other[item] for item in both), len(both)
