"""Evaluations from Python: matrices of models, attention and benchmarks, adapters, result trees."""

from seamark_evaluate.evaluation.executor import BenchmarkExecutor
from seamark_evaluate.evaluation.matrix import (
    AdapterConfig,
    BenchmarkConfig,
    BenchmarkFailure,
    BenchmarkResult,
    BenchmarkStub,
    ExecutionProgress,
    ExecutionResults,
)

__all__ = [
    "AdapterConfig",
    "BenchmarkConfig",
    "BenchmarkExecutor",
    "BenchmarkFailure",
    "BenchmarkResult",
    "BenchmarkStub",
    "ExecutionProgress",
    "ExecutionResults",
]
