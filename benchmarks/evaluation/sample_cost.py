"""What a sample of an evaluation costs beside its model: `python benchmarks/evaluation/sample_cost.py`.

A Llama of random weights on one thread answers questions on contexts of their own under the method `sink_local`
(kernel `gathered`), one at a time. Two figures:

- HTTP, driver and kept replies: time of the load beyond the time in which the server computed requests, a sample.
- Output error: time of a load in which 2 % of the steps are compared with dense attention, over one without, paired.
"""

import argparse
import statistics
import tempfile
import urllib.request
from pathlib import Path

from lm_evaluation_harness import BENCHMARK, by_seamark, evaluation_python, make_model, planned, server

OVERHEAD_MS, OVERHEAD_RATIO, ERROR_RATIO = 2.0, 0.03, 0.05


def main() -> None:
    """Read the arguments, take turns, print both figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--length", type=int, default=1000, help="words, each one token")
    parser.add_argument("--tokens", type=int, default=16, help="of an answer")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, longest = Path(name), asked.length + asked.tokens + 64
        python = evaluation_python()
        make_model(python, folder, longest)
        text = BENCHMARK.format(
            name="own", tokens=asked.tokens, length=asked.length, questions=asked.questions, depths=[0.5]
        )
        settings, prompts = planned(folder, "own", text, method="sink_local")
        beyond_ms, shares, ratios = [], [], []
        with server(python, folder, longest, 1) as port:
            for turn in range(asked.rounds + 1):
                took_s = {}
                for ratio in (0.0, 0.02) if turn % 2 else (0.02, 0.0):
                    before_s = computed_s(port)
                    seconds, _ = by_seamark(
                        folder, python, port, {**settings, "measure_error_ratio": ratio}, 2 * turn + bool(ratio)
                    )
                    took_s[ratio] = seconds
                    if turn:  # the first is a warm-up
                        beyond_s = seconds - (computed_s(port) - before_s)
                        beyond_ms.append(beyond_s / len(prompts) * 1e3)
                        shares.append(beyond_s / seconds)
                if turn:
                    ratios.append(took_s[0.02] / took_s[0.0] - 1)
    print(
        f"{len(prompts)} questions of {asked.length} tokens, {asked.tokens} tokens an answer, {asked.rounds} rounds\n"
        f"HTTP, driver and kept replies: median {statistics.median(beyond_ms):.2f} ms a sample,"
        f" {statistics.median(shares):.1%} of its time (targets {OVERHEAD_MS:g} ms, {OVERHEAD_RATIO:.0%})\n"
        f"output error: {statistics.median(ratios):+.1%} of the load's time, of a round {min(ratios):+.1%} to"
        f" {max(ratios):+.1%} (target {ERROR_RATIO:.0%})"
    )


def computed_s(port: int) -> float:
    """Return the time in which the server has computed requests, from its metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        lines = reply.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith("seamark_request_seconds_total ")).split()[1])


if __name__ == "__main__":
    main()
