"""Lengths in tokens as settings describe them, drawn with a seed. Knows no prompt and no protocol."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log, log1p, sqrt
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from seamark.errors import UserError, did_you_mean
from seamark.model.service import Value

Shape = Literal["fixed", "uniform", "lognormal"]
SHAPES: tuple[Shape, ...] = get_args(Shape)


def whole(settings: Mapping[str, Value], name: str, otherwise: int) -> int:
    """Return a setting that is a whole number; `otherwise` where it is not set."""
    value = settings.get(name)
    return otherwise if value is None else int(value)


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """How lengths are spread about their mean.

    `spread` is half the width over the mean of a uniform shape, the standard deviation over the mean of a lognormal
    one.
    """

    name: str
    mean: int
    shape: Shape
    spread: float

    @staticmethod
    def of(settings: Mapping[str, Value], name: str) -> "Lengths":
        """Return the lengths that the settings NAME, NAME_shape and NAME_spread describe. Raises UserError."""
        shape = settings.get(f"{name}_shape") or "fixed"
        spread = float(settings.get(f"{name}_spread") or 0.0)
        if shape not in SHAPES:
            raise UserError(f"{name}_shape: '{shape}' is none of {', '.join(SHAPES)}.{did_you_mean(shape, SHAPES)}")
        if shape == "fixed" and spread:
            raise UserError(
                f"{name}_spread: has no effect while {name}_shape is fixed. Set it to uniform or lognormal."
            )
        if shape == "uniform" and spread > 1:
            raise UserError(f"{name}_spread: {spread:g} would make lengths negative. A uniform shape takes 0 to 1.")
        return Lengths(name=name, mean=whole(settings, name, 128), shape=shape, spread=spread)

    @property
    def longest(self) -> int | None:
        """The longest there can be; None for a lognormal shape, which has no end."""
        return None if self.shape == "lognormal" and self.spread else round(self.mean * (1 + self.spread))

    def draw(self, count: int, rng: np.random.Generator, most: int | None = None) -> NDArray[np.int64]:
        """Return `count` lengths of 1 to `most` tokens in random order.

        One is from each of `count` equally likely parts of the distribution, so that a few of them have the mean of
        many. A lognormal shape is cut off at `most`; UserError when another does not fit, or the mean does not.
        """
        longest = self.longest or self.mean
        if most is not None and longest > most:
            raise UserError(
                f"{self.name}: {longest} tokens do not fit, there is room for {most}. "
                "Prompt and reply together may have max_model_len tokens."
            )
        if not self.spread:
            return np.full(count, self.mean, dtype=np.int64)
        parts = (rng.permutation(count) + rng.random(count)) / count
        if self.shape == "uniform":
            lengths = self.mean * (1 + self.spread * (2 * parts - 1))
        else:
            from statistics import NormalDist  # slow to import, and few loads need it

            sigma = sqrt(log1p(self.spread**2))
            normal = NormalDist(log(self.mean) - sigma**2 / 2, sigma)
            share = 1.0 if most is None else normal.cdf(log(most + 0.5))
            lengths = np.array([exp(normal.inv_cdf(min(max(part * share, 1e-12), 1 - 1e-12))) for part in parts])
        return np.clip(np.rint(lengths), 1, most).astype(np.int64)
