"""Carry-over: orders that are balanced for predecessors, and the test whether a value depends on what ran before it.
Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil

import numpy as np
from numpy.typing import NDArray

from seamark.stats.compare import ALPHA, RESAMPLES, ROUNDING, holm
from seamark.stats.paired import rows_of
from seamark.stats.ranks import Interval, Values

Places = NDArray[np.int64]
FEWEST_BEYOND = 2
"""Arrangements that lie beyond the strictest level of Holm's method, at least: fewer could show nothing."""
SINGULAR = 1e-9
"""Singular values below this share of the largest count as 0."""


def williams_rows(count: int) -> int:
    """Return how many rows a balanced design of `count` treatments has: `count`, or twice as many if that is odd."""
    return count if count % 2 == 0 else 2 * count


def williams(count: int, row: int) -> list[int]:
    """Return one row of a balanced design, from 0: an order of the numbers 0 to `count` - 1 (Williams, Australian
    Journal of Scientific Research A 2, 1949).

    Over all rows every ordered pair of neighbours occurs equally often: once for an even count, twice for an odd one,
    which takes two squares.
    """
    first = (place // 2 if place % 2 == 0 else -(place + 1) // 2 for place in range(count))
    order = [(number + row) % count for number in first]
    return order if row < count else order[::-1]


@dataclass(frozen=True, kw_only=True)
class PredecessorEffect:
    """Mean logarithm after the predecessor `new` less that after `base`, block and treatment being equal.

    `p` is two-sided, `p_adjusted` by Holm's method. `effect` has the interval at the level of Holm's step, which
    excludes 0 exactly if `p_adjusted` is at most alpha.
    """

    base: int
    new: int
    effect: Interval
    p: float
    p_adjusted: float


def predecessor_effects(
    logs: Values,
    blocks: Places,
    treatments: Places,
    predecessors: Places,
    *,
    alpha: float = ALPHA,
    families: int = 1,
    seed: int = 0,
) -> list[PredecessorEffect]:
    """Return the effect of each pair of predecessors that these orders can tell apart, in the order of their p.

    All arrays have the shape (values,); a predecessor of -1 is none, or one that is not asked about. The model is
    additive: block + treatment + predecessor. The difference of mean residuals of block and treatment is divided by
    the share of it that these two leave of a predecessor (least squares), as no treatment precedes itself within a
    block. p comes from residuals permuted within their blocks (Freedman and Lane, Journal of Business and Economic
    Statistics 1, 1983), widened by the degrees of freedom that the treatments took. The interval inverts this test.
    Treatments are taken to spread alike. `families` is the number of such calls that share alpha.
    """
    fixed, of_fixed = _basis(np.hstack([_columns(part) for part in (blocks, treatments, predecessors < 0)]))
    asked = np.unique(predecessors[predecessors >= 0])
    pairs = list(combinations(range(len(asked)), 2))
    freedom = len(logs) - of_fixed
    if not pairs or freedom <= 0:
        return []
    after = (predecessors[:, None] == asked).astype(float)
    left = after - fixed @ (fixed.T @ after)
    left[np.abs(left) < SINGULAR] = 0  # what block and treatment explain whole is rounding, which must not be solved
    solved = np.linalg.pinv(left, rcond=SINGULAR)
    contrasts = np.zeros((len(pairs), len(asked)))
    for row, (base, new) in enumerate(pairs):
        contrasts[row, base], contrasts[row, new] = -1, 1
    known = np.abs(contrasts @ solved @ left - contrasts).max(axis=1) < np.sqrt(SINGULAR)
    pairs = [pair for pair, told in zip(pairs, known, strict=True) if told]
    if not pairs:
        return []
    weights = contrasts[known] @ solved
    residuals = logs - fixed @ (fixed.T @ logs)
    effects = weights @ residuals
    spread = np.sqrt((len(logs) - len(np.unique(blocks))) / freedom)
    resamples = max(RESAMPLES, ceil(FEWEST_BEYOND * len(pairs) * families / alpha))
    drawn = np.abs(_permuted(residuals * spread, blocks, weights, resamples, seed))
    least = np.abs(effects) * (1 - ROUNDING)
    ps = [float(p) for p in (1 + np.count_nonzero(drawn >= least, axis=0)) / (1 + len(drawn))]
    return _adjusted(pairs, asked, effects, ps, drawn, alpha, families)


def _adjusted(
    pairs: Sequence[tuple[int, int]],
    asked: Places,
    effects: Values,
    ps: Sequence[float],
    drawn: Values,
    alpha: float,
    families: int,
) -> list[PredecessorEffect]:
    """Return effects in the order of p. From the first one that is not shown on, Holm's method stays at its step."""
    adjusted = [min(1.0, families * p) for p in holm(ps)]
    found = []
    step = 0
    for index in sorted(range(len(pairs)), key=ps.__getitem__):
        level = alpha / families / (len(pairs) - step)
        tail = int(level * (1 + len(drawn)) + ROUNDING)
        limit = float(np.partition(drawn[:, index], len(drawn) - tail)[len(drawn) - tail])
        estimate = float(effects[index])
        base, new = (int(asked[place]) for place in pairs[index])
        interval = Interval(estimate=estimate, low=estimate - limit, high=estimate + limit, confidence=1 - level)
        effect = PredecessorEffect(base=base, new=new, effect=interval, p=ps[index], p_adjusted=adjusted[index])
        found.append(effect)
        step += effect.p_adjusted <= alpha
    return found


def _columns(labels: NDArray[np.generic]) -> Values:
    """Return a column of 0 and 1 for each label."""
    columns: Values = (labels[:, None] == np.unique(labels)).astype(float)
    return columns


def _basis(columns: Values) -> tuple[Values, int]:
    """Return orthonormal columns that span the same space, and their number."""
    left, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    kept = sizes > SINGULAR * sizes.max()
    return left[:, kept], int(kept.sum())


def _permuted(residuals: Values, blocks: Places, weights: Values, resamples: int, seed: int) -> Values:
    """Return weighted sums of residuals permuted within blocks, shape (resamples, weights)."""
    rng = np.random.default_rng(seed)
    numbers = np.unique(blocks, return_inverse=True)[1]
    sources = np.argsort(numbers, kind="stable")  # a draw sorts by block, then at random: place by place within it
    sums = []
    for rows in rows_of(resamples, len(residuals)):
        order = np.argsort(numbers + rng.random((rows, len(residuals))), axis=1)
        sums.append(residuals[order] @ weights[:, sources].T)
    return np.concatenate(sums)
