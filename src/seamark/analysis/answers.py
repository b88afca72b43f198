"""answers.parquet: what was answered to each item, and how many items of two trials were answered otherwise."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seamark.analysis.comparison.scored import Scores
from seamark.storage.documents import regular

TIMES = ("ttft_s", "latency_s")
TIMED_BY = ["index", "due_ns", "sent_ns", "first_ns", "last_ns"]
"""Columns of samples.parquet from which the times of an answer follow."""
PLAIN = ("item", "id", "cluster", "kind", "units", "failure", "error", "finish", "answer", "reply", *TIMES)
"""Columns of answers.parquet beside the scores and the facts."""
FACT = "fact_"
"""Prefix of columns with facts of the items, such as depth or length."""


def score_columns(names: Sequence[str]) -> list[str]:
    """Return the columns that hold scores."""
    return [name for name in names if name not in PLAIN and not name.startswith(FACT)]


def times_by_item_s(samples: pa.Table) -> Mapping[int, tuple[float | None, float | None]]:
    """Return the time to the first token, from the actual send, and the latency, from the intended send, of each item
    in seconds; None where there is none. `samples` has the columns TIMED_BY of samples.parquet."""

    def since(begun: int, at: int | None) -> float | None:
        return None if at is None or at < begun else (at - begun) / 1e9

    return {
        row["index"]: (since(row["sent_ns"], row["first_ns"]), since(row["due_ns"], row["last_ns"]))
        for row in samples.select(TIMED_BY).to_pylist()
    }


def read_scored(path: Path) -> Scores | None:
    """Return the scores of a trial's answers.parquet, without failed requests; None if it cannot be read. Without a
    cluster of every item each is one of its own."""
    table = _read(path, ("cluster", "failure"))
    if table is None:
        return None
    good = table.filter(pc.field("failure").is_null())
    clusters = good["cluster"]
    labels = [None] * len(good) if clusters.null_count else clusters.to_pylist()
    items = list(zip(good["id"].to_pylist(), labels, strict=True))
    return {
        name: {item: value for item, value in zip(items, good[name].to_pylist(), strict=True) if value is not None}
        for name in score_columns(good.column_names)
    }


def _read(path: Path, others: Sequence[str]) -> pa.Table | None:
    """Return ids, scores and other columns of a trial's answers.parquet; None if it cannot be read."""
    try:
        return pq.read_table(path, columns=["id", *others, *score_columns(pq.read_schema(regular(path)).names)])
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None


def said_by_item(answers: pa.Table) -> dict[str, object]:
    """Return what was answered to each item, by its id, of a table of answers.parquet: the answer, or its scores."""
    if answers["answer"].null_count < answers.num_rows:
        said = answers["answer"].to_pylist()
    else:
        names = sorted(score_columns(answers.column_names))
        said = [list(scores) for scores in zip(*(answers[name].to_pylist() for name in names), strict=True)]
    return dict(zip(answers["id"].to_pylist(), said, strict=True))


def read_said(path: Path) -> dict[str, object] | None:
    """Return what was answered to each item of a trial's answers.parquet; None if it cannot be read."""
    table = _read(path, ("answer",))
    return None if table is None else said_by_item(table)


def differing(one: Mapping[str, object], other: Mapping[str, object]) -> tuple[int, int]:
    """Return how many of the items that both answered have another answer, and how many both answered."""
    both = one.keys() & other.keys()
    return sum(one[item] != other[item] for item in both), len(both)
