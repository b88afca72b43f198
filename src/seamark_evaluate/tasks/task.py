"""A task as a document: a subset of a benchmark with all that its questions and scores depend on; ids of its
questions.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from seamark.storage.codec import decode, encode
from seamark_evaluate.tasks.benchmark import Benchmark, Question, Subset

NOW, RECORDED = "seamark_evaluate.tasks.", "seamark.tasks."
"""Package of functions that make rows. Documents, and so identities, have its earlier name."""


def task_document(benchmark: Benchmark, subset: Subset) -> Mapping[str, Any]:
    """Return the document of a task; `name` is that of the task, as `longbench/qasper`."""
    document = {**encode(subset), "name": benchmark.task(subset), "subset": subset.name}
    return dict(_renamed(document, NOW, RECORDED))


def task_of_document(document: Mapping[str, Any]) -> tuple[Benchmark, Subset]:
    """Return the benchmark, with this subset alone, and the subset of a document. Raises ValueError for another."""
    fields = {key: value for key, value in _renamed(document, RECORDED, NOW).items() if key != "subset"}
    subset = decode({**fields, "name": document["subset"]}, Subset)
    name = str(document["name"]).partition("/")[0]
    benchmark = Benchmark(name=name, summary="", licence="", references=(), subsets={subset.name: subset})
    return benchmark, subset


def _renamed(value: Any, old: str, new: str) -> Any:
    """Return a document with the names of Seamark's own functions as they are recorded, or as they are now."""
    if isinstance(value, dict):
        return {key: _renamed(part, old, new) for key, part in value.items()}
    return new + value.removeprefix(old) if isinstance(value, str) and value.startswith(old) else value


def item_id(task: str, question: Question) -> str:
    """Return the id of a question of the task of that name: equal where the same text is asked, and only there."""
    return f"{task}/{question.id} {sha256(question.prompt.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def at(task: str, asked: Sequence[Question], item: int) -> Question:
    """Return the question of an item. Raises ValueError where there are fewer questions by now."""
    if item >= len(asked):
        raise ValueError(f"{task} has {len(asked)} questions, and item {item} was asked: its data have changed since")
    return asked[item]
