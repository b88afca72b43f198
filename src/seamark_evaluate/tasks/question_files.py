"""Questions of a task as a JSONL file in a cache folder: filled in templates or converted once, then only read.

The file's name is a digest of all that the questions depend on, so a changed benchmark, file, seed or length is
another file. It is written atomically: a file that is there is whole.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from seamark.errors import UserError, did_you_mean
from seamark.model.digest import digest, sha256_of
from seamark.model.dotted import mark_of
from seamark.storage.codec import encode, parse
from seamark.storage.documents import replacing
from seamark_evaluate.tasks.benchmark import Question, Row, Subset, Value
from seamark_evaluate.tasks.loading import data_file, rows_of

CACHE = Path("~/.cache/seamark/questions")
"""Folder of the questions of every task, made or loaded once."""


def questions(
    subset: Subset, *, seed: int = 0, limit: int | None = None, length_words: int | None = None, cache: Path
) -> list[Question]:
    """Return the questions of a task, the first `limit` of them: `read_questions` of its `question_file`."""
    path = question_file(subset, seed=seed, limit=limit, length_words=length_words, cache=cache)
    return read_questions(path, limit)


def question_file(
    subset: Subset, *, seed: int = 0, limit: int | None = None, length_words: int | None = None, cache: Path
) -> Path:
    """Return the file of a task's questions in the cache folder, written first where it is not there.

    `seed` and `length_words` (words of a context, None: as the benchmark says) apply to made tasks alone. Fewer
    questions of a made task are the first ones of more; of other tasks the file has all questions. Raises UserError
    for data that cannot be loaded, and for a length where data are loaded.
    """
    path = question_path(subset, seed=seed, limit=limit, length_words=length_words, cache=cache)
    if not path.exists():
        rows = rows_of(subset, seed=seed, length_words=length_words)
        number = _number_made(subset, limit)
        _write(path, _converted(subset, rows if number is None else islice(rows, number)))
    return path


def question_path(subset: Subset, *, seed: int, limit: int | None, length_words: int | None, cache: Path) -> Path:
    """Return where `question_file` has the questions of a task, and write nothing. Raises UserError as it does."""
    require_lengths(subset, limit, length_words)
    key = {
        "benchmark": subset.benchmark,
        "subset": subset.digest,
        "content": _content(subset),
        "made": [seed, length_words, _number_made(subset, limit)] if subset.source.kind == "made" else None,
    }
    return cache / f"{subset.task.replace('/', '_')}-{digest(key)[:16]}.jsonl"


def require_lengths(subset: Subset, limit: int | None, length_words: int | None) -> None:
    """Raise UserError for a number of questions below 1, and for a length in words that a task cannot have."""
    task = subset.task
    if limit is not None and limit < 1:
        raise UserError(f"{task}: {limit} questions cannot be asked. Ask 1 or more.")
    if length_words is not None and (subset.source.kind != "made" or subset.length_words is None):
        raise UserError(f"{task}: its contexts have the length that they have. Remove the length in words.")
    if length_words is not None and length_words < 1:
        raise UserError(f"{task}: a context of {length_words} words cannot be made. Give 1 word or more.")


def _number_made(subset: Subset, limit: int | None) -> int | None:
    """Return how many questions of a task are made, None of data that are loaded: all of these are converted."""
    return (subset.questions if limit is None else limit) if subset.source.kind == "made" else None


def read_questions(path: Path, limit: int | None = None) -> list[Question]:
    """Return the questions of a file, the first `limit` of them. Raises UserError for a damaged file."""
    if found := list(islice(_read(path), limit)):
        return found
    raise UserError(f"{path}: damaged: it has no questions. Remove the file; it is made anew.")


def _content(subset: Subset) -> list[str]:
    """What the rows depend on beside the benchmark's file: code and data by their digests."""
    marks = [mark_of(path) for path in (subset.source.made_by, subset.rows) if path]
    path = data_file(subset)
    if path is None or not path.is_file():
        return marks
    state = path.stat()
    return [*marks, f"{path.suffix} {_sha256(path, state.st_mtime_ns, state.st_size)}"]


