"""Settings of each masker, and the numbers that its parameters may be. `maskers.py` computes what each keeps.

No torch: every environment imports this module.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

MOST_KEYS = 2**31 - 1
ROUNDING = 1e-9
"""Added before a fraction of a number of keys is cut to a whole number: 0.29 * 100 is 28.999999999999996."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """A number of keys: `keys` of them, or `fraction` of those that causality allows. One of the two is None."""

    keys: int | None = None
    fraction: float | None = None

    def count(self, allowed: int) -> int:
        """Return how many of `allowed` keys fit: a fraction is rounded down, and at least one key is kept."""
        if self.keys is not None:
            return min(self.keys, allowed)
        assert self.fraction is not None
        return min(max(1, int(self.fraction * allowed + ROUNDING)), allowed)


@dataclass(frozen=True, kw_only=True)
class Budgeted:
    """Settings of a masker that keeps a number of keys."""

    budget: Budget


class Sink(Budgeted):
    """The first keys of the sequence."""

    masker: ClassVar[str] = "sink"


class Local(Budgeted):
    """The last keys up to the query, its own included."""

    masker: ClassVar[str] = "local"


class TopK(Budgeted):
    """Oracle: the keys of the highest scores among those not kept yet. It computes every score to find them."""

    masker: ClassVar[str] = "top_k"


@dataclass(frozen=True, kw_only=True)
class TopP:
    """Oracle: keys by falling score until all kept ones together have a share `p` of the softmax."""

    masker: ClassVar[str] = "top_p"
    p: float


class RandomKeys(Budgeted):
    """A uniform sample without replacement of the keys not kept yet."""

    masker: ClassVar[str] = "random"


@dataclass(frozen=True, kw_only=True)
class AdaptiveSampling:
    """A uniform sample whose size bounds the error of the softmax's denominator (vAttention).

    A first sample of `base_rate` of the keys not kept yet estimates the spread; the second is so large that the
    relative error stays below `epsilon` with probability 1 - `delta`. https://arxiv.org/abs/2510.05688
    """

    masker: ClassVar[str] = "adaptive_sampling"
    base_rate: float
    epsilon: float
    delta: float


@dataclass(frozen=True, kw_only=True)
class Lsh:
    """Keys that share at least two of `tables` hash buckets of `bits` random hyperplanes with the query (MagicPIG).

    https://arxiv.org/abs/2410.16179
    """

    masker: ClassVar[str] = "lsh"
    bits: int
    tables: int
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class HashTopK(Budgeted):
    """The keys whose signature of `bits` has most bits in common with the query's (HashAttention).

    `weights` is a file of trained projections, and `weights_sha256` the digest of its content; None stands for random
    hyperplanes. https://arxiv.org/abs/2412.14468
    """

    masker: ClassVar[str] = "hash_top_k"
    bits: int
    weights: str | None = None
    seed: int = 0
    weights_sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class Quest(Budgeted):
    """Pages of `page` keys by the bound of their scores from least and greatest value of each channel (Quest).

    The budget counts keys and is filled with whole pages. https://arxiv.org/abs/2406.10774
    """

    masker: ClassVar[str] = "quest"
    page: int


Masker = Sink | Local | TopK | TopP | RandomKeys | AdaptiveSampling | Lsh | HashTopK | Quest
MASKERS: Mapping[str, type[Masker]] = {form.masker: form for form in get_args(Masker)}
"""Every masker by its name in documents; a new one is a class above and a function in maskers.py."""
FIXED = (Sink, Local)
"""Maskers whose kept positions follow from positions alone."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """What a parameter may be: whole or not, from `least` (or `above` it) to `most` (or `below` it)."""

    least: float
    most: float
    whole: bool = False
    above: bool = False
    below: bool = False

    def holds(self, value: Any) -> bool:
        """Return whether a value of a document is such a number."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        if not math.isfinite(value) or value < self.least or value > self.most:
            return False
        return not (self.above and value == self.least) and not (self.below and value == self.most)

    @property
    def text(self) -> str:
        """Return what is allowed, for messages."""
        kind = "a whole number" if self.whole else "a number"
        start = f"above {self.least:g}" if self.above else f"from {self.least:g}"
        if self.most == MOST_KEYS:
            return f"{kind} {start}"
        return f"{kind} {start} {'and below' if self.below else 'to'} {self.most:g}"


PARAMETERS: Mapping[str, Number] = {
    "keys": Number(least=1, most=MOST_KEYS, whole=True),
    "fraction": Number(least=0, most=1, above=True),
    "p": Number(least=0, most=1, above=True),
    "base_rate": Number(least=0, most=1, above=True),
    "epsilon": Number(least=0, most=1, above=True, below=True),
    "delta": Number(least=0, most=1, above=True, below=True),
    "bits": Number(least=1, most=1024, whole=True),
    "tables": Number(least=2, most=1024, whole=True),
    "page": Number(least=1, most=MOST_KEYS, whole=True),
    "seed": Number(least=0, most=MOST_KEYS, whole=True),
}
