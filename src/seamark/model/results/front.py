"""Quality against a cost: the treatments that no other dominates, as `bench compare` and the report show them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from seamark.model.origin import MEASURED, HasOrigin, Origin
from seamark.model.results.values import OPTIONAL, Number, Setting, Word


@dataclass(frozen=True, kw_only=True)
class FrontPoint(HasOrigin):
    """One treatment: mean `quality` over the common items, with its 95 % interval by clusters of items (None with one
    cluster), and the median `cost` of its `trials`.

    `on_front`: no other point has at least its quality at no more cost, and more of one. `probability` is the share
    of resamples in which that holds; None off the front for `reason`. `not_worse`: a loss of quality of the margin or
    more against the baseline is excluded; None for the baseline and without a margin. `ratio` is its cost to that of
    the baseline; `cheaper`: a test shows that it is lower, None where the trials allow no test: because they are few,
    or else because of what `untested` says.
    """

    treatment: str
    level: Setting = None
    quality: Number = None
    quality_low: Number = field(default=None, metadata=OPTIONAL)
    quality_high: Number = field(default=None, metadata=OPTIONAL)
    cost: Number = None
    trials: int = 0
    on_front: bool = False
    probability: Number = None
    not_worse: bool | None = None
    ratio: Number = None
    cheaper: bool | None = None
    untested: Word = field(default=None, metadata=OPTIONAL)
    origin: Origin = MEASURED
    reason: Word = None


@dataclass(frozen=True, kw_only=True)
class Front:
    """Levels of one factor with all others `fixed`, by one quality and one cost, over the `items` that all have.

    `resamples` draw whole clusters of items (and blocks of trials where there are several), the same ones for every
    point. The first point is the baseline.
    """

    workload: str
    factor: str
    fixed: Mapping[str, Setting] = field(default_factory=dict)
    base: Setting = None
    quality: str
    better: Literal["higher", "lower"] = "higher"
    cost: str
    cost_unit: str = ""
    cost_better: Literal["higher", "lower"] = "lower"
    margin: Number = None
    items: int = 0
    clusters: int = 0
    blocks: int = 0
    resamples: int = 0
    seed: int = 0
    points: tuple[FrontPoint, ...] = ()
