"""A station of servers with queues: arrivals are routed to servers and served in order, on a virtual clock."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace

import numpy as np

from seamark_simulate.model.fitted_model import Family, Router
from seamark_simulate.simulation.schedule import Floats, Ints

Draw = Callable[[np.random.Generator, int], Floats]
"""Draws a number of service times in seconds."""


def exponential(mean_s: float) -> Draw:
    """Return exponential times of that mean."""
    return lambda random, count: random.exponential(mean_s, count)


def constant(mean_s: float) -> Draw:
    """Return times that are all the same."""
    return lambda random, count: np.full(count, mean_s)


def lognormal(mean_s: float, variation: float) -> Draw:
    """Return lognormal times of that mean; `variation` is the standard deviation over the mean."""
    sigma2 = float(np.log1p(variation**2))
    return lambda random, count: random.lognormal(np.log(mean_s) - sigma2 / 2, sigma2**0.5, count)


def gamma(mean_s: float, variation: float) -> Draw:
    """Return gamma times of that mean; `variation` is the standard deviation over the mean."""
    shape = 1 / variation**2
    return lambda random, count: random.gamma(shape, mean_s / shape, count)


def drawn_by(family: Family, mean_s: float, variation: float) -> Draw:
    """Return times of a family; an exponential one has a variation of 1, one of variation 0 is constant."""
    if family == "constant" or not variation:
        return constant(mean_s)
    if family == "exponential":
        return exponential(mean_s)
    return gamma(mean_s, variation) if family == "gamma" else lognormal(mean_s, variation)


def empirical(times_s: Sequence[float]) -> Draw:
    """Return times drawn with replacement from measured ones."""
    values = np.asarray(times_s, np.float64)
    return lambda random, count: random.choice(values, count)


@dataclass(frozen=True, kw_only=True)
class Station:
    """`servers` equal servers with a distribution of service times.

    `one-queue`: a common queue, first come, first served. The other routers send each request on arrival to the queue
    of one server: a random one, each in turn, the one with fewer requests of two random ones, or that with the fewest
    requests (of equals the lowest).
    """

    servers: int
    service: Draw
    router: Router = "one-queue"


@dataclass(frozen=True, kw_only=True)
class Served:
    """What became of each request: its server, and when it arrived, started and ended."""

    server: Ints
    arrival_s: Floats
    start_s: Floats
    end_s: Floats

    @property
    def waiting_s(self) -> Floats:
        """Time from arrival to start."""
        return self.start_s - self.arrival_s


def serve(station: Station, arrival_s: Floats, random: np.random.Generator, priority: Ints | None = None) -> Served:
    """Serve arrivals, sorted by time, at a station. Service times are drawn in the order of arrivals, so every router
    sees the same ones.

    With `priority`, one of each request, a server that becomes free takes the waiting request of the highest, of
    equals the first; service is not interrupted. Only a common queue has priorities: ValueError for other routers.
    """
    service_s = station.service(random, len(arrival_s)).tolist()
    rows = list(zip(arrival_s.tolist(), service_s, strict=True))
    if priority is not None and station.router != "one-queue":
        raise ValueError(f"router {station.router}: priorities need one-queue")
    if priority is not None:
        server, start_s = _by_priority(rows, (-priority).tolist(), station.servers)
    elif station.router == "one-queue":
        server, start_s = _one_queue(rows, station.servers)
    elif (drawn := blind_route(station.router, station.servers, len(rows), random)) is not None:
        server, start_s = _routed(rows, drawn.tolist(), station.servers)
    else:
        pairs = two_of(station.servers, len(rows), random) if station.router == "power-of-two" else None
        server, start_s = _by_load(rows, pairs, station.servers)
    starts_s = np.asarray(start_s, np.float64)
    return Served(
        server=np.asarray(server, np.int64),
        arrival_s=arrival_s,
        start_s=starts_s,
        end_s=starts_s + np.asarray(service_s, np.float64),
    )


def _one_queue(rows: Sequence[tuple[float, float]], servers: int) -> tuple[list[int], list[float]]:
    """Each request starts on the server that is free first (Kiefer and Wolfowitz); of idle ones on the lowest."""
    idle, busy = list(range(servers)), list[tuple[float, int]]()
    heapify(idle)
    server, start_s = [], []
    for at_s, length_s in rows:
        while busy and busy[0][0] <= at_s:
            heappush(idle, heappop(busy)[1])
        if idle:
            chosen, begin_s = heappop(idle), at_s
            heappush(busy, (at_s + length_s, chosen))
        else:
            begin_s, chosen = busy[0]
            heapreplace(busy, (begin_s + length_s, chosen))
        server.append(chosen)
        start_s.append(begin_s)
    return server, start_s


def _by_priority(
    rows: Sequence[tuple[float, float]], rank: Sequence[int], servers: int
) -> tuple[list[int], list[float]]:
    """As `_one_queue`, but the waiting request of the lowest rank starts first."""
    idle, busy, waiting = list(range(servers)), list[tuple[float, int]](), list[tuple[int, int]]()
    server, start_s = [0] * len(rows), [0.0] * len(rows)

    def begin(number: int, chosen: int, begin_s: float) -> None:
        server[number], start_s[number] = chosen, begin_s
        heappush(busy, (begin_s + rows[number][1], chosen))

    def free_until(at_s: float) -> None:
        while busy and busy[0][0] <= at_s:
            end_s, chosen = heappop(busy)
            if waiting:
                begin(heappop(waiting)[1], chosen, end_s)
            else:
                heappush(idle, chosen)

    for number, (at_s, _) in enumerate(rows):
        free_until(at_s)
        if idle:
            begin(number, heappop(idle), at_s)
        else:
            heappush(waiting, (rank[number], number))
    free_until(float("inf"))
    return server, start_s


def _routed(
    rows: Sequence[tuple[float, float]], chosen: Sequence[int], servers: int
) -> tuple[list[int], list[float]]:
    """Each request starts when its server is free (Lindley)."""
    free_s, start_s = [0.0] * servers, []
    for (at_s, length_s), number in zip(rows, chosen, strict=True):
        begin_s = max(at_s, free_s[number])
        free_s[number] = begin_s + length_s
        start_s.append(begin_s)
    return list(chosen), start_s


def _by_load(
    rows: Sequence[tuple[float, float]], pairs: Sequence[tuple[int, int]] | None, servers: int
) -> tuple[list[int], list[float]]:
    """Each request goes to the server with the fewest requests: of two drawn ones, else of all."""
    ends_s = [deque[float]() for _ in range(servers)]
    server, start_s = [], []
    everyone = range(servers)
    for number, (at_s, length_s) in enumerate(rows):
        candidates = everyone if pairs is None else pairs[number]
        for candidate in candidates:
            while ends_s[candidate] and ends_s[candidate][0] <= at_s:
                ends_s[candidate].popleft()
        chosen = min(candidates, key=lambda candidate: len(ends_s[candidate]))
        begin_s = max(at_s, ends_s[chosen][-1]) if ends_s[chosen] else at_s
        ends_s[chosen].append(begin_s + length_s)
        server.append(chosen)
        start_s.append(begin_s)
    return server, start_s


def blind_route(router: Router, servers: int, count: int, random: np.random.Generator) -> Ints | None:
    """Return the server of each request for routers that look at none of them; None for the other routers."""
    if router == "random":
        return random.integers(servers, size=count)
    return np.arange(count) % servers if router == "round-robin" else None


def two_of(servers: int, count: int, random: np.random.Generator) -> list[tuple[int, int]]:
    """Return two different servers for each request, the only one twice."""
    first = random.integers(servers, size=count)
    second = (first + random.integers(1, max(servers, 2), size=count)) % servers
    return list(zip(first.tolist(), second.tolist(), strict=True))
