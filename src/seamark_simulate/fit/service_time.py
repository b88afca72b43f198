"""Distributions of service times: exponential, gamma and lognormal, fitted by maximum likelihood to sums of times."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from seamark_simulate.model.fitted_model import Family
from seamark_simulate.simulation.schedule import Floats

FAMILIES: tuple[Family, ...] = ("exponential", "gamma", "lognormal")
PARAMETERS = {"exponential": 1, "gamma": 2, "lognormal": 2}
LEAST_VARIATION = 0.005
"""Of service times that are all the same: no clock and no network measures them better."""


@dataclass(frozen=True, kw_only=True)
class Sums:
    """What a fit needs of positive times in seconds: their number, sum, sum of logarithms and of their squares; and
    how many times are not positive, as their requests ended out of order."""

    count: float
    total_s: float
    logs: float
    squared_logs: float
    out_of_order: int

    @classmethod
    def of(cls, times_s: Floats) -> Self:
        """Return the sums of times, shape (requests,)."""
        positive_s = times_s[times_s > 0]
        logs = np.log(positive_s)
        return cls(
            count=len(positive_s),
            total_s=float(positive_s.sum()),
            logs=float(logs.sum()),
            squared_logs=float((logs**2).sum()),
            out_of_order=len(times_s) - len(positive_s),
        )

    def plus(self, other: "Sums") -> "Sums":
        """Return the sums over the times of both."""
        return Sums(
            count=self.count + other.count,
            total_s=self.total_s + other.total_s,
            logs=self.logs + other.logs,
            squared_logs=self.squared_logs + other.squared_logs,
            out_of_order=self.out_of_order + other.out_of_order,
        )


@dataclass(frozen=True, kw_only=True)
class ServiceTime:
    """A distribution of times in seconds; `variation` is the standard deviation over the mean."""

    family: Family
    mean_s: float
    variation: float

    def cdf(self, times_s: Floats) -> NDArray[np.float64]:
        """Return the share of times up to each one."""
        return np.asarray(self._frozen.cdf(times_s))

    def beyond(self, time_s: float) -> float:
        """Return the share of times above one."""
        return float(self._frozen.sf(time_s))

    def log_likelihood(self, sums: Sums) -> float:
        """Return the sum of the logarithms of the densities at the times of some sums."""
        if self.family == "exponential":
            return float(-sums.count * np.log(self.mean_s) - sums.total_s / self.mean_s)
        if self.family == "gamma":
            shape, scale = self._shape, self.mean_s / self._shape
            constant = special.gammaln(shape) + shape * np.log(scale)
            return float((shape - 1) * sums.logs - sums.total_s / scale - sums.count * constant)
        middle = np.log(self.mean_s) - self._sigma2 / 2
        squares = sums.squared_logs - 2 * middle * sums.logs + sums.count * middle**2
        return float(-sums.logs - sums.count / 2 * np.log(2 * np.pi * self._sigma2) - squares / (2 * self._sigma2))

    @property
    def _shape(self) -> float:
        return 1 / self.variation**2

    @property
    def _sigma2(self) -> float:
        return float(np.log1p(self.variation**2))

    @cached_property
    def _frozen(self) -> Any:
        if self.family == "exponential":
            return stats.expon(scale=self.mean_s)
        if self.family == "gamma":
            return stats.gamma(self._shape, scale=self.mean_s / self._shape)
        return stats.lognorm(self._sigma2**0.5, scale=self.mean_s * np.exp(-self._sigma2 / 2))


def fit_service_time(sums: Sums, family: Family) -> ServiceTime:
    """Return the distribution of a family with the largest likelihood of the times of some sums."""
    mean_s, log_mean = sums.total_s / sums.count, sums.logs / sums.count
    if family == "exponential":
        return ServiceTime(family=family, mean_s=mean_s, variation=1.0)
    if family == "gamma":
        variation = _gamma_shape(float(np.log(mean_s) - log_mean)) ** -0.5
        return ServiceTime(family=family, mean_s=mean_s, variation=max(variation, LEAST_VARIATION))
    sigma2 = max(sums.squared_logs / sums.count - log_mean**2, LEAST_VARIATION**2)
    return ServiceTime(
        family=family, mean_s=float(np.exp(log_mean + sigma2 / 2)), variation=float(np.expm1(sigma2)) ** 0.5
    )


def _gamma_shape(gap: float) -> float:
    """Return the shape k with log k - digamma(k) = gap, by Newton's method from Minka's start (2002)."""
    gap = max(gap, LEAST_VARIATION**2 / 2)
    shape = (3 - gap + ((gap - 3) ** 2 + 24 * gap) ** 0.5) / (12 * gap)
    for _ in range(4):
        step = (np.log(shape) - special.digamma(shape) - gap) / (1 / shape - special.polygamma(1, shape))
        shape = max(shape - float(step), shape / 2)
    return float(shape)
