"""The nouns of benchmarks: Benchmark, Subset, its source and columns, and Question; a subset as the document of a
task, with all that its questions and scores depend on. Opens no file."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from seamark.model.annotations import limited
from seamark.model.digest import digest
from seamark.storage.codec import decode, encode

Value = str | int | float | bool | None | tuple[str, ...]
"""A fact of a question: what scorers need and reports group by."""

Row = Mapping[str, Any]
"""One row of a data set, or of what a maker makes: values by column."""

WHOLE = ""
"""Name of the only subset of a benchmark without subsets."""
NEEDED = ", for all subsets or for this one"
"""End of the message on a missing key."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the rows of a subset come from: exactly one of `made_by`, `file`, `folder` and `hub`.

    `made_by` is the dotted path `module:function` of a maker. `file` and `folder` are paths; `files` is the name of a
    subset's file in a folder, or in a data set of the hub. `hub` is the name of a data set there, `revision` its
    commit, branch or tag, `config` and `split` name a part of it. `{subset}` stands for the subset's name.
    """

    made_by: str | None = None
    file: str | None = None
    folder: str | None = None
    hub: str | None = None
    revision: str | None = None
    config: str | None = None
    split: str = "test"
    files: str | None = None

    @property
    def kind(self) -> str:
        """Return made, file, folder or hub."""
        return "made" if self.made_by else "file" if self.file else "folder" if self.folder else "hub"


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which columns of a row a question is made from. None: it has none of that kind.

    `cluster` names the column that says which context a question is about; None: the text of its context. `facts` are
    further columns, kept with the question: scorers and templates use them, reports group by them.
    """

    context: str | None = "context"
    question: str | None = "question"
    references: str = "references"
    cluster: str | None = None
    id: str | None = None
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Subset:
    """One task of a benchmark: rows, the template that makes them questions, and the scorer of their answers.

    `template` is the whole prompt; what stands behind its last `{context}` is the question. `length_words` is the
    length of a made context in words, `questions` the number of questions that are made. `first_line`: only the first
    line of an answer is scored. `chat` False: the published harness puts this prompt into no chat template. `rows` is
    the dotted path of a function that turns one row of the data into rows of questions. `qualities`: names of the
    scores, `score` first.
    """

    benchmark: str
    name: str
    source: Source = limited(missing=NEEDED)
    columns: Columns = Columns()
    template: str = limited(missing=NEEDED)
    answer_prefix: str = ""
    max_new_tokens: int = limited(32, minimum=1)
    stop: tuple[str, ...] = ()
    scorer: str = limited(missing=NEEDED)
    qualities: tuple[str, ...] = ("score",)
    first_line: bool = False
    chat: bool = True
    rows: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    length_words: int | None = limited(None, minimum=1)
    questions: int | None = limited(None, minimum=1)

    @property
    def task(self) -> str:
        """The name of the task: `longbench/qasper`, or `aime2024` of a benchmark without subsets."""
        return f"{self.benchmark}/{self.name}" if self.name != WHOLE else self.benchmark

    @property
    def digest(self) -> str:
        """Digest of everything that the questions of this subset are made from."""
        kept = asdict(self)
        for other in ("benchmark", "scorer", "qualities", "first_line"):
            del kept[other]
        return digest(kept)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark: subsets by name, `{"": ...}` for one without subsets.

    `licence` is that of its data, `references` are the pages where templates, lengths and scorers are published.
    """

    name: str
    summary: str
    licence: str
    references: tuple[str, ...]
    subsets: Mapping[str, Subset]


@dataclass(frozen=True, kw_only=True)
class Question:
    """One row of a task, as it is sent: `context`, `question` and `answer_prefix` follow each other without a blank.

    `cluster` identifies the context, as answers to questions of one context depend on each other. `facts` are values
    that scorers need and reports group by, such as `depth_ratio`, `length_words` and `all_classes`.
    """

    id: str
    context: str
    question: str
    references: tuple[str, ...]
    cluster: str
    answer_prefix: str = ""
    max_new_tokens: int = 32
    stop: tuple[str, ...] = ()
    facts: Mapping[str, Value] = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        """Return the whole text that a model continues."""
        return self.context + self.question + self.answer_prefix


NOW, RECORDED = "seamark_evaluate.tasks.", "seamark.tasks."
"""Package of functions that make rows. Documents, and so identities, have its earlier name."""


def task_document(subset: Subset) -> Mapping[str, Any]:
    """Return the document of a task; `name` is that of the task, as `longbench/qasper`."""
    document = {**encode(subset), "name": subset.task, "subset": subset.name}
    del document["benchmark"]
    return dict(_renamed(document, NOW, RECORDED))


def task_of_document(document: Mapping[str, Any]) -> Subset:
    """Return the subset of a document. Raises ValueError for another document."""
    fields = {key: value for key, value in _renamed(document, RECORDED, NOW).items() if key != "subset"}
    benchmark = str(document["name"]).partition("/")[0]
    return decode({**fields, "benchmark": benchmark, "name": document["subset"]}, Subset)


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
