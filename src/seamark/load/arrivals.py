"""When requests are due: patterns, and the one seeded schedule that all workers of a trial share. No clock here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from seamark.model.service import Value

BLOCK = 1024
"""Arrivals that are made at once: small enough to make between two requests without being late for either."""

Seconds = npt.NDArray[np.float64]
Nanoseconds = npt.NDArray[np.int64]


class Pattern(Protocol):
    """An open-loop load: offsets from the start of load, without end, never decreasing."""

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays of BLOCK offsets."""
        ...

    def arrivals(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield the arrivals of `blocks` one by one, in seconds from the start of load."""
        for block in self.blocks(rng):
            yield from block.tolist()


@dataclass(frozen=True, kw_only=True)
class Constant(Pattern):
    """Equal gaps of 1/rate_rps seconds; arrival k is k gaps from the start, so that no error adds up."""

    rate_rps: float

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays; the random source is not used."""
        first = 0
        while True:
            yield np.arange(first, first + BLOCK) / self.rate_rps
            first += BLOCK


@dataclass(frozen=True, kw_only=True)
class Poisson(Pattern):
    """Independent exponential gaps of mean 1/rate_rps seconds, never clamped."""

    rate_rps: float

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays; gaps by inversion of uniform numbers."""
        at_s = 0.0
        while True:
            block = at_s + np.cumsum(-np.log1p(-rng.random(BLOCK)) / self.rate_rps)
            at_s = float(block[-1])
            yield block


@dataclass(frozen=True, kw_only=True)
class Ramp(Pattern):
    """A rate that goes linearly from `rate_rps` to `to_rps` in `over_s` seconds and stays there.

    Arrival k is when the integral of the rate reaches k: without randomness, so that what changes along a ramp
    is the rate alone.
    """

    rate_rps: float
    to_rps: float
    over_s: float

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays; the random source is not used."""
        slope = (self.to_rps - self.rate_rps) / self.over_s
        in_ramp = (self.rate_rps + self.to_rps) / 2 * self.over_s
        first = 0
        while True:
            k = np.arange(first, first + BLOCK, dtype=np.float64)
            # Solves rate t + slope t^2 / 2 = k in the form that stays exact for a small slope.
            root = np.sqrt(np.maximum(self.rate_rps**2 + 2 * slope * np.minimum(k, in_ramp), 0.0))
            inside = 2 * np.minimum(k, in_ramp) / (self.rate_rps + root)
            yield np.where(k <= in_ramp, inside, self.over_s + (k - in_ramp) / self.to_rps)
            first += BLOCK


def pattern_of(settings: Mapping[str, Value], over_s: float) -> Constant | Poisson | Ramp | None:
    """Return the open-loop pattern of a trial's settings, None for a closed loop. Raises ValueError."""
    name = settings.get("pattern") or "closed"
    if name == "closed":
        return None
    rate_rps = settings.get("rate_rps")
    if rate_rps is None:
        raise ValueError(f"pattern '{name}' needs rate_rps")
    if name == "constant":
        return Constant(rate_rps=float(rate_rps))
    if name == "poisson":
        return Poisson(rate_rps=float(rate_rps))
    if name == "ramp":
        to_rps = settings.get("ramp_to_rps")
        if to_rps is None:
            raise ValueError("pattern 'ramp' needs ramp_to_rps")
        return Ramp(rate_rps=float(rate_rps), to_rps=float(to_rps), over_s=over_s)
    raise ValueError(f"pattern '{name}' is not one of closed, constant, poisson, ramp")


def schedule(
    pattern: Pattern, *, seed: int, until_s: float, requests: int | None = None, worker: int = 0, workers: int = 1
) -> Iterator[Nanoseconds]:
    """Yield when worker `worker` of `workers` is to send, as arrays of ns from the start of load.

    Every worker makes the whole sequence and takes arrivals `worker`, `worker + workers`, ... of it: one worker or
    sixteen send the same. The sequence ends before `until_s` or after `requests` arrivals. Constant memory.
    """
    first = 0
    for block in pattern.blocks(np.random.Generator(np.random.PCG64(seed))):
        inside = block[: np.searchsorted(block, until_s, side="left")]
        if requests is not None:
            inside = inside[: requests - first]
        own = inside[(worker - first) % workers :: workers]
        if own.size:
            yield np.rint(own * 1e9).astype(np.int64)
        first += inside.size
        if inside.size < block.size:
            return
