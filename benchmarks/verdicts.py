"""Verdicts of whole studies whose truth is known: `python benchmarks/verdicts.py KIND`. Prints a line for each.

Each study is a folder of its own with a scenario of two levels, six starts of the reference server each, through
`bench submit` and `bench compare`. Kinds:

- `equal`: the levels do not differ. False verdicts (better or worse) should come in 5 % of studies at most.
- `slower`: the second level is slower by `--slowdown` (0.1); `bench plan` says which shift it can show.
- `postgres`: config/scenarios/compare_postgres.yaml, whose larger cache is not slower: `worse` is false.

With `--neighbour` processes that compute come and go at random times, as on a machine that others use too.
`--side-by-side N` runs so many studies at a time, each a neighbour of the others.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from seamark.services.supervisor.node_locks import RUNTIME_DIR

ROOT = Path(__file__).resolve().parents[1]
BENCH = [sys.executable, "-m", "seamark.cli.main"]
BURN = """
import os, sys, time
end = time.monotonic() + float(sys.argv[2])
while os.getppid() == int(sys.argv[1]) and time.monotonic() < end: pass
"""
FALSE = {"equal": ("better", "worse"), "slower": ("better",), "postgres": ("worse",)}
QUIET_S, BUSY_S = (2.0, 15.0), (1.0, 10.0)
"""Least and greatest length of the times without and with a neighbour."""


def scenario_of(kind: str, slowdown: float, repetitions: int, seed: int, seconds: float | None) -> str:
    """Return the scenario of a study. `seed` varies the order of blocks and the arrivals; `seconds` is the length of
    a trial of `postgres`, with a quarter of that as warm-up, in place of what the file says."""
    if kind == "postgres":
        text = (ROOT / "config" / "scenarios" / "compare_postgres.yaml").read_text(encoding="utf-8")
        document = yaml.safe_load(text)
        if seconds is not None:
            document["workload"] |= {"duration_s": seconds, "warmup_s": seconds / 4}
            document["restarts"] = "each"  # also where a start takes longer than the load
        document["metadata"] = {"seed": seed}
        return yaml.safe_dump(document)
    levels = {"service_seed": [1, 2]} if kind == "equal" else {"ttft_ms": [5.0, 5.0 * (1 + slowdown)]}
    load = {"service": "known", "ttft_ms": 5.0, "gen_tokens": 1, "duration_s": 0.8, "warmup_s": 0.2, "concurrency": 1}
    document = {
        "scenario": kind,
        "repetitions": repetitions,
        "restarts": "each",
        "metadata": {"seed": seed},
        "workload": {**load, **levels},
    }
    return json.dumps(document)


def neighbour(stop: threading.Event, chance: random.Random) -> None:
    """Start and end processes that compute, at random times, until `stop` is set."""
    while not stop.wait(chance.uniform(*QUIET_S)):
        busy_s = chance.uniform(*BUSY_S)
        burn = [sys.executable, "-c", BURN, str(os.getpid()), str(busy_s)]
        burning = [subprocess.Popen(burn) for _ in range(chance.choice((1, 2, 4)))]
        stop.wait(busy_s)
        for process in burning:
            process.kill()
            process.wait()


def verdicts_of(study: Path, kind: str, text: str) -> list[dict[str, object]]:
    """Run one study and return its comparisons that have a verdict. Its locks are its own: it waits for no other."""
    environment = {**os.environ, RUNTIME_DIR: str(study)}
    scenario = study / f"{kind}.yaml"
    scenario.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [*BENCH, "submit", "-c", scenario.name], cwd=study, env=environment, capture_output=True, text=True
    )
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    compared = subprocess.run(
        [*BENCH, "compare", scenario.name, "--format", "json"], cwd=study, capture_output=True, text=True, check=True
    )
    found = json.loads(compared.stdout)["comparisons"]
    return [each for each in found if each["verdict"] is not None]


def main() -> None:
    """Run the studies and print each, then how often each verdict came."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=FALSE)
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="seed of the first study")
    parser.add_argument("--side-by-side", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--slowdown", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, help="length of a trial of `postgres`")
    parser.add_argument("--neighbour", action="store_true")
    options = parser.parse_args()
    counts: Counter[str] = Counter()

    def study(seed: int) -> tuple[int, list[dict[str, object]]]:
        stop = threading.Event()
        if options.neighbour:
            threading.Thread(target=neighbour, args=(stop, random.Random(seed)), daemon=True).start()
        text = scenario_of(options.kind, options.slowdown, options.repetitions, seed, options.seconds)
        with tempfile.TemporaryDirectory() as folder:
            try:
                return seed, verdicts_of(Path(folder), options.kind, text)
            finally:
                stop.set()

    with ThreadPoolExecutor(options.side_by_side) as studies:
        for seed, found in studies.map(study, range(options.first, options.first + options.studies)):
            for each in found:
                counts[str(each["verdict"])] += 1
                ratio, p = each["ratio"] or {}, each["p_adjusted"]
                print(
                    f"{seed:>4} {each['metric']:<16} {ratio.get('value', float('nan')):>8.3f}"
                    f" {'-' if p is None else f'{p:.3f}':>6}  {each['verdict']}",
                    flush=True,
                )
    total = sum(counts.values())
    false = sum(counts[word] for word in FALSE[options.kind])
    print(", ".join(f"{count} {word}" for word, count in counts.most_common()))
    print(f"false verdicts: {false} of {total} ({false / max(1, total):.1%})")


if __name__ == "__main__":
    main()
