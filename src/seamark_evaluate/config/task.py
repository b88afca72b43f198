"""Tasks of an evaluation: a level of `task` is a subset of a benchmark in config/benchmarks, as `longbench/qasper`.

A benchmark without a subset stands for all of its subsets. A level has all that its questions and scores depend on.
"""

from typing import Any

from seamark.config.forms.form import NAME, Document, Form, Leaves
from seamark.config.yaml_source import Item, Mistakes
from seamark.model.scenario import Workload
from seamark.model.service import Service
from seamark_evaluate.config.benchmark_files import KINDS, benchmark_of, subset_of
from seamark_evaluate.tasks.benchmark import task_document
from seamark_evaluate.tasks.scoring.table import code_of

READERS = ("seamark.drivers.openai.kept:read_kept", "seamark.drivers.openai.events:texts_in")
"""Functions that find the text of an answer in a kept reply."""


class TaskForm(Form):
    """A task by its name alone: a new one is a file of config/benchmarks."""

    name = "task"
    presets = "benchmarks"
    example = "a file of config/benchmarks"

    def file_of(self, text: str) -> str:
        """Return the name of the benchmark."""
        return text.partition("/")[0]

    def read(self, item: Item, service: Service, mistakes: Mistakes, leaves: Leaves) -> Document | None:
        """Note that a task cannot be written in place."""
        mistakes.add(item, f"a task is written by name, as in 'task: needles'. To make one, write {self.example}.")
        return None

    def of_file(
        self, tree: Item, item: Item, service: Service, mistakes: Mistakes, leaves: Leaves
    ) -> tuple[Document, ...]:
        """Return the tasks of a benchmark that `item` names: one subset, or all of them."""
        benchmark = benchmark_of(tree, self.file_of(item.value), mistakes)
        if benchmark is None:
            return ()
        _, slash, name = item.value.partition("/")
        if not slash:
            return tuple(task_document(subset) for subset in benchmark.subsets.values())
        try:
            return (task_document(subset_of(benchmark, name)),)
        except ValueError as error:
            mistakes.add(item, str(error))
            return ()

    def check(self, item: Item, workload: Workload, mistakes: Mistakes) -> None:
        """A task fits with every other setting."""

    def label(self, document: Document) -> str:
        """Return the name of the task."""
        return str(document[NAME])

    def text(self, document: Document) -> str:
        """Return where its questions come from, and its scorer."""
        source = document["source"]
        where = next((str(source[key]) for key in KINDS if source.get(key)), "")
        return f"{where}, scored by {document['scorer']}"

    def qualities(self, document: Document) -> tuple[str, ...]:
        """Return the names of its scores."""
        return tuple(document["qualities"])

    def scored_by(self, document: Document) -> tuple[str, ...]:
        """Return what reads the answers in kept replies, the package of scorers, and a scorer of the user's own."""
        return (*READERS, *code_of(str(document["scorer"]))) if "scorer" in document else ()

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a mapping: there is none."""
        return {"not": {}}


TASK = TaskForm()
