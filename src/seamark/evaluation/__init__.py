"""Evaluations from Python: matrices of models, attention and benchmarks, adapters, result trees."""

from seamark.evaluation.executor import BenchmarkExecutor
from seamark.evaluation.matrix import (
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
