"""Speed of a decode step under a fixed method: kernel `gathered` against `masked` and against dense SDPA of torch.

    python benchmarks/evaluation/gathered_attention.py --rounds 30

Sink and local of 5 % of 8,000 keys, heads of a usual 8-billion model (32 in 8 groups, 128 channels), float32, one
core. All are timed in each round, one after another, so a ratio is one of the same seconds. The script starts itself
again in the environment `evaluation`.
"""

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
METHOD = {
    "name": "sink_local",
    "maskers": [{"masker": "sink", "fraction": 0.025}, {"masker": "local", "fraction": 0.025}],
}
TARGET_RATIO = 6.0
MOST_APART = 1e-5
WARM_UP = 3


def measure(keys: int, heads: int, groups: int, size: int, rounds: int) -> None:
    """Print times, ratios and differences of the outputs."""
    import torch

    from seamark_evaluate.attention.attend import attend, dense
    from seamark_evaluate.attention.method import read_method

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(heads, 1, size, generator=generator)
    k, v = (torch.randn(groups, keys, size, generator=generator) for _ in range(2))
    method, scale = read_method(METHOD, "gathered_attention.py"), size**-0.5

    def under(kernel: Any) -> Callable[[], Any]:
        return lambda: attend(q, k, v, method=method, kernel=kernel, scale=scale, layer=0).output

    steps: Mapping[str, Callable[[], Any]] = {
        "gathered": under("gathered"),
        "masked": under("masked"),
        "dense SDPA": lambda: dense(q, k, v, scale),
    }
    outputs = {name: step() for name, step in steps.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(WARM_UP + rounds):
        for name, step in steps.items():
            began = time.perf_counter()
            step()
            if number >= WARM_UP:
                times[name].append(time.perf_counter() - began)
    kept = attend(q, k, v, method=method, kernel="gathered", scale=scale, layer=0)
    apart = float((outputs["gathered"] - outputs["masked"]).abs().max())
    print(
        f"{keys} keys, {heads} heads in {groups} groups of {size}, {rounds} rounds,"
        f" density {kept.kept / kept.allowed:.3f}"
    )
    for name, each in times.items():
        print(f"{name:12} median {statistics.median(each) * 1e3:8.3f} ms")
    met = apart <= MOST_APART
    for name in ("masked", "dense SDPA"):
        ratios = [slow / fast for slow, fast in zip(times[name], times["gathered"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        met &= middle >= TARGET_RATIO
        print(f"{name} / gathered: median {middle:.1f} of the rounds' ratios, quartiles {low:.1f} to {high:.1f}")
    print(f"gathered and masked differ by {apart:.1e} at most")
    print(f"target (>= {TARGET_RATIO:g} times both, within {MOST_APART:g}): {'met' if met else 'missed'}")


def main() -> None:
    """Read the arguments; measure here where torch is, else in the environment `evaluation`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=8000)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--size", type=int, default=128, help="channels of a head")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is not None:
        measure(**vars(options))
        return
    from seamark.services.runtimes.environments import prepare_environment

    place = prepare_environment("evaluation", ROOT / "envs", CACHE / "envs")
    command = [str(place / "bin" / "python"), __file__, *sys.argv[1:]]
    sys.exit(subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=False).returncode)


if __name__ == "__main__":
    main()
