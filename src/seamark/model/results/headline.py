"""The answer to the question that a scenario asks, as data: terminal, Markdown and HTML show the same."""

from dataclasses import dataclass
from typing import Literal

from seamark.model.results.values import Number

HeadlineKind = Literal["search", "sweep", "comparison", "evaluation", "policies", "prediction", "tour", "nothing"]


@dataclass(frozen=True, kw_only=True)
class HeadlineNumber:
    """A number that an answer rests on, in its `unit`; `low` and `high` are its interval or range, None without."""

    name: str
    value: Number = None
    unit: str = ""
    low: Number = None
    high: Number = None


@dataclass(frozen=True, kw_only=True)
class Headline:
    """`answer` is the first sentence that a reader sees, `certainty` says how sure it is."""

    kind: HeadlineKind
    question: str
    answer: str
    numbers: tuple[HeadlineNumber, ...] = ()
    certainty: str = ""
