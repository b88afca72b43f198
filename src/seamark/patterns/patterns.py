"""Arrivals of an open-loop load, block by block: computed from rates, or streamed from a trace. No clock."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Protocol

import numpy as np
import numpy.typing as npt

from seamark.model.load_profile import HIGHEST_RPS
from seamark.model.service import LONGEST_S
from seamark.patterns.trace_file import BLOCK_TOKENS, recorded_arrivals

BLOCK = 1024
"""Number of arrivals computed at once: few enough to compute between two requests without delaying either."""

ROWS = 32
"""Number of rows read at once: few enough to delay no request, as for computed arrivals."""

Floats = npt.NDArray[np.float64]
Seconds = Floats


class Pattern(Protocol):
    """Arrivals of an open-loop load: offsets from the start of the load, never decreasing."""

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays of BLOCK offsets, without end; a trace in smaller ones, to its end."""
        ...

    def expected(self, at_s: float) -> float | None:
        """Return the expected number of arrivals in the first `at_s` seconds; None if only the file knows."""
        return None

    def count(self, until_s: float) -> float | None:
        """Return about how many arrivals the first `until_s` seconds hold: a trace counts the rows of its file.

        Raises OSError and ValueError for a file that cannot be read.
        """
        return self.expected(until_s)

    @property
    def gap_variation(self) -> float:
        """Coefficient of variation of the gaps between arrivals, or a bound on it: 1, as of Poisson arrivals."""
        return 1.0

    def arrivals(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield the arrivals of `blocks` one by one, in seconds from the start of load."""
        for block in self.blocks(rng):
            yield from block.tolist()


@dataclass(frozen=True, kw_only=True)
class _OneRate(Pattern):
    """Arrivals at one rate. In gaps of random lengths their count approaches the expected one in long loads."""

    rate_rps: float

    def expected(self, at_s: float) -> float:
        """Return the rate times the time."""
        return self.rate_rps * at_s


@dataclass(frozen=True, kw_only=True)
class Constant(_OneRate):
    """Equal gaps of 1/rate_rps seconds; arrival k is k gaps from the start, so errors do not accumulate."""

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays; the random source is not used."""
        for k in _numbers():
            yield k / self.rate_rps


@dataclass(frozen=True, kw_only=True)
class Poisson(_OneRate):
    """Independent exponential gaps of mean 1/rate_rps seconds, never clamped."""

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays; gaps by inversion of uniform numbers."""
        return _sums(lambda: _exponential(rng) / self.rate_rps)


@dataclass(frozen=True, kw_only=True)
class Gamma(_OneRate):
    """Independent gamma gaps of mean 1/rate_rps seconds, never clamped.

    `burstiness` is their shape, as in vLLM's benchmark: 1 is Poisson, the coefficient of variation is
    1/sqrt(burstiness). The load begins as if a request had just arrived.
    """

    burstiness: float

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays; a gap may be too short for a float, so two arrivals may be equal."""
        return _sums(lambda: rng.standard_gamma(self.burstiness, BLOCK) / (self.burstiness * self.rate_rps))

    @property
    def gap_variation(self) -> float:
        """Return 1/sqrt(burstiness)."""
        return float(self.burstiness**-0.5)


@dataclass(frozen=True, kw_only=True)
class Ramp(Pattern):
    """A rate that changes linearly from `rate_rps` to `to_rps` in `over_s` seconds and stays there.

    Arrival k is when the integral of the rate reaches k: without randomness, so only the rate changes along a ramp.
    """

    rate_rps: float
    to_rps: float
    over_s: float

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays; the random source is not used."""
        slope = (self.to_rps - self.rate_rps) / self.over_s
        in_ramp = (self.rate_rps + self.to_rps) / 2 * self.over_s
        for k in _numbers():
            # Solves rate t + slope t^2 / 2 = k in the form that stays exact for a small slope.
            root = np.sqrt(np.maximum(self.rate_rps**2 + 2 * slope * np.minimum(k, in_ramp), 0.0))
            inside = 2 * np.minimum(k, in_ramp) / (self.rate_rps + root)
            yield np.where(k <= in_ramp, inside, self.over_s + (k - in_ramp) / self.to_rps)

    def expected(self, at_s: float) -> float:
        """Return the integral of the rate."""
        inside_s = min(at_s, self.over_s)
        reached_rps = self.rate_rps + (self.to_rps - self.rate_rps) * inside_s / self.over_s
        return (self.rate_rps + reached_rps) / 2 * inside_s + self.to_rps * (at_s - inside_s)


@dataclass(frozen=True, kw_only=True)
class Steps(Pattern):
    """One rate after another, each for its `lengths_s`; the last stays.

    Arrival k is when the integral of the rate reaches k: without randomness, as in a ramp. A rate may be 0.
    """

    rates_rps: tuple[float, ...]
    lengths_s: tuple[float, ...]

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays, infinite ones after the last; the random source is not used."""
        stairs = _Stairs(self.rates_rps, self.lengths_s)
        for k in _numbers():
            yield stairs.reached(k)

    def expected(self, at_s: float) -> float:
        """Return the integral of the rate."""
        return _Stairs(self.rates_rps, self.lengths_s).integral(at_s)


@dataclass(frozen=True, kw_only=True)
class Bursts(Pattern):
    """Poisson arrivals at `rate_rps`, and at `burst_rps` for `burst_s` in the middle of every `every_s`.

    In the middle, so that a load of several periods neither begins nor ends with a burst and contains whole ones.
    Arrival k is when the integral of the rate reaches that of a Poisson process of rate 1 (time change).
    """

    rate_rps: float
    burst_rps: float
    burst_s: float
    every_s: float

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays."""
        stairs = self._period()
        each = stairs.integral(self.every_s)
        for units in _sums(lambda: _exponential(rng)):
            periods, part = np.divmod(units, each)
            yield periods * self.every_s + stairs.reached(part)

    def expected(self, at_s: float) -> float:
        """Return the integral of the rate."""
        periods, part_s = divmod(at_s, self.every_s)
        stairs = self._period()
        return periods * stairs.integral(self.every_s) + stairs.integral(part_s)

    def _period(self) -> "_Stairs":
        quiet_s = (self.every_s - self.burst_s) / 2
        return _Stairs((self.rate_rps, self.burst_rps, self.rate_rps), (quiet_s, self.burst_s, quiet_s))


@dataclass(frozen=True, kw_only=True)
class Diurnal(Pattern):
    """Poisson arrivals with a sinusoidal rate: `rate_rps` x (1 + `amplitude` x sin(2 pi t / `period_s`)).

    Arrival k is when the integral of the rate reaches that of a Poisson process of rate 1 (time change).
    """

    rate_rps: float
    amplitude: float
    period_s: float

    CELLS = 4096
    STEPS = 4

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays."""
        phases = np.linspace(0.0, 1.0, self.CELLS + 1)
        shares = self._share(phases)
        for units in _sums(lambda: _exponential(rng)):
            periods, share = np.divmod(units / (self.rate_rps * self.period_s), 1.0)
            yield (periods + self._phase(share, phases, shares)) * self.period_s

    def expected(self, at_s: float) -> float:
        """Return the integral of the rate."""
        return self.rate_rps * self.period_s * float(self._share(np.asarray(at_s / self.period_s)))

    def _share(self, phase: Floats) -> Floats:
        """Integral of the rate up to a phase (in periods), as a fraction of that over a whole period."""
        turn = 2 * np.pi
        return np.asarray(phase + self.amplitude / turn * (1 - np.cos(turn * phase)))

    def _phase(self, share: Floats, phases: Floats, shares: Floats) -> Floats:
        """Inverse of `_share`: Newton's method inside a cell of a table, bisection where the rate is near 0."""
        cell = np.clip(np.searchsorted(shares, share, side="right") - 1, 0, self.CELLS - 1)
        low, high = phases[cell], phases[cell + 1]
        phase = low + (high - low) * (share - shares[cell]) / (shares[cell + 1] - shares[cell])
        for _ in range(self.STEPS):
            off = self._share(phase) - share
            low, high = np.where(off <= 0, phase, low), np.where(off > 0, phase, high)
            slope = 1 + self.amplitude * np.sin(2 * np.pi * phase)
            step = phase - np.divide(off, slope, out=np.full_like(off, np.inf), where=slope > 0)
            phase = np.where((low <= step) & (step <= high), step, (low + high) / 2)
        return phase


@dataclass(frozen=True, kw_only=True)
class Trace(Pattern):
    """The arrivals of a file, their times multiplied by `time_scale`; with `lengths`, its prompts and replies have
    the lengths that it records. A block of its `hash_ids` has `block_tokens` tokens."""

    path: str
    time_scale: float = 1.0
    lengths: bool = True
    block_tokens: int = BLOCK_TOKENS

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in arrays of at most ROWS; the random source is not used.

        Raises ValueError with file and line for a row that cannot be read, OSError for the file.
        """
        arrivals = recorded_arrivals(self.path)
        while rows := list(islice(arrivals, ROWS)):
            yield np.array(rows) * self.time_scale

    def count(self, until_s: float) -> float:
        """Return the number of rows before `until_s`."""
        return sum(1 for _ in takewhile(lambda at_s: at_s * self.time_scale < until_s, recorded_arrivals(self.path)))


ONE_MOMENT_S = 1.0
"""Time between two passes over arrivals that are all at one time, which have no gap of their own."""


@dataclass(frozen=True, kw_only=True)
class Repeated(Pattern):
    """The arrivals of a pattern that ends, over and over. Between the last arrival of a pass and the first of the
    next lies the mean gap of the pass."""

    pattern: Pattern

    def blocks(self, rng: np.random.Generator) -> Iterator[Seconds]:
        """Yield the arrivals in the arrays of the pattern; none if it has none. Raises as its `blocks`."""
        offset_s = 0.0
        while True:
            count, first_s, last_s = 0, 0.0, 0.0
            for every in self.pattern.blocks(rng):
                block = every[np.isfinite(every)]  # steps whose last rate is 0 end with arrivals that never come
                if not block.size:
                    break
                first_s, last_s = first_s if count else float(block[0]), float(block[-1])
                count += block.size
                yield block + offset_s
                if block.size < every.size:
                    break
            if not count:
                return
            gap_s = (last_s - first_s) / max(1, count - 1)
            offset_s += last_s - first_s + (gap_s or ONE_MOMENT_S)


RateStep = tuple[float, float | None]
"""A rate in requests/s, and its length in seconds; None: as long as every other step."""


def steps_of(text: str) -> tuple[RateStep, ...]:
    """Return the steps of a `step_rates`. Raises ValueError with the mistake and the correct form."""
    steps = tuple(_step(part.strip()) for part in text.split(","))
    if len({length_s is None for _, length_s in steps}) > 1:
        raise ValueError("either every step has its seconds ('50:10,200:5') or none has ('50,200')")
    if len(steps) < 2:
        raise ValueError(
            "one rate is not a sequence of steps: write several, such as '50,100,200', or set 'pattern' to constant"
        )
    if not any(rate_rps for rate_rps, _ in steps):
        raise ValueError("a load in which every rate is 0 sends nothing")
    return steps


def _step(part: str) -> RateStep:
    rate, colon, length = part.partition(":")
    try:
        rate_rps, length_s = float(rate), float(length) if colon else None
    except ValueError:
        raise ValueError(f"'{part}' is not a rate: write rates such as '50,100,200' or '50:10,200:5'") from None
    if not (0 <= rate_rps <= HIGHEST_RPS and (length_s is None or 0 < length_s <= LONGEST_S)):
        raise ValueError(
            f"'{part}': a rate is 0 to {HIGHEST_RPS:.0f} requests/s, and its seconds are more than 0 and at most"
            f" {LONGEST_S:.0f}"
        )
    return rate_rps, length_s


class _Stairs:
    """A piecewise constant rate and its integral. The last piece has no end."""

    def __init__(self, rates_rps: tuple[float, ...], lengths_s: tuple[float, ...]) -> None:
        self._rates = np.array(rates_rps)
        self._starts = np.concatenate(([0.0], np.cumsum(lengths_s)[:-1]))
        self._before = np.concatenate(([0.0], np.cumsum(self._rates * lengths_s)[:-1]))

    def integral(self, at_s: float) -> float:
        """Return the integral of the rate from 0 to `at_s`."""
        part = int(np.searchsorted(self._starts, at_s, side="right")) - 1
        return float(self._before[part] + self._rates[part] * (at_s - self._starts[part]))

    def reached(self, integral: Floats) -> Seconds:
        """Return the times at which the integral reaches these values: inf for never."""
        part = np.searchsorted(self._before, integral, side="right") - 1
        rates = self._rates[part]
        waits = np.divide(integral - self._before[part], rates, out=np.full_like(integral, np.inf), where=rates > 0)
        return np.asarray(self._starts[part] + waits)


def _numbers() -> Iterator[Floats]:
    """Yield 0, 1, 2, ... in blocks."""
    first = 0.0
    while True:
        yield np.arange(first, first + BLOCK)
        first += BLOCK


def _exponential(rng: np.random.Generator) -> Floats:
    """Return BLOCK exponential variates of mean 1."""
    return np.asarray(-np.log1p(-rng.random(BLOCK)))


def _sums(gaps: Callable[[], Floats]) -> Iterator[Floats]:
    """Yield the cumulative sum of gaps that are computed block by block."""
    at = 0.0
    while True:
        block = at + np.cumsum(gaps())
        at = float(block[-1])
        yield block
