"""Overhead of Seamark and Snakemake beside the loads: by size of a study, and between the trials of a run.

    python benchmarks/orchestration.py dry 250 2000 10000     dry runs of planned studies without results
    python benchmarks/orchestration.py dry --slurm 2000       the same at a site with a batch system (none is called)
    python benchmarks/orchestration.py run 100 2000           real runs of short loads: CPU time per trial
    python benchmarks/orchestration.py finished 2000 10000    finished studies: report, and another submit
    python benchmarks/orchestration.py gaps                   one run: wall time and its parts, gaps between trials

Every study is one deployment of the null service. The studies of `finished` were not measured: the folder of one
measured trial is copied under the names of the others, with Snakemake's records of it. Prints a table for each.
"""

import argparse
import base64
import ctypes
import itertools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

NAME = "scale"
SCENARIO = f"config/scenarios/{NAME}.yaml"
BENCH = [sys.executable, "-m", "seamark.cli.main"]
SLURM = {
    "name": "batch",
    "summary": "a site with a batch system that is never called",
    "profile": "slurm",
    "partitions": {"cpu": {"nodes": 2, "cpus": 64, "mem_gb": 256}},
    "qos": {"default": None},
}
REPETITIONS = 5
SHORT_S = 0.1
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    dry = kinds.add_parser("dry")
    dry.add_argument("sizes", type=int, nargs="*", default=[250, 2000, 10_000])
    dry.add_argument("--slurm", action="store_true")
    kinds.add_parser("run").add_argument("sizes", type=int, nargs="*", default=[100, 2000])
    kinds.add_parser("finished").add_argument("sizes", type=int, nargs="*", default=[2000, 10_000])
    gaps = kinds.add_parser("gaps")
    gaps.add_argument("--trials", type=int, default=12)
    gaps.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args()
    adopt_orphans()
    if asked.kind == "gaps":
        measure_gaps(asked.trials, asked.seconds)
        return
    measure = {"dry": dry_run(getattr(asked, "slurm", False)), "run": real_run, "finished": finished}[asked.kind]
    for at, size in enumerate(asked.sizes):
        with study_of(size) as root:
            row = {"trials": float(size), **measure(root)}
        if at == 0:
            print("".join(f"{name:>{max(12, len(name) + 2)}}" for name in row))
        print("".join(f"{value:>{max(12, len(name) + 2)}.6g}" for name, value in row.items()), flush=True)


@contextmanager
def study_of(trials: int, seconds: float = SHORT_S, repetitions: int = REPETITIONS) -> Iterator[Path]:
    """Yield a new study with a scenario of `trials` trials of one deployment."""
    with tempfile.TemporaryDirectory(prefix="seamark-orchestration-") as folder:
        root = Path(folder) / "study"
        subprocess.run([*BENCH, "init", root], check=True, capture_output=True)
        write_scenario(root, trials, seconds, repetitions)
        yield root


