"""Real runs of a server whose truth is known, a model fitted to them, and a load that it never saw:
`python benchmarks/fit_known.py`. Prints a line for each study.

Each study runs the reference server as a queue (5 ms, exponential or constant) with Poisson arrivals at a
utilisation of .2, .4, .6 and .8 through `bench submit`. A station is fitted to the first three; its 90 % intervals of
mean, p50 and p99 at .8 are held against each trial there. `contradicted` counts sentences against a model in its own
trials.
`--side-by-side N` runs so many studies at a time, each a neighbour of the others.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from seamark.housekeeping.compared_results import results_named
from seamark.services.supervisor.node_locks import RUNTIME_DIR
from seamark_simulate.fit.contradiction import contradictions
from seamark_simulate.fit.prediction import predict_station
from seamark_simulate.fit.station_fit import fit_station
from seamark_simulate.trials.fit_inputs import fit_inputs

BENCH = [sys.executable, "-m", "seamark.cli.main"]
MEAN_S, HELD_OUT_RPS = 0.005, 160.0
FIGURES = ("mean_s", "p50_s", "p99_s")


def scenario_of(queue: str, seed: int, repetitions: int, duration_s: float) -> str:
    """Return the scenario of a study."""
    workload = {
        "service": "known",
        "queue": queue,
        "service_seed": seed,
        "ttft_ms": MEAN_S * 1e3,
        "gen_tokens": 1,
        "pattern": "poisson",
        "rate_rps": [40.0, 80.0, 120.0, HELD_OUT_RPS],
        "concurrency": 256,
        "duration_s": duration_s,
        "warmup_s": 2.0,
    }
    document = {"scenario": "study", "repetitions": repetitions, "metadata": {"seed": seed}, "workload": workload}
    return json.dumps(document)


def line_of(study: Path, text: str, seed: int) -> tuple[str, int, int]:
    """Run a study, fit and predict; return its line, how many figures were predicted and how many lay inside."""
    (study / "study.yaml").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [*BENCH, "submit", "-c", "study.yaml"],
        cwd=study,
        env={**os.environ, RUNTIME_DIR: str(study)},
        capture_output=True,
        text=True,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    results = results_named(study, "study.yaml", None)
    inputs = fit_inputs([(results.plan, results.folder)])
    [group] = inputs.stations
    held = [trial for trial in group.trials if trial.rate_rps > 0.9 * HELD_OUT_RPS]
    trials = [trial for trial in group.trials if trial not in held]
    station = fit_station(trials, seed=seed)
    inside: Counter[str] = Counter()
    for trial in held:
        said = predict_station(station, trial, seed).figures
        known = said.keys() & trial.figures.keys()  # a short load has no p99
        inside.update(name for name in known if said[name].low <= trial.figures[name] <= said[name].high)
    fitted = station.parameters
    shares = "  ".join(f"{inside[name]}/{len(held)}" for name in FIGURES)
    line = (
        f"{seed:>4} {station.servers:>7} {station.family:<12} {fitted.mean_s * 1e3:>7.3f} {fitted.variation:>9.3f}"
        f" {fitted.overhead_s * 1e3:>8.3f} {station.between:>7.3f} {len(contradictions(station, trials)):>12}"
        f"  {shares}  {len(inputs.left_out)} left out"
    )
    return line, len(held) * len(FIGURES), inside.total()


def main() -> None:
    """Run the studies and print each, then how many figures lay in their intervals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queue", choices=("mm1", "md1"), default="mm1")
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--first", type=int, default=1, help="seed of the first study")
    parser.add_argument("--side-by-side", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--duration", type=float, default=12.0, help="measured seconds of a trial")
    options = parser.parse_args()

    def study(seed: int) -> tuple[str, int, int]:
        text = scenario_of(options.queue, seed, options.repetitions, options.duration)
        with tempfile.TemporaryDirectory() as folder:
            return line_of(Path(folder), text, seed)

    print("seed servers family       mean ms variation overhead between contradicted  mean p50 p99 inside")
    counted = inside = 0
    with ThreadPoolExecutor(options.side_by_side) as studies:
        for line, figures, good in studies.map(study, range(options.first, options.first + options.studies)):
            print(line, flush=True)
            counted, inside = counted + figures, inside + good
    print(f"{inside} of {counted} figures in their 90 % intervals ({inside / max(1, counted):.0%})")


if __name__ == "__main__":
    main()
