"""Knee of a curve of throughput and response time over load, by its power."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

LEAST = 4
FULL = 0.95

Place = Literal["inside", "first", "last"]


@dataclass(frozen=True, kw_only=True)
class Knee:
    """The load with the greatest power: its `index`, and whether the measured loads enclose it.

    If the curve has one maximum, the true one lies between the loads before and after `index` for `place` inside. If
    it is the first or last load, the knee lies there or beyond.
    """

    index: int
    place: Place
    power: tuple[float, ...]


def knee(throughput: Sequence[float], response: Sequence[float]) -> Knee:
    """Return the load with the greatest throughput / mean response time; one value of each per load, in increasing
    order.

    That is the power of Giessler et al. (Free buffer allocation, Computer Networks 2, 1978) and of Kleinrock (Power
    and deterministic rules of thumb for probabilistic problems in computer communications, ICC 1979): at its maximum,
    one more percent of throughput costs one more percent of response time. In an M/M/1 queue that is at utilisation
    1/2, in a closed system without variation where the last idle server becomes busy. Raises ValueError for fewer
    than four loads, for sequences of different length and for values that are not positive.
    """
    if len(throughput) != len(response):
        raise ValueError(f"{len(throughput)} throughputs and {len(response)} response times")
    if len(throughput) < LEAST:
        raise ValueError(f"{len(throughput)} loads are too few to see a knee: it takes {LEAST}")
    if min(*throughput, *response) <= 0:
        raise ValueError("throughput and response time must be above 0")
    power = tuple(rate / time for rate, time in zip(throughput, response, strict=True))
    index = max(range(len(power)), key=power.__getitem__)
    place: Place = "first" if index == 0 else "last" if index == len(power) - 1 else "inside"
    return Knee(index=index, place=place, power=power)


def full_from(throughput: Sequence[float]) -> int:
    """Return the index of the first load that reaches FULL of the greatest throughput: higher loads mainly add
    waiting."""
    most = max(throughput)
    return next(index for index, rate in enumerate(throughput) if rate >= FULL * most)