def write_scenario(root: Path, trials: int, seconds: float, repetitions: int) -> None:
    """Write the scenario of a study."""
    workload = {"component": "null", "service": "null", "pattern": "constant", "rate_rps": 50}
    workload |= {"concurrency": list(range(1, max(1, trials // repetitions) + 1)), "duration_s": seconds}
    document = {"scenario": NAME, "repetitions": repetitions, "workload": workload | {"warmup_s": 0}}
    (root / SCENARIO).write_text(yaml.safe_dump(document))


def bench(root: Path, *words: str, check: bool = True) -> dict[str, float]:
    """Run a verb of bench in a study; return its wall and CPU time and the peak memory of its largest process."""
    command = [*BENCH, *words, "-c", SCENARIO]
    return timed(command, root, check=check)


def timed(command: list[str], root: Path, *, check: bool = True) -> dict[str, float]:
    """Run a command; return seconds, CPU seconds of all processes that it started, and MB at its peak."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with (root / "output.txt").open("ab") as output:
        process = subprocess.Popen(command, cwd=root, stdout=output, stderr=output)
        peak_mb = 0.0
        while process.poll() is None:
            peak_mb = max(peak_mb, _largest_mb(process.pid))
            time.sleep(0.2)
    wall_s = time.perf_counter() - began_s
    if check and process.returncode:
        raise SystemExit(f"{command}: exit code {process.returncode}\n{(root / 'output.txt').read_text()[-3000:]}")
    with suppress(ChildProcessError):
        while True:  # fork servers and keepers, which outlive the command by a second
            os.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime - before.ru_utime + used.ru_stime - before.ru_stime
    return {"wall_s": wall_s, "cpu_s": cpu_s, "rss_mb": peak_mb}


def adopt_orphans() -> None:
    """Let processes whose parent has ended become children of this one, so that their CPU time is known."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _largest_mb(pid: int) -> float:
    """Return the resident memory of the largest process of a family, in MB."""
    largest = 0.0
    with suppress(psutil.Error):
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            with suppress(psutil.Error):
                largest = max(largest, process.memory_info().rss / 1e6)
    return largest


def dry_run(slurm: bool) -> Callable[[Path], dict[str, float]]:
    """Return the measurement of a dry run: of a planned study, by the command that `bench submit` uses."""

    def measure(root: Path) -> dict[str, float]:
        from seamark.planning.study import Study
        from seamark.workflow.snakemake_cli import command

        if slurm:
            (root / "config" / "sites" / "batch.yaml").write_text(yaml.safe_dump(SLURM))
            asked = yaml.safe_load((root / SCENARIO).read_text())
            (root / SCENARIO).write_text(
                yaml.safe_dump(asked | {"site": "batch", "partition": "cpu", "account": "a"})
            )
        site = ["--site", "batch"] if slurm else []
        planned = bench(root, "plan", *site)
        with chdir(root):  # plan.json names the scenario's file as seen from here
            study = Study.at(root, scenario=SCENARIO, site="batch" if slurm else "local")
            study.refresh_plan(NAME)
        row = timed(command(study, extra=["--dry-run", "--quiet", "all"]), root)
        return {f"dry_{name}": value for name, value in row.items()} | {"plan_s": planned["wall_s"]}

    return measure


def real_run(root: Path) -> dict[str, float]:
    """Run a study of short loads; return the cost per trial."""
    from seamark.planning.study import Study

    count = len(Study.at(root, scenario=SCENARIO, site="local").plan.trials)
    row = bench(root, "submit")
    return row | {"cpu_s_per_trial": row["cpu_s"] / count, "wall_s_per_trial": row["wall_s"] / count}


def finished(root: Path) -> dict[str, float]:
    """Measure one trial, copy it under the names of all others, and time the report and another submission."""
    from seamark.planning.study import Study

    whole = (root / SCENARIO).read_text()
    write_scenario(root, 1, SHORT_S, 1)
    bench(root, "submit")
    source = Study.at(root, scenario=SCENARIO, site="local").plan.trials[0]
    (root / SCENARIO).write_text(whole)
    study = Study.at(root, scenario=SCENARIO, site="local")
    folder = study.folder(NAME)
    records = {
        path: (base64.b64decode(path.name).decode(), path.read_text())
        for path in (root / ".snakemake" / "metadata").iterdir()
    }
    records = {path: told for path, told in records.items() if source.id in told[0]}
    files = [path for path in folder.trial(source.id).root.iterdir() if path.is_file()]
    texts = {path: None if path.suffix == ".parquet" else path.read_text() for path in files}
    texts = dict(sorted(texts.items(), key=lambda each: each[0].name != "samples.parquet"))
    times_ns = {path: path.stat().st_mtime_ns for path in texts}
    samples = pq.read_table(folder.trial(source.id).samples)
    size = folder.trial(source.id).samples.stat().st_size
    for trial in study.plan.trials:
        names = {source.id: trial.id, source.trial_id: trial.trial_id, source.config_hash: trial.config_hash}
        own = folder.trial(trial.id).root
        own.mkdir(exist_ok=True)
        for path, text in texts.items():
            copy = own / path.name
            if path.name == "samples.parquet":
                head = {key: _renamed(value, names) for key, value in _head(samples).items()}
                pq.write_table(samples.replace_schema_metadata(head), copy)
                names[f'"samples_bytes": {size}'] = f'"samples_bytes": {copy.stat().st_size}'
            elif text is None and copy != path:
                shutil.copyfile(path, copy)
            elif text is not None:
                copy.write_text(_renamed(text, names))
            os.utime(copy, ns=(times_ns[path], times_ns[path]))
        changed = [str({**trial.changed, "config_hash": trial.config_hash})]
        for path, (name, text) in records.items():
            document = json.loads(_renamed(text, names))
            if document["rule"] == "load":
                document["params"] = changed
            (path.parent / base64.b64encode(_renamed(name, names).encode()).decode()).write_text(json.dumps(document))
    with chdir(root):
        Study.at(root, scenario=SCENARIO, site="local").refresh_plan(NAME)
    first, report = bench(root, "submit"), _report(root, study.folder(NAME).root)
    again = bench(root, "submit")
    log = sorted((folder.root / "logs").glob("submit-*.log"))[-1].read_text()
    assert "Nothing to be done" in log, log[-2000:]
    page = root / "reports" / NAME / "index.html"
    return {
        "derive_s": first["wall_s"],
        "report_s": report,
        "page_mb": page.stat().st_size / 1e6,
        "again_s": again["wall_s"],
        "again_cpu_s": again["cpu_s"],
        "again_rss_mb": again["rss_mb"],
    }


def _report(root: Path, results: Path) -> float:
    code = "import sys; from pathlib import Path; from seamark.report.page.render import write_report"
    code += "; write_report(Path(sys.argv[1]), Path(sys.argv[2]))"
    return timed([sys.executable, "-c", code, str(results), str(root / "reports")], root)["wall_s"]


def _head(samples: pa.Table) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in samples.schema.metadata.items()}


def _renamed(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text


def measure_gaps(trials: int, seconds: float) -> None:
    """Run a scenario; print wall time, its parts and the gaps, from the files that the run left."""
    with study_of(trials, seconds, -(-trials // 2)) as root:
        began_s = time.time()
        subprocess.run([*BENCH, "submit", "-c", SCENARIO], cwd=root, check=True, capture_output=True)
        print_gaps(root / "results" / NAME, began_s, time.time(), seconds)


def print_gaps(results: Path, began_s: float, ended_s: float, seconds: float) -> None:
    """Print wall time, its parts and the gaps, from the files that the run left."""
    spans = []
    for record in results.glob("*/load.json"):
        epoch_s = json.loads(record.read_text())["epoch_unix_ns"] / 1e9
        times = pq.read_table(record.parent / "samples.parquet", columns=["sent_ns", "last_ns"])
        first, last = times["sent_ns"].to_numpy().min() / 1e9, times["last_ns"].to_numpy().max() / 1e9
        spans.append((epoch_s + first, epoch_s + last))
    spans.sort()
    gaps_s = [after[0] - before[1] for before, after in itertools.pairwise(spans)]
    wall_s, load_s = ended_s - began_s, len(spans) * seconds
    record = json.loads(next(results.glob("deployments/*/deployment.json")).read_text())
    start_s = sum(value or 0 for value in record["time_to_service_s"].values())
    cost_s = wall_s - load_s - start_s
    print(f"{'trials':<44}{len(spans):>10}")
    print(f"{'wall time':<44}{wall_s:>10.2f} s")
    print(f"{'  load':<44}{load_s:>10.2f} s")
    print(f"{'  server start':<44}{start_s:>10.2f} s")
    print(f"{'  orchestration, metrics, summary, report':<44}{cost_s:>10.2f} s")
    print(f"{'    before the first trial':<44}{spans[0][0] - began_s - start_s:>10.2f} s")
    print(f"{'    between the trials':<44}{sum(gaps_s):>10.2f} s")
    print(f"{'    after the last trial':<44}{ended_s - spans[-1][1]:>10.2f} s")
    print(f"{'orchestration of wall time':<44}{cost_s / wall_s:>10.1%}")
    print(f"{'gap between trials, median':<44}{statistics.median(gaps_s):>10.3f} s")
    print(f"{'gap between trials, largest':<44}{max(gaps_s):>10.3f} s")


if __name__ == "__main__":
    main()
