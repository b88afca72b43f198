"""How the treatments of a workload are laid out on paper: which factor along x, as curves, as panels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seamark.model.service import Value
from seamark.report.canvas import numeric
from seamark.report.numbers import level
from seamark.report.servers import SERVER
from seamark.report.source import Document

PREFERRED = ("concurrency", "rate_rps", "clients", "threads", "batch", "batch_size", "gpus", "nodes")
"""Factors that are drawn along the x axis first, in this order."""
MOST_CURVES = 7


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One factor along x, one as curves, the others as panels."""

    x: str
    curves: str | None
    panels: tuple[str, ...]
    levels: Mapping[str, tuple[Value, ...]]

    def panel_keys(self) -> list[tuple[Value, ...]]:
        """Return every combination of the panels' levels, in order."""
        keys: list[tuple[Value, ...]] = [()]
        for name in self.panels:
            keys = [(*key, value) for key in keys for value in self.levels[name]]
        return keys

    def panel_of(self, treatment: Document) -> tuple[Value, ...]:
        """Return the combination a treatment belongs to."""
        factors = treatment.get("factors") or {}
        return tuple(factors.get(name) for name in self.panels)

    def title(self, key: tuple[Value, ...]) -> str:
        """Return a panel's title."""
        return "\n".join(f"{name} = {level(value, name)}" for name, value in zip(self.panels, key, strict=True))

    def curves_of(self, treatments: Sequence[Document]) -> list[tuple[int, str, list[Document]]]:
        """Split treatments into curves: index of its look, label, treatments by x."""

        def at(treatment: Document) -> int:
            return self.levels[self.x].index(treatment["factors"].get(self.x))

        if self.curves is None:
            return [(0, "", sorted(treatments, key=at))]
        return [
            (
                index,
                level(value, self.curves),
                sorted((t for t in treatments if t["factors"].get(self.curves) == value), key=at),
            )
            for index, value in enumerate(self.levels[self.curves])
        ]


def levels_of(treatments: Sequence[Document]) -> dict[str, tuple[Value, ...]]:
    """Return each factor that varies within a workload with its levels: numbers by size, words as they come.

    The server is among them wherever it is told, so that a table says of which one it is.
    """
    found: dict[str, dict[Value, None]] = {}
    for treatment in treatments:
        for name, value in (treatment.get("factors") or {}).items():
            found.setdefault(name, {})[value] = None
    return {
        name: tuple(sorted(values, key=lambda v: float(v or 0)) if numeric(tuple(values)) else values)
        for name, values in found.items()
        if len(values) > 1 or name == SERVER
    }


def independent(
    levels: Mapping[str, tuple[Value, ...]], treatments: Sequence[Document]
) -> tuple[dict[str, tuple[Value, ...]], dict[str, str]]:
    """Return the factors without those that another determines, and for each of these the other's name.

    Where small blocks are always read at random and large ones in sequence, one of both tells everything.
    """
    kept: dict[str, tuple[Value, ...]] = {}
    follows: dict[str, str] = {}
    for name in order_of(levels):
        for other in kept:
            pairs = {((t.get("factors") or {}).get(other), (t.get("factors") or {}).get(name)) for t in treatments}
            if len(pairs) == len(levels[other]) == len(levels[name]):
                follows[name] = other
                break
        else:
            kept[name] = levels[name]
    return kept, follows


def order_of(levels: Mapping[str, tuple[Value, ...]]) -> list[str]:
    """Return the factors, that which is best drawn along x first."""

    def rank(name: str) -> tuple[int, int, int]:
        preferred = PREFERRED.index(name) if name in PREFERRED else len(PREFERRED)
        return (preferred, 0 if numeric(levels[name]) else 1, -len(levels[name]))

    return sorted(levels, key=rank)


def grid_for(levels: Mapping[str, tuple[Value, ...]], x: str) -> Grid:
    """Lay a workload out with `x` along the x axis; the factor of most levels that fit tells curves apart."""
    rest = [name for name in order_of(levels) if name != x]
    few = [name for name in rest if len(levels[name]) <= MOST_CURVES]
    curves = max(few, key=lambda name: len(levels[name])) if few else None
    return Grid(x=x, curves=curves, panels=tuple(name for name in rest if name != curves), levels=levels)
