"""A task as a document: a subset of a benchmark with all that its questions and scores depend on."""

from collections.abc import Mapping
from typing import Any

from seamark.storage.codec import decode, encode
from seamark.tasks.benchmark import Benchmark, Subset


def task_document(benchmark: Benchmark, subset: Subset) -> Mapping[str, Any]:
    """Return the document of a task; `name` is that of the task, as `longbench/qasper`."""
    return {**encode(subset), "name": benchmark.task(subset), "subset": subset.name}


def task_of_document(document: Mapping[str, Any]) -> tuple[Benchmark, Subset]:
    """Return the benchmark, with this subset alone, and the subset of a document. Raises ValueError for another."""
    fields = {key: value for key, value in document.items() if key != "subset"}
    subset = decode({**fields, "name": document["subset"]}, Subset)
    name = str(document["name"]).partition("/")[0]
    benchmark = Benchmark(name=name, summary="", licence="", references=(), subsets={subset.name: subset})
    return benchmark, subset
