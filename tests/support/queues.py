"""Queues of one server, simulated by Lindley's recursion, and what theory says of them."""

from decimal import Decimal, localcontext

import numpy as np


def queue(rng, *, utilisation, rate_rps, warmup_s, duration_s, fixed=False):
    """Due and end of each request of an M/M/1 queue, `fixed` an M/D/1 queue, that began long before its time 0.

    `rate_rps` is that of arrivals. Requests that were due before 0 and ended before it are left out.
    """
    mean_s = utilisation / rate_rps
    settled_s = 30 * mean_s / (1 - utilisation**0.5) ** 2
    count = int((settled_s + warmup_s + duration_s) * rate_rps)
    count += int(8 * count**0.5)
    gaps_s = rng.exponential(1 / rate_rps, count)
    work_s = np.full(count, mean_s) if fixed else rng.exponential(mean_s, count)
    sums_s = np.concatenate([[0.0], np.cumsum(work_s[:-1] - gaps_s[1:])])
    waited_s = sums_s - np.minimum.accumulate(sums_s)
    due_s = np.cumsum(gaps_s) - settled_s
    ended_s = due_s + waited_s + work_s
    chosen = (due_s >= 0) & (due_s < warmup_s + duration_s)
    return due_s[chosen], ended_s[chosen]


def mean_s(*, utilisation, rate_rps, fixed=False):
    """Mean response time: Pollaczek and Khinchine."""
    work_s = utilisation / rate_rps
    return work_s + work_s * utilisation / (1 - utilisation) * (0.5 if fixed else 1.0)


def p99_s(*, utilisation, rate_rps, fixed=False):
    """The 99th percentile of response time: exponential in M/M/1; of M/D/1 by Erlang's formula for its wait."""
    work_s = utilisation / rate_rps
    if not fixed:
        return work_s / (1 - utilisation) * float(np.log(100))
    low, high = 0.0, 200.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if _waits_at_most(middle, utilisation) < 0.99 else (low, middle)
    return work_s * (1 + low)


def _waits_at_most(services, utilisation):
    """P(W <= t) of M/D/1, t in service times: (1 - rho) sum over k <= t of (rho (k - t))^k / k! e^(-rho (k - t))."""
    with localcontext() as context:
        context.prec = 120
        total, factorial = Decimal(0), Decimal(1)
        for k in range(int(services) + 1):
            factorial *= max(k, 1)
            base = Decimal(utilisation) * (k - Decimal(services))
            total += (base**k if k else Decimal(1)) / factorial * (-base).exp()
        return float((1 - Decimal(utilisation)) * total)
