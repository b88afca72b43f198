"""Rows of a subset from its source: made from a seed, or read from a file, a folder or the hub.

A source that cannot be read, or has no rows, is a UserError that names the task: never an empty success.
"""

import csv
import errno
import json
import socket
import ssl
import sys
from collections.abc import Iterator
from inspect import signature
from itertools import count
from pathlib import Path
from random import Random
from types import FunctionType
from typing import Any
from urllib.error import URLError

from seamark.errors import UserError
from seamark.model.dotted import resolved
from seamark.storage.paths import expanded
from seamark_evaluate.tasks.benchmark import Row, Source, Subset

NO_FILE = (None, errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
"""Codes of OSErrors for a path that is no file: a mistake in the benchmark's source, and none of the file system."""
UNREACHABLE = (errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EHOSTDOWN)
FORMATS = (".jsonl", ".json", ".csv", ".parquet")
"""Endings of files that are read, in the order in which a folder is searched."""


def rows_of(subset: Subset, *, seed: int, length_words: int | None) -> Iterator[Row]:
    """Yield the rows of a subset, those that are made without end unless the maker has no more.

    Rows of a file are turned into rows of questions by the function `rows` of the subset, where it has one. Raises
    UserError for whatever cannot be read or made.
    """
    task = subset.task
    if subset.source.kind == "made":
        yield from _made(subset, seed, length_words)
        return
    split = resolved(subset.rows, FunctionType) if subset.rows else None
    number = 0
    for number, row in enumerate(_read(subset), 1):
        try:
            yield from split(row) if split else (row,)
        except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            raise UserError(f"{task}: row {number} {what}") from None
    if number == 0:
        raise UserError(f"{task}: the data have no rows. Correct 'source' of the benchmark '{subset.benchmark}'.")


def _made(subset: Subset, seed: int, length_words: int | None) -> Iterator[Row]:
    """Rows of context after context, each from a seed of its own: the first ones do not depend on how many follow."""
    assert subset.source.made_by is not None
    maker = resolved(subset.source.made_by, FunctionType)
    settings = dict(subset.settings)
    length = subset.length_words if length_words is None else length_words
    if "length_words" in signature(maker).parameters:
        settings["length_words"] = length
    for number in count():
        random = Random(f"{seed}/{subset.benchmark}/{subset.name}/{number}")
        try:
            rows = list(maker(random, number, **settings))
        except ValueError as error:
            raise UserError(f"{subset.task}: {error}") from None
        if not rows:
            return
        yield from rows


def _read(subset: Subset) -> Iterator[Row]:
    if subset.source.kind == "hub":
        return _from_hub(subset)
    task, path = subset.task, data_file(subset)
    assert path is not None
    try:
        return iter(_from_file(path))
    except FileNotFoundError:
        raise UserError(f"{task}: no such file: {_shown(path)}. Correct 'source', or put the data there.") from None
    except OSError as error:
        raise UserError(f"{task}: {_shown(path)}: cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, csv.Error) as error:
        raise UserError(f"{task}: {_shown(path)}: {error}") from None


def category_of(error: BaseException) -> str:
    """Return the failure category of data that cannot be loaded, from the types of an error and of its causes."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    if any(isinstance(fault, _network_errors()) or getattr(fault, "errno", None) in UNREACHABLE for fault in causes):
        return "network_error"
    if any(isinstance(fault, OSError) and fault.errno not in NO_FILE for fault in causes):
        return "filesystem_error"
    return "dataset_error"


def _network_errors() -> tuple[type[BaseException], ...]:
    """Return the types of errors of a network, those of packages that download if they are in use."""
    of_packages = (("httpx", "TransportError"), ("requests", "ConnectionError"), ("requests", "Timeout"))
    found = (getattr(sys.modules.get(package), name, None) for package, name in of_packages)
    return (
        ConnectionError,
        TimeoutError,
        socket.gaierror,
        ssl.SSLError,
        URLError,
        *(kind for kind in found if kind is not None),
    )


def data_file(subset: Subset) -> Path | None:
    """Return the file of a subset's data, None for data that are made or of the hub.

    Raises UserError for a folder that has no file of the subset's name.
    """
    source, name = subset.source, subset.name
    if source.file:
        return expanded(source.file.replace("{subset}", name))
    if not source.folder:
        return None
    folder = expanded(source.folder.replace("{subset}", name))
    if source.files:
        return folder / source.files.replace("{subset}", name)
    found = [folder / f"{name or source.split}{ending}" for ending in FORMATS]
    there = next((path for path in found if path.is_file()), None)
    if there is None:
        raise UserError(f"{subset.task}: {_shown(folder)} has none of {', '.join(path.name for path in found)}.")
    return there


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _from_file(path: Path) -> list[Row]:
    if path.suffix == ".jsonl":
        return [_object(text, f"line {line}") for line, text in _lines(path)]
    if path.suffix == ".json":
        document = json.loads(path.read_text(encoding="utf-8-sig"))
        if not isinstance(document, list) or not all(isinstance(row, dict) for row in document):
            raise ValueError("expected a list of objects.")
        return document
    if path.suffix == ".csv":
        with path.open(encoding="utf-8-sig", newline="") as file:
            return [dict(row) for row in csv.DictReader(file, strict=True)]
    if path.suffix == ".parquet":
        return _from_parquet(path)
    raise ValueError(f"files of the kind '{path.suffix}' are not read. Use one of {', '.join(FORMATS)}.")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, text in enumerate(file, 1):
            if text.strip():
                yield number, text


def _object(text: str, where: str) -> Row:
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is no JSON: {error.msg}.") from None
    if not isinstance(row, dict):
        raise ValueError(f"{where} is no object.")
    return row


def _from_parquet(path: Path) -> list[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path).to_pylist()  # type: ignore[no-any-return]
    except pyarrow.ArrowException as error:
        raise ValueError(f"is no Parquet file: {error}.") from None


def _from_hub(subset: Subset) -> Iterator[Row]:
    """Rows of a data set of the hub. Needs the package `datasets`, which the environment `evaluation` has.

    `files` may name a file inside of an archive (`zip://data/{subset}.jsonl::data.zip`), which data sets with a
    loading script need: `datasets` runs no scripts any more.
    """
    task, source = subset.task, subset.source
    try:
        from datasets import load_dataset  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        raise UserError(
            f"{task}: reading '{source.hub}' needs the package 'datasets' of the environment 'evaluation'. With the"
            " data in a folder, write 'source: {folder: FOLDER}' into a copy of the benchmark's file."
        ) from None
    try:
        yield from load_dataset(**hub_arguments(source, subset.name))
    except UserError:
        raise
    except Exception as error:  # whatever a download, a format or the package's own checks raise
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise UserError(f"{task}: '{source.hub}' at '{source.revision}' cannot be loaded: {what}") from error


def hub_arguments(source: Source, subset: str) -> dict[str, Any]:
    """Return the arguments of `datasets.load_dataset` for a subset."""
    if source.files is None:
        config = source.config.replace("{subset}", subset) if source.config else None
        return {"path": source.hub, "name": config, "revision": source.revision, "split": source.split}
    inner, _, archive = source.files.replace("{subset}", subset).rpartition("::")
    place = f"hf://datasets/{source.hub}@{source.revision}/{archive}"
    ending = Path(inner or archive).suffix.removeprefix(".").replace("jsonl", "json")
    return {"path": ending, "data_files": f"{inner}::{place}" if inner else place, "split": "train"}
