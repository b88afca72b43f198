"""Time to claim and to finish a unit, and to plan an order, by number of units: `python benchmarks/claim_scale.py`.

Each size and order claims every unit of a list, as one lane after the other would, in a folder on this disk.
"""

import tempfile
import time
from pathlib import Path
from statistics import median

from seamark.dispatch.claim_list import ClaimList
from seamark.dispatch.order import Unit, order_of
from seamark.planning.plan_order import planned_order
from seamark.planning.plan_time import Span

SIZES = (10, 100, 1_000)
ORDERS = ("all", "longest_first", "barrier: 8", "window: 8", "chained: 8", "unroll: [model]")
PLANNED = 10_000
LIMIT = "1,000 units: a claim costs less than 20 ms; 10,000 units: an order is planned in less than 2 s"


def measure(count: int, written: str, root: Path) -> tuple[list[float], list[float]]:
    """Claim and finish every unit; return the seconds of each claim and of each finish."""
    units = [Unit(id=f"unit-{at:05}", estimated_s=at % 97, levels={"model": at % 10}) for at in range(count)]
    claims, order = ClaimList.make(root, lambda: units), order_of(written)
    claimed_s, finished_s = [], []
    while True:
        began_s = time.perf_counter()
        claim = claims.claim(order)
        if claim is None:
            return claimed_s, finished_s
        claimed_s.append(time.perf_counter() - began_s)
        began_s = time.perf_counter()
        claims.finish(claim)
        finished_s.append(time.perf_counter() - began_s)


def planning(count: int, written: str) -> float:
    """Return the seconds of planning an order of so many units on 16 lanes."""
    units = [Unit(id=f"unit-{at:05}", estimated_s=at % 97, levels={"model": at % 10}) for at in range(count)]
    spans = {unit.id: Span(least=1.0, typical=unit.estimated_s, most=200.0) for unit in units}
    began_s = time.perf_counter()
    planned_order(order_of(written), units, 16, spans, ["model"])
    return time.perf_counter() - began_s


def main() -> None:
    """Measure every size with every order and print a line for each."""
    columns = ("claim p50 ms", "claim max ms", "finish p50 ms")
    print(f"{'units':>7} {'order':<15}" + "".join(f"{name:>15}" for name in columns))
    for count in SIZES:
        for order in ORDERS:
            with tempfile.TemporaryDirectory() as folder:
                claimed_s, finished_s = measure(count, order, Path(folder))
            figures = (median(claimed_s), max(claimed_s), median(finished_s))
            print(f"{count:>7} {order:<15}" + "".join(f"{seconds * 1e3:>15.2f}" for seconds in figures))
    print(f"\n{'units':>7} {'order':<15}{'planned s':>15}")
    for order in ORDERS:
        print(f"{PLANNED:>7} {order:<15}{planning(PLANNED, order):>15.2f}")
    print(LIMIT)


if __name__ == "__main__":
    main()
