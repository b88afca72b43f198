"""Where answers go wrong: items with another score by two treatments, and scores by facts of the items."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seamark.analysis.answers import FACT
from seamark.storage.documents import regular

MOST_VALUES = 8
BINS = 4


@dataclass(frozen=True, kw_only=True)
class ChangedAnswer:
    """An item that two treatments answered with another score; `facts` without the prefix of their columns."""

    id: str
    cluster: str | None
    base_score: float
    new_score: float
    base_answer: str | None
    new_answer: str | None
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FactScore:
    """Mean scores of the items with one value, or a range of values, of a fact, by level; None without an item."""

    fact: str
    value: str
    items: int
    means: Mapping[str, float | None]


def read_answered(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a trial's answers.parquet that have a good reply, without the replies; none of a damaged
    file."""
    try:
        names = [name for name in pq.read_schema(regular(path)).names if name != "reply"]
        table = pq.read_table(path, columns=names)
        rows: list[dict[str, Any]] = table.filter(pc.field("failure").is_null()).to_pylist()
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return []
    return rows


def changed_answers(
    base: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], score: str
) -> list[ChangedAnswer]:
    """Return the items of both sides whose score differs, the greatest loss first."""
    others = {(row["id"], row["cluster"]): row for row in new}
    changed = []
    for row in base:
        other = others.get((row["id"], row["cluster"]))
        if other is None or row.get(score) is None or other.get(score) is None or row[score] == other[score]:
            continue
        # facts of an item are the same on both sides; those of a reply are the new side's
        both = {**row, **other}
        facts = {name.removeprefix(FACT): value for name, value in both.items() if name.startswith(FACT)}
        changed.append(
            ChangedAnswer(
                id=row["id"],
                cluster=row["cluster"],
                base_score=row[score],
                new_score=other[score],
                base_answer=row["answer"],
                new_answer=other["answer"],
                facts=facts,
            )
        )
    return sorted(changed, key=lambda answer: answer.new_score - answer.base_score)


def scores_by_fact(levels: Mapping[str, Sequence[Mapping[str, Any]]], score: str) -> list[FactScore]:
    """Return the mean scores by each fact of the items and each level. A number with more than eight values is put
    into four ranges of equal width."""
    rows = [row for side in levels.values() for row in side]
    facts = list(dict.fromkeys(name for row in rows for name in row if name.startswith(FACT)))
    scores: list[FactScore] = []
    for fact in facts:
        known = [row[fact] for row in rows if row.get(fact) is not None]
        label = _labels(known)
        places = sorted({label(value) for value in known})
        for rank, text in places:
            by_level = {
                level: [
                    row[score]
                    for row in side
                    if row.get(fact) is not None and row.get(score) is not None and label(row[fact])[0] == rank
                ]
                for level, side in levels.items()
            }
            scores.append(
                FactScore(
                    fact=fact.removeprefix(FACT),
                    value=text,
                    items=max(map(len, by_level.values()), default=0),
                    means={level: fmean(values) if values else None for level, values in by_level.items()},
                )
            )
    return scores


def _labels(known: Sequence[Any]) -> Any:
    """Return a function from a value to its place in the order and its text."""
    distinct = set(known)
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in distinct)
    if not numbers:
        order = {value: rank for rank, value in enumerate(sorted(distinct, key=str))}
        return lambda value: (float(order[value]), str(value))
    if len(distinct) <= MOST_VALUES:
        return lambda value: (float(value), f"{value:g}")
    low, high = min(distinct), max(distinct)
    width = (high - low) / BINS

    def ranged(value: float) -> tuple[float, str]:
        index = min(BINS - 1, int((value - low) / width))
        return low + index * width, f"{low + index * width:g} to {low + (index + 1) * width:g}"

    return ranged
