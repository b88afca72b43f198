"""The levels that a search may try: a geometric grid, some of it below where the search begins. Pure."""

import math

from seamark.model.search import Search

HALVINGS = 4
"""How often the level where a search begins is halved at most, when it fails."""

Levels = tuple[int | float, ...]


def levels_of(search: Search) -> Levels:
    """Return the levels in ascending order, none twice: equal ratios of at most 1 + within, from `from` to `to`."""
    span = math.log(search.to_level / search.from_level)
    up = math.ceil(span / math.log(1 + search.within) - 1e-9)
    ratio = math.exp(span / up)
    down = math.floor(HALVINGS * math.log(2) / math.log(ratio))
    values = {search.level(search.from_level * ratio**k) for k in range(-down, up + 1)}
    return tuple(sorted(value for value in values if value > 0))
