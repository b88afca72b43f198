"""answers.parquet: what was answered to each item, and how many items of two trials were answered otherwise."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seamark.analysis.comparison.scored import ScoredItems
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


def read_scored(path: Path) -> ScoredItems | None:
    """Return the scores of a trial's answers.parquet by item, without failed requests; None if it cannot be read."""
    try:
        scores = score_columns(pq.read_schema(regular(path)).names)
        table = pq.read_table(path, columns=["id", "cluster", "failure", *scores])
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None
    good = table.filter(pc.field("failure").is_null())
    clusters = good["cluster"].to_pylist()
    return ScoredItems(
        ids=tuple(good["id"].to_pylist()),
        clusters=None if good["cluster"].null_count else tuple(clusters),
        scores={name: tuple(good[name].to_pylist()) for name in scores},
    )


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
    try:
        names = ["id", "answer", *score_columns(pq.read_schema(regular(path)).names)]
        return said_by_item(pq.read_table(path, columns=names))
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None


def differing(one: Mapping[str, object], other: Mapping[str, object]) -> tuple[int, int]:
    """Return how many of the items that both answered have another answer, and how many both answered."""
    both = one.keys() & other.keys()
    return sum(one[item] != other[item] for item in both), len(both)
