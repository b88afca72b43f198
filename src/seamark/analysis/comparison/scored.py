"""Scored answers of one trial, as a comparison sees them. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from seamark.model.service import Value

Item = tuple[str, str | None]
"""The id of an item, and the label of its cluster."""


@dataclass(frozen=True, kw_only=True)
class ScoredItems:
    """Scores of the items that a trial has a good reply to, in one order: `ids`, `clusters` (None: an item each), and
    a value for each item by score, None for an item without one."""

    ids: tuple[str, ...]
    clusters: tuple[str, ...] | None
    scores: Mapping[str, tuple[float | None, ...]]

    def by_item(self, score: str) -> dict[Item, float]:
        """Return the values of one score by the id and the cluster of their item."""
        values = self.scores.get(score, (None,) * len(self.ids))
        labels = self.clusters or (None,) * len(self.ids)
        return {
            (item, label): value
            for item, label, value in zip(self.ids, labels, values, strict=True)
            if value is not None
        }


@dataclass(frozen=True, kw_only=True)
class TrialAnswers:
    """The scored answers of a trial: which `scores` they have, in the judge's order, and how many items are
    `unanswered`. `read` returns them, None for a damaged file. `seeds` are the settings that choose the items, `key`
    is a digest of their references, None where it is not known."""

    scores: tuple[str, ...]
    read: Callable[[], ScoredItems | None]
    unanswered: int = 0
    seeds: Mapping[str, Value] = field(default_factory=dict)
    key: str | None = None
