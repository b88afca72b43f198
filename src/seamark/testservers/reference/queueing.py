"""One server and a line before it, first come first served: when a request leaves. No sockets, no clock."""

from random import Random

from seamark.testservers.reference.behaviour import QueueKind


class Queue:
    """M/M/1 or M/D/1, if requests come at exponential gaps: exponential or fixed times of service.

    In service times, at utilisation r: the mean sojourn is 1 / (1 - r) for M/M/1, whose sojourn is exponential (at
    r = 0.5: mean 2, p50 1.386, p99 9.21), and 1 + r / (2 (1 - r)) for M/D/1 (Pollaczek-Khinchine; at 0.5: 1.5).
    """

    def __init__(self, kind: QueueKind, mean_ns: int, seed: int) -> None:
        if kind == "none" or mean_ns <= 0:
            raise ValueError("a queue needs a kind and a mean time of service")
        self._mean_ns = mean_ns
        self._draw = Random(f"{seed}/service").expovariate if kind == "mm1" else None
        self._free_ns = 0

    def leaves_ns(self, read_ns: int) -> int:
        """Return when a request leaves that came at `read_ns`; call it in the order of arrival."""
        service_ns = self._mean_ns if self._draw is None else round(self._draw(1.0) * self._mean_ns)
        self._free_ns = max(self._free_ns, read_ns) + service_ns
        return self._free_ns
