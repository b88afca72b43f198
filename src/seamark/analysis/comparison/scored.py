"""Scored answers of one trial, as a comparison sees them. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from seamark.model.service import Value

Item = tuple[str, str | None]
"""The id of an item, and the label of its cluster."""


Scores = Mapping[str, Mapping[Item, float]]
"""The value of each item by score, without the items that have none."""


@dataclass(frozen=True, kw_only=True)
class TrialAnswers:
    """The scored answers of a trial: which `scores` they have, in the judge's order, and how many items are
    `unanswered`. `read` returns them, None for a damaged file. `seeds` are the settings that choose the items, `key`
    is a digest of their references, None where it is not known."""

    scores: tuple[str, ...]
    read: Callable[[], Scores | None]
    unanswered: int = 0
    seeds: Mapping[str, Value] = field(default_factory=dict)
    key: str | None = None
