"""Each script of benchmarks/ starts where nothing was installed for it: its environment has what it imports."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RUNS_S = 90
"""A script that still runs after this has started; it is ended then."""
LARGE = (
    "evaluation/between_trials.py",
    "evaluation/gathered_attention.py",
    "evaluation/lm_evaluation_harness.py",
    "evaluation/sample_cost.py",
    "llm_vllm_bench.py",
    "load_engine/__main__.py",
    "triton_perf_analyzer.py",
)
"""Left out: their peers or servers (torch, vLLM, Triton) install more than 500 MB."""
SIZES: dict[str, tuple[str, ...]] = {
    "evaluation/finished_stubs.py": ("--stubs", "30"),
    "events.py": ("--pairs", "1", "--events", "1000"),
    "faiss_recall.py": ("--rounds", "1", "--seconds", "1"),
    "fileio_fio.py": ("--rounds", "1", "--seconds", "1", "--threads", "1", "--file-bytes", "1048576"),
    "fit_known.py": ("--studies", "1", "--repetitions", "1", "--duration", "1"),
    "kept_replies.py": ("--pairs", "1", "--seconds", "1"),
    "load_memory.py": ("--requests", "1000"),
    "metrics_scale.py": ("--requests", "1000", "--trials", "10"),
    "orchestration.py": ("dry", "10"),
    "pipelines/__main__.py": ("--rounds", "1", "--only", "chain,events,payload"),
    "postgres_pgbench.py": ("--rounds", "1", "--seconds", "1", "--clients", "1", "--scale", "1"),
    "reference_server.py": ("--rounds", "1", "--seconds", "1"),
    "s3_boto3.py": ("--rounds", "1", "--seconds", "1", "--sizes", "1024"),
    "schedule_lag.py": ("--rounds", "1", "--seconds", "1", "--rates", "100"),
    "simulator.py": ("--rounds", "1"),
    "verdicts.py": ("equal", "--studies", "1", "--repetitions", "1"),
}
"""The smallest sizes that scripts take; the others have none."""


def scripts() -> list[str]:
    folder = ROOT / "benchmarks"
    parts = {path.parent for path in folder.rglob("__main__.py")}
    found = [
        path
        for path in folder.rglob("*.py")
        if '__name__ == "__main__"' in path.read_text(encoding="utf-8")
        and (path.parent not in parts or path.name == "__main__.py")
    ]
    return sorted(str(path.relative_to(folder)) for path in found)


def test_a_script_that_is_left_out_or_has_a_size_is_there() -> None:
    assert {*LARGE, *SIZES} <= set(scripts())


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in scripts() if name not in LARGE])
def test_a_script_of_benchmarks_starts_from_an_empty_cache(name: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, ROOT / "benchmarks" / name, *SIZES.get(name, ())],
        cwd=ROOT,
        env=os.environ | {"SEAMARK_CACHE": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=RUNS_S)
        if "is not installed: apt-get" in said:
            pytest.skip(said.strip().splitlines()[-1])
        assert process.returncode == 0, said
    except subprocess.TimeoutExpired:
        for number in (signal.SIGINT, signal.SIGKILL):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, number)
                process.communicate(timeout=20)
