"""The items that a trial asks: questions whose answers are scored. Plugins know where they come from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

from seamark.model.plugin import parts
from seamark.model.service import Value


@dataclass(frozen=True, kw_only=True, order=True)
class ItemCount:
    """The items of a trial, and how many contexts they are about: those are what a test counts."""

    items: int
    contexts: int

    @property
    def text(self) -> str:
        """`64 items in 8 contexts`."""
        return f"{self.items:,} items" + (f" in {self.contexts:,} contexts" if self.contexts < self.items else "")


class ItemSource(Protocol):
    """Items of a trial by its settings; None or nothing for a trial that asks items of another kind, or none."""

    counted_by: tuple[str, ...]
    """Settings on which the number of items depends."""

    def count(self, settings: Mapping[str, Value]) -> ItemCount | None:
        """Return the number of items, None where it is not known."""

    def published(
        self,
        settings: Mapping[str, Value],
        scores: Mapping[str, Sequence[float | None]],
        facts: Mapping[str, Sequence[Any]],
    ) -> Mapping[str, float]:
        """Return the figures that the publisher of the items computes of scores and facts, an entry an answer."""

    def key_digest(self, settings: Mapping[str, Value], ids: Mapping[int, str]) -> str | None:
        """Return the digest of what the answers to items with these ids are scored against, None where that is not
        known: the data are not at hand, or an item is another question now."""


@cache
def item_sources() -> tuple[ItemSource, ...]:
    """Return those of all plugins."""
    return parts("items")


def item_counts(trials: Iterable[Mapping[str, Value]]) -> set[ItemCount]:
    """Return the numbers of items of trials with these settings, those that are known. The setting `items` says it;
    such items are independent, as far as a plan can know."""
    names = {name for source in item_sources() for name in source.counted_by}
    kinds = {tuple(settings.get(name) for name in ("items", *sorted(names))): settings for settings in trials}
    counts = map(_count, kinds.values())
    return {count for count in counts if count is not None and count.items}


def _count(settings: Mapping[str, Value]) -> ItemCount | None:
    if isinstance(items := settings.get("items"), int):
        return ItemCount(items=items, contexts=items)
    counts = (source.count(settings) for source in item_sources())
    return next((count for count in counts if count is not None), None)


def key_digest(settings: Mapping[str, Value], ids: Mapping[int, str]) -> str | None:
    """Return `ItemSource.key_digest` of the source that knows these items."""
    digests = (source.key_digest(settings, ids) for source in item_sources())
    return next((digest for digest in digests if digest is not None), None)