@lru_cache(maxsize=256)
def _sha256(path: Path, _mtime_ns: int, _size: int) -> str:
    """Return the digest of a data file, which is read once for each time of change and size: many trials ask it."""
    return sha256_of(path)


def _converted(subset: Subset, rows: Iterator[Row]) -> Iterator[Question]:
    seen: set[str] = set()
    for number, row in enumerate(rows):
        question = question_of(subset, row, number)
        if question.id in seen:
            text = f"two questions have the id '{question.id}'. Name another column as 'id', or none."
            raise UserError(f"{subset.task}: {text}")
        seen.add(question.id)
        yield question
    if not seen:
        raise UserError(f"{subset.task}: it has no questions.")


def question_of(subset: Subset, row: Row, number: int) -> Question:
    """Return the question of one row, its template filled. Raises UserError for a column that is missing or empty."""
    columns, where = subset.columns, f"{subset.task}: row {number + 1}"
    values = {
        name: _text(where, row, column)
        for name, column in (("context", columns.context), ("question", columns.question))
        if column is not None
    }
    facts = {name: _fact(_cell(where, row, name)) for name in columns.facts}
    wanted = {*places(subset.template), *places(subset.answer_prefix)} - set(values)
    values |= {name: _text(where, row, name) for name in wanted}
    before, after = (filled(part, values) for part in parts(subset.template))
    references = _references(where, row, columns.references)
    for name in ("depth_ratio", "needle_position", "length_words"):
        if name in row:
            facts.setdefault(name, row[name])
    cluster = columns.cluster or ("cluster" if subset.source.kind == "made" and "cluster" in row else None)
    return Question(
        id=str(number) if columns.id is None else _text(where, row, columns.id),
        context=before,
        question=after,
        references=references,
        cluster=_text(where, row, cluster) if cluster else _digest(before or after),
        answer_prefix=filled(subset.answer_prefix, values),
        max_new_tokens=subset.max_new_tokens,
        stop=subset.stop,
        facts=facts,
    )


def _cell(where: str, row: Row, column: str) -> Any:
    if column not in row:
        near = did_you_mean(column, row) or f" It has: {', '.join(row)}."
        raise UserError(f"{where} has no column '{column}'.{near}")
    return row[column]


def _text(where: str, row: Row, column: str) -> str:
    value = _cell(where, row, column)
    if value is None or isinstance(value, (list, tuple, dict)):
        raise UserError(f"{where}: '{column}' is {type(value).__name__}, not a text.")
    return str(value)


def _references(where: str, row: Row, column: str) -> tuple[str, ...]:
    """A reference, or several: a list of texts or numbers, or a JSON list as text, as CSV files have."""
    value = _cell(where, row, column)
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            value = [value]
    found = tuple(str(item) for item in (value if isinstance(value, (list, tuple)) else [value]) if item is not None)
    if not found:
        raise UserError(f"{where}: '{column}' has no reference to score an answer against.")
    return found


def _fact(value: Any) -> Value:
    if isinstance(value, (list, tuple)):
        return tuple(str(item) for item in value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _write(path: Path, found: Iterator[Question]) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for question in found:
            file.write(json.dumps(encode(question), ensure_ascii=True) + "\n")
        file.flush()


def _read(path: Path) -> Iterator[Question]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield parse(line, Question)
            except ValueError as error:
                raise UserError(f"{path}:{number}: damaged: {error}. Remove the file; it is made anew.") from None


_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_CONTEXT = "{context}"


def places(template: str) -> tuple[str, ...]:
    """Return the names of the places of a template, each once, in their order."""
    return tuple(dict.fromkeys(_PLACE.findall(template)))


def parts(template: str) -> tuple[str, str]:
    """Return the template of the context and that of the question.

    The context ends with the last `{context}`: all before it is computed once for all questions of a context. A
    template without it is all question.
    """
    end = template.rfind(_CONTEXT)
    end = 0 if end < 0 else end + len(_CONTEXT)
    return template[:end], template[end:]


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return a template with each `{name}` replaced, once: braces in the values stay, as do braces without a name.

    Raises KeyError with the name of a place that has no value.
    """
    return _PLACE.sub(lambda match: values[match.group(1)], template)
