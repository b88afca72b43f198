"""Time and memory of a matrix whose stubs are all done: `python benchmarks/evaluation/finished_stubs.py`.

One stub is measured, on the reference server; its files are copied to all others under their own names. Then the
matrix is asked for once more, in a process of its own: it plans, sees that every stub is there, prints a line for
each and returns all results.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from asked_reference import RECIPE

TARGET_S, TARGET_MB = 15.0, 500.0
METHODS = 200
"""Methods of attention for each model. All have the same task: answers to one task are no answers to another."""
METHOD = "  method: {type: structure, role: workload, required: true, help: Method.}\n"


def main() -> None:
    """Read the arguments, make the study, and measure in another process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stubs", type=int, default=10_000, help=f"rounded to whole models of {METHODS}")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    models = max(1, options.stubs // METHODS)
    if options.child:
        print(json.dumps(measured(models)))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        began_s = time.perf_counter()
        stubs = finished(models)
        print(f"{stubs} finished stubs made in {time.perf_counter() - began_s:.0f} s")
        command = [sys.executable, Path(__file__).resolve(), "--child", "--stubs", str(options.stubs)]
        rows = []
        for _ in range(3):
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    names = ("import_s", "plan_s", "run_s", "rss_mb")
    print("".join(f"{name:>10}" for name in names))
    for row in rows:
        assert (row["skipped"], row["results"]) == (stubs, stubs), row
        print("".join(f"{row[name]:10.1f}" for name in names))
    met = all(row["run_s"] <= TARGET_S and row["rss_mb"] <= TARGET_MB for row in rows)
    print(f"target (all of it <= {TARGET_S:g} s, <= {TARGET_MB:g} MB): {'met' if met else 'missed'}")


def measured(models: int) -> dict[str, float]:
    """Ask for the whole matrix again; return seconds, peak memory, and the numbers of skipped stubs and results."""
    began_s = time.perf_counter()
    from seamark_evaluate.evaluation import BenchmarkExecutor

    imported_s = time.perf_counter()
    executor, asked = BenchmarkExecutor([0], 1, "out", device_kind="cpu"), matrix(models)
    planned = {name: value for name, value in asked.items() if name != "request_kwargs"}
    executor.plan(**planned)
    planned_s = time.perf_counter()
    results = executor.run_benchmark_matrix(**asked)
    return {
        "import_s": imported_s - began_s,
        "plan_s": planned_s - imported_s,
        "run_s": time.perf_counter() - planned_s,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        "skipped": results.execution_summary["skipped_stubs"],
        "results": len(results.individual_results),
    }


def matrix(models: int) -> dict[str, Any]:
    """Return the arguments of a matrix of so many models, METHODS methods of attention and one task."""
    from seamark_evaluate.evaluation import AdapterConfig, BenchmarkConfig

    return {
        "model_names": [f"org/model-{k}" for k in range(models)],
        "sparse_attention_configs": [
            (f"window_{k}", {"maskers": [{"masker": "sink", "keys": 4}, {"masker": "local", "keys": 64 * k}]})
            for k in range(1, METHODS + 1)
        ],
        "benchmark_configs": [BenchmarkConfig(benchmark_name="ruler", subsets=["vt"])],
        "adapter_config": AdapterConfig(adapter_name="many", model_kwargs={"ttft_ms": 1}),
        "request_kwargs": {"max_requests": 2},
    }


def finished(models: int) -> int:
    """Measure one stub, and copy its files to every stub of the matrix; return their number."""
    from seamark.planning.study import SHIPPED
    from seamark_evaluate.evaluation import AdapterConfig, BenchmarkConfig, BenchmarkExecutor
    from seamark_evaluate.evaluation.matrix_study import SCENARIO, study_of, trials_by_stub

    shutil.copytree(SHIPPED / "config/services", "config/services")
    Path("config/services/one.yaml").write_text(RECIPE.format(name="one"))
    Path("config/services/many.yaml").write_text(RECIPE.format(name="many") + METHOD)
    adapter = AdapterConfig(adapter_name="one", model_kwargs={"ttft_ms": 1})
    task = BenchmarkConfig(benchmark_name="ruler", subsets=["vt"])
    executor = BenchmarkExecutor([0], 1, "one", device_kind="cpu")
    done = executor.run_benchmark_matrix(
        ["m"], [("dense", None)], [task], adapter, request_kwargs={"max_requests": 2}
    )
    [result] = done.individual_results
    [source] = Path("one/.seamark/results/matrix").glob("*/load.json")
    asked = matrix(models)
    request = asked.pop("request_kwargs")
    many = BenchmarkExecutor([0], 1, "out", device_kind="cpu")
    stubs = many.plan(**asked)
    lanes = {"cpus": "0", "per_device": 1, "parallel": 2}
    study = study_of(stubs, request, Path("out"), lanes, device_kind="cpu")
    trials = trials_by_stub(study, stubs)
    texts = {path.name: path.read_text() for path in source.parent.glob("*.json")}
    own = json.loads(texts["load.json"])
    for stub in stubs:
        trial = trials[stub.result_dir]
        target = study.folder(SCENARIO).trial(trial.id).root
        target.mkdir(parents=True)
        names = {own["trial"]: trial.id, own["trial_id"]: trial.trial_id, own["config_hash"]: trial.config_hash}
        for name, text in texts.items():
            for old, new in names.items():
                text = text.replace(f'"{old}"', f'"{new}"')
            (target / name).write_text(text)
        for path in source.parent.glob("*.parquet"):
            os.link(path, target / path.name)
        Path(stub.result_dir).parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(result.stub.result_dir, stub.result_dir, copy_function=shutil.copyfile)
    Path("out/.seamark/written.json").write_text(json.dumps(sorted(stub.result_dir for stub in stubs)))
    return len(stubs)


if __name__ == "__main__":
    main()
