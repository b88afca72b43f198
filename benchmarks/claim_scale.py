"""Time to claim and to finish a unit by number of units: `python benchmarks/claim_scale.py`. Prints a table.

Each size and policy claims every unit of a list, as one lane after the other would, in a folder on this disk.
"""

import tempfile
import time
from pathlib import Path
from statistics import median

from seamark.dispatch.claim_list import ClaimList
from seamark.dispatch.claim_policies import Unit, claim_policy

SIZES = (10, 100, 1_000)
POLICIES = ("in_order", "longest_first", "barrier(8)", "sliding(8)", "unroll(model)")
LIMIT = "1,000 units: a claim costs less than 20 ms"


def measure(count: int, policy: str, root: Path) -> tuple[list[float], list[float]]:
    """Claim and finish every unit; return the seconds of each claim and of each finish."""
    units = [Unit(id=f"unit-{at:05}", estimated_s=at % 97, levels={"model": at % 10}) for at in range(count)]
    claims, choose = ClaimList.make(root, lambda: units), claim_policy(policy)
    claimed_s, finished_s = [], []
    while True:
        began_s = time.perf_counter()
        claim = claims.claim(choose)
        if claim is None:
            return claimed_s, finished_s
        claimed_s.append(time.perf_counter() - began_s)
        began_s = time.perf_counter()
        claims.finish(claim)
        finished_s.append(time.perf_counter() - began_s)


def main() -> None:
    """Measure every size with every policy and print a line for each."""
    columns = ("claim p50 ms", "claim max ms", "finish p50 ms")
    print(f"{'units':>7} {'policy':<15}" + "".join(f"{name:>15}" for name in columns))
    for count in SIZES:
        for policy in POLICIES:
            with tempfile.TemporaryDirectory() as folder:
                claimed_s, finished_s = measure(count, policy, Path(folder))
            figures = (median(claimed_s), max(claimed_s), median(finished_s))
            print(f"{count:>7} {policy:<15}" + "".join(f"{seconds * 1e3:>15.2f}" for seconds in figures))
    print(LIMIT)


if __name__ == "__main__":
    main()
