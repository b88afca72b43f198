"""Data of benchmarks in the working folder of a test, and the questions that are made of them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from seamark_evaluate.config.benchmark_files import read_benchmark
from seamark_evaluate.tasks.benchmark import Benchmark, Question
from seamark_evaluate.tasks.question_files import questions

SHIPPED = Path(__file__).parents[2] / "config" / "benchmarks"


def jsonl(path: str, rows: Iterable[dict[str, Any]]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def asked(benchmark: Benchmark, subset: str = "", **settings: Any) -> list[Question]:
    return questions(benchmark.subsets[subset], cache=Path("cache"), **settings)


def shipped(name: str, folder: str) -> Benchmark:
    """A shipped benchmark with its data in a folder, as a user has it who cannot reach the hub."""
    lines = (SHIPPED / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    lines = [f"source: {{folder: {folder}}}" if line.startswith("source:") else line for line in lines]
    Path(f"{name}.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_benchmark(Path(f"{name}.yaml"))
